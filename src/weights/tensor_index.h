// The tensors of a source, and the way from a name to one of them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "weights/tensor_source.h"

namespace quire::weights {

// Immutable after Build, and not copied: the map's keys point into the tensors' names.
class TensorIndex {
 public:
  // A name that stands twice is an error; `name` is that of the source.
  static Result<TensorIndex> Build(std::vector<TensorSource> tensors, std::string_view name);

  TensorIndex() = default;
  TensorIndex(TensorIndex&&) = default;
  TensorIndex& operator=(TensorIndex&&) = default;
  TensorIndex(const TensorIndex&) = delete;
  TensorIndex& operator=(const TensorIndex&) = delete;

  const TensorSource* Find(std::string_view name) const;
  std::span<const TensorSource> tensors() const { return tensors_; }
  std::int64_t total_bytes() const { return total_bytes_; }

 private:
  std::vector<TensorSource> tensors_;
  std::unordered_map<std::string_view, std::size_t> positions_;
  std::int64_t total_bytes_ = 0;
};

}  // namespace quire::weights
