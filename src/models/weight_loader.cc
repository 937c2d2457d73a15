#include "models/weight_loader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "weights/tensor_names.h"

namespace quire::models {
namespace {

using kernels::WeightFormat;
using weights::TensorSource;

// Progress is reported about this often.
constexpr std::int64_t kReportBytes = std::int64_t{32} << 20;
constexpr std::size_t kNamesInError = 8;

// The panel format that holds the tensor exactly; floats where the type's own panels cannot take this many
// columns.
WeightFormat PackedFormat(const TensorSource& tensor, std::int64_t columns) {
  const WeightFormat format = tensor.type->packed;
  return columns % kernels::Traits(format).group == 0 ? format : WeightFormat::kF32;
}

std::size_t FileRowBytes(const weights::TypeTraits& type, std::int64_t columns) {
  return static_cast<std::size_t>(columns / type.block_elements) * static_cast<std::size_t>(type.block_bytes);
}

weights::RowBuffer MakeRowBuffer(std::int64_t columns) {
  constexpr std::int64_t kSmallestGroup = 16;
  weights::RowBuffer buffer;
  buffer.values.resize(static_cast<std::size_t>(columns));
  buffer.codes.resize(static_cast<std::size_t>(columns));
  buffer.scales.resize(static_cast<std::size_t>((columns + kSmallestGroup - 1) / kSmallestGroup));
  buffer.mins.resize(buffer.scales.size());
  return buffer;
}

}  // namespace

WeightLoader::WeightLoader(const weights::ModelSource& source, const LoadOptions& options, ThreadPool* pool)
    : source_(source), options_(options), pool_(pool) {}

Result<const TensorSource*> WeightLoader::Find(const std::string& tensor_name, std::span<const std::int64_t> shape) {
  const TensorSource* tensor = source_.Find(tensor_name);
  if (tensor == nullptr) {
    return Fail(ErrorCode::kCorrupt, "tensor {} is missing; {} needs it", tensor_name,
                source_.config().architecture_name);
  }
  if (!std::ranges::equal(tensor->shape, shape)) {
    return Fail(ErrorCode::kCorrupt, "tensor {} has shape [{}], but the configuration says [{}]", tensor_name,
                fmt::join(tensor->shape, ", "), fmt::join(shape, ", "));
  }
  // The formats divide evenly by their blocks; the source has checked it for what it could open.
  CHECK(tensor->columns() % tensor->type->block_elements == 0);
  return tensor;
}

void WeightLoader::CountUse(const TensorSource& tensor, bool is_matrix) {
  used_.insert(tensor.name);
  num_parameters_ += tensor.rows() * tensor.columns();
  if (!is_matrix) return;
  const auto bytes = static_cast<std::int64_t>(tensor.data.size());
  const auto known = std::ranges::find(formats_, tensor.type->name, &FormatBytes::name);
  if (known == formats_.end()) {
    formats_.push_back({tensor.type->name, bytes});
  } else {
    known->bytes += bytes;
  }
}

void WeightLoader::Report(std::int64_t bytes, std::string_view tensor_name) {
  done_bytes_ += bytes;
  if (options_.progress) options_.progress(done_bytes_, source_.total_bytes(), tensor_name);
}

Result<nn::PackedWeights> WeightLoader::Pack(WeightFormat format, std::span<const Rows> parts, std::int64_t columns) {
  std::int64_t num_rows = 0;
  for (const Rows& part : parts) num_rows += part.tensor->rows();
  QUIRE_TRY(nn::PackedWeights packed, nn::PackedWeights::Create(format, num_rows, columns));

  const auto pack_panel = [&](std::int64_t panel, std::span<weights::RowBuffer> buffers) {
    std::array<kernels::WeightRow, kernels::kPanelWidth> views;
    const std::int64_t begin = panel * kernels::kPanelWidth;
    const std::int64_t count = std::min<std::int64_t>(kernels::kPanelWidth, num_rows - begin);
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t row = begin + i;
      auto part = parts.begin();
      for (; row >= part->tensor->rows(); ++part) row -= part->tensor->rows();
      const weights::TypeTraits& type = *part->tensor->type;
      const std::byte* source =
          part->tensor->data.data() + FileRowBytes(type, columns) * static_cast<std::size_t>(part->order.FileRow(row));
      weights::RowBuffer& buffer = buffers[static_cast<std::size_t>(i)];
      if (format == type.packed) {
        type.decode_row(source, columns, &buffer);
      } else {
        type.dequantize_row(source, columns, buffer.values.data());
      }
      views[static_cast<std::size_t>(i)] = buffer.View();
      views[static_cast<std::size_t>(i)].values = buffer.values.data();
    }
    kernels::PackPanel(format, columns, std::span(views).first(static_cast<std::size_t>(count)), packed.panel(panel));
  };

  std::int64_t file_bytes = 0;
  for (const Rows& part : parts) file_bytes += static_cast<std::int64_t>(part.tensor->data.size());
  const std::int64_t num_panels = kernels::NumPanels(num_rows);
  const std::int64_t waves = std::max<std::int64_t>(1, file_bytes / kReportBytes);
  for (std::int64_t wave = 0; wave < waves; ++wave) {
    const std::int64_t wave_begin = num_panels * wave / waves, wave_end = num_panels * (wave + 1) / waves;
    pool_->ParallelFor(wave_end - wave_begin, 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<weights::RowBuffer> buffers(kernels::kPanelWidth, MakeRowBuffer(columns));
      for (std::int64_t panel = begin; panel < end; ++panel) pack_panel(wave_begin + panel, buffers);
    });
    Report(file_bytes * (wave + 1) / waves - file_bytes * wave / waves, parts.front().tensor->name);
  }
  for (const Rows& part : parts) {
    CountUse(*part.tensor, true);
    source_.Release(*part.tensor);
  }
  packed_bytes_ += static_cast<std::int64_t>(packed.bytes());
  return packed;
}

Result<nn::PackedWeights> WeightLoader::LoadMatrix(const std::string& tensor_name, std::int64_t rows,
                                                   std::int64_t columns) {
  QUIRE_TRY(const TensorSource* tensor, Find(tensor_name, std::array{rows, columns}));
  const Rows part{tensor, {}};
  return Pack(PackedFormat(*tensor, columns), std::span(&part, 1), columns);
}

Result<std::vector<float>> WeightLoader::LoadVector(const std::string& tensor_name, std::int64_t size, RowOrder order) {
  QUIRE_TRY(const TensorSource* tensor, Find(tensor_name, std::array{size}));
  std::vector<float> in_file(static_cast<std::size_t>(size)), values(static_cast<std::size_t>(size));
  tensor->type->dequantize_row(tensor->data.data(), size, in_file.data());
  for (std::int64_t i = 0; i < size; ++i) {
    values[static_cast<std::size_t>(i)] = in_file[static_cast<std::size_t>(order.FileRow(i))];
  }
  CountUse(*tensor, false);
  packed_bytes_ += size * static_cast<std::int64_t>(sizeof(float));
  Report(static_cast<std::int64_t>(tensor->data.size()), tensor->name);
  return values;
}

Result<nn::Linear> WeightLoader::LoadLinear(std::span<const MatrixPart> parts, std::int64_t columns, BiasRule rule,
                                            std::vector<nn::PackedWeights>* storage) {
  std::vector<Rows> tensors;
  for (const MatrixPart& part : parts) {
    QUIRE_TRY(const TensorSource* tensor, Find(part.name + ".weight", std::array{part.rows, columns}));
    tensors.push_back({tensor, part.order});
  }
  std::vector<kernels::PackedMatrix> segments;
  for (auto begin = tensors.begin(); begin != tensors.end();) {
    const WeightFormat format = PackedFormat(*begin->tensor, columns);
    const auto end = std::find_if(begin, tensors.end(),
                                  [&](const Rows& rows) { return PackedFormat(*rows.tensor, columns) != format; });
    QUIRE_TRY(nn::PackedWeights packed, Pack(format, std::span(begin, end), columns));
    segments.push_back(packed.matrix());
    storage->push_back(std::move(packed));
    begin = end;
  }

  std::vector<float> bias;
  for (const MatrixPart& part : parts) {
    const std::string name = part.name + ".bias";
    const bool present = rule == BiasRule::kRequired || (rule == BiasRule::kIfPresent && Has(name));
    if (present) {
      QUIRE_TRY(const std::vector<float> values, LoadVector(name, part.rows, part.order));
      bias.insert(bias.end(), values.begin(), values.end());
    } else {
      bias.insert(bias.end(), static_cast<std::size_t>(part.rows), 0.0f);
    }
  }
  if (std::ranges::all_of(bias, [](float value) { return value == 0; })) bias.clear();
  return nn::Linear(std::move(segments), std::move(bias));
}

void WeightLoader::Ignore(std::string_view tensor_name) {
  if (const TensorSource* tensor = source_.Find(tensor_name)) used_.insert(tensor->name);
}

Result<> WeightLoader::CheckAllUsed() const {
  std::vector<std::string_view> unexpected;
  for (const TensorSource& tensor : source_.tensors()) {
    if (!used_.contains(tensor.name) && !weights::IsHarmlessTensor(source_.is_gguf(), tensor.name)) {
      unexpected.push_back(tensor.name);
    }
  }
  if (unexpected.empty()) return {};
  std::ranges::sort(unexpected);
  const std::size_t shown = std::min(unexpected.size(), kNamesInError);
  return Fail(ErrorCode::kUnsupported, "{} does not know what to do with the tensor{} {}{}",
              source_.config().architecture_name, unexpected.size() == 1 ? "" : "s",
              fmt::join(unexpected.begin(), unexpected.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
              unexpected.size() > shown ? fmt::format(" and {} more", unexpected.size() - shown) : "");
}

std::string WeightLoader::FormatNames() const {
  std::vector<FormatBytes> sorted = formats_;
  std::ranges::sort(sorted, [](const FormatBytes& a, const FormatBytes& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.name < b.name;
  });
  std::vector<std::string_view> names;
  for (const FormatBytes& format : sorted) names.push_back(format.name);
  return fmt::format("{}", fmt::join(names, " + "));
}

}  // namespace quire::models
