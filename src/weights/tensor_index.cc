#include "weights/tensor_index.h"

#include <utility>

namespace quire::weights {

Result<TensorIndex> TensorIndex::Build(std::vector<TensorSource> tensors, std::string_view name) {
  TensorIndex index;
  index.tensors_ = std::move(tensors);
  index.positions_.reserve(index.tensors_.size());
  for (std::size_t i = 0; i < index.tensors_.size(); ++i) {
    const TensorSource& tensor = index.tensors_[i];
    if (!index.positions_.emplace(tensor.name, i).second) {
      return Fail(ErrorCode::kCorrupt, "{}: the tensor {} stands there twice", name, tensor.name);
    }
    index.total_bytes_ += static_cast<std::int64_t>(tensor.data.size());
  }
  return index;
}

const TensorSource* TensorIndex::Find(std::string_view name) const {
  const auto found = positions_.find(name);
  return found == positions_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace quire::weights
