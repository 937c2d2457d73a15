#include "models/weight_loader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <optional>
#include <utility>

#include "base/check.h"
#include "weights/outlier_columns.h"
#include "weights/tensor_names.h"

namespace quire::models {
namespace {

using kernels::WeightFormat;
using weights::MatrixInfo;
using weights::MatrixSource;
using weights::TensorSource;

// Progress is reported about this often.
constexpr std::int64_t kReportBytes = std::int64_t{32} << 20;
constexpr std::size_t kNamesInError = 8;

bool HasOrder(const MatrixSource& matrix, std::span<const std::int32_t> order) {
  return std::ranges::equal(matrix.info().input_order, order);
}

// The panel format that holds the matrix exactly; floats where its own panels cannot take this many columns, or not
// in this order.
WeightFormat PackedFormat(const MatrixSource& matrix, std::span<const std::int32_t> order) {
  const WeightFormat format = matrix.info().packed;
  const bool fits = matrix.info().columns % kernels::Traits(format).group == 0;
  return fits && HasOrder(matrix, order) ? format : WeightFormat::kF32;
}

// A row for a panel of `format`, with its columns in `order`.
Result<> ReadRow(const MatrixSource& matrix, WeightFormat format, std::span<const std::int32_t> order, std::int64_t row,
                 weights::RowBuffer* buffer) {
  if (format == matrix.info().packed && HasOrder(matrix, order)) return matrix.Decode(row, buffer);
  buffer->values.resize(static_cast<std::size_t>(matrix.info().columns));
  QUIRE_TRY_VOID(matrix.Dequantize(row, buffer->values.data()));
  if (order.empty()) return {};
  const std::vector<float> in_input_order = buffer->values;
  for (std::size_t i = 0; i < order.size(); ++i) {
    buffer->values[i] = in_input_order[static_cast<std::size_t>(order[i])];
  }
  return {};
}

// The first error of several threads.
class FirstError {
 public:
  void Add(Error error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  Result<> Take() {
    const std::lock_guard lock(mutex_);
    if (error_) return std::unexpected(*std::exchange(error_, std::nullopt));
    return {};
  }

 private:
  std::mutex mutex_;
  std::optional<Error> error_;  // guarded by mutex_
};

// What the memory of a packed matrix is made of, whatever the file that holds it is called; or, with `what`, what is
// known about these matrices.
weights::PackedKey KeyOf(std::span<const WeightLoader::Rows> parts, std::span<const std::int32_t> input_order,
                         std::string_view what = "") {
  std::string text(what);
  for (const WeightLoader::Rows& part : parts) {
    const MatrixInfo& info = part.matrix->info();
    text += fmt::format("{} {} {} {} {}\n", info.name, info.type_name, info.rows, part.order.head_dim,
                        part.order.rotary_dim);
  }
  return weights::MakePackedKey(text, input_order);
}

// Null when there is no file, or it does not hold the matrix.
const std::byte* FindPacked(const weights::PackedReader* reader, const weights::PackedKey& key, WeightFormat format,
                            std::int64_t num_rows, std::int64_t columns) {
  if (reader == nullptr) return nullptr;
  const auto found = reader->Find(key, {format, num_rows, columns});
  return found.size() == nn::PackedWeights::MatrixBytes(format, num_rows, columns) ? found.data() : nullptr;
}

weights::RowBuffer MakeRowBuffer(std::int64_t columns) {
  constexpr std::int64_t kSmallestGroup = 16;
  weights::RowBuffer buffer;
  buffer.values.resize(static_cast<std::size_t>(columns));
  buffer.codes.resize(static_cast<std::size_t>(columns));
  buffer.scales.resize(static_cast<std::size_t>((columns + kSmallestGroup - 1) / kSmallestGroup));
  buffer.mins.resize(buffer.scales.size());
  buffer.scale_codes.resize(buffer.scales.size());
  buffer.min_codes.resize(buffer.scales.size());
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

Result<std::unique_ptr<MatrixSource>> WeightLoader::FindMatrix(const std::string& name, std::int64_t rows,
                                                               std::int64_t columns) {
  QUIRE_TRY(std::unique_ptr<MatrixSource> matrix, source_.FindMatrix(name));
  if (matrix == nullptr) {
    return Fail(ErrorCode::kCorrupt, "tensor {}.weight is missing; {} needs it", name,
                source_.config().architecture_name);
  }
  const MatrixInfo& info = matrix->info();
  const std::vector<std::int64_t> shape =
      info.quantized_layout ? std::vector{info.rows, info.columns} : info.tensors.front()->shape;
  if (!std::ranges::equal(shape, std::array{rows, columns})) {
    return Fail(ErrorCode::kCorrupt, "tensor {} has shape [{}], but the configuration says [{}, {}]", info.name,
                fmt::join(shape, ", "), rows, columns);
  }
  return matrix;
}

Result<std::vector<WeightLoader::Rows>> WeightLoader::FindRows(std::span<const MatrixPart> parts,
                                                               std::int64_t columns) {
  std::vector<Rows> matrices;
  for (const MatrixPart& part : parts) {
    QUIRE_TRY(std::unique_ptr<MatrixSource> matrix, FindMatrix(part.name, part.rows, columns));
    matrices.push_back({.matrix = std::move(matrix), .order = part.order});
  }
  return matrices;
}

Result<weights::QuantizationNote> WeightLoader::ReadNote(const weights::PackedKey& key,
                                                         std::span<const Rows> matrices) const {
  if (options_.packed == nullptr) return weights::QuantizationNote{};
  const MatrixInfo& first = matrices.front().matrix->info();
  const auto read = [&]() -> Result<weights::QuantizationNote> {
    QUIRE_TRY(const std::span<const std::byte> bytes, options_.packed->FindNote(key));
    if (bytes.empty()) return weights::QuantizationNote{};
    return weights::ReadQuantizationNote(bytes, first.columns, matrices.size());
  };
  Result<weights::QuantizationNote> note = read();
  if (note) return note;
  // Packing this matrix anew would not do: its columns are what the others of the file were made with.
  return Fail(note.error().code,
              "{}: what it says of tensor {} is damaged: {}; delete it, or let quire pack write it again",
              options_.packed->path().string(), first.name, note.error().message);
}

Result<weights::QuantizationNote> WeightLoader::Quantize(const weights::PackedKey& key, std::span<Rows> matrices) {
  QUIRE_TRY(weights::QuantizationNote note, ReadNote(key, matrices));
  if (note.errors.empty() && weights::KeepsOutlierColumns(options_.quantization)) {
    std::vector<const MatrixSource*> floats;
    for (const Rows& rows : matrices) floats.push_back(rows.matrix.get());
    QUIRE_TRY(note.outlier_columns, weights::FindOutlierColumns(floats));
  }
  for (Rows& rows : matrices) {
    rows.errors.resize(static_cast<std::size_t>(rows.matrix->info().rows));
    rows.matrix = weights::QuantizeMatrix(std::move(rows.matrix), source_, options_.quantization, note.outlier_columns,
                                          rows.errors);
  }
  return note;
}

void WeightLoader::ReportErrors(const weights::PackedKey& key, std::span<const Rows> matrices,
                                weights::QuantizationNote note) {
  if (note.errors.empty()) {
    for (const Rows& rows : matrices) note.errors.push_back(weights::SumErrors(rows.errors));
  }
  if (options_.packing != nullptr) options_.packing->AddNote(key, weights::WriteQuantizationNote(note));
  if (options_.quantization_errors == nullptr) return;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const MatrixInfo& info = matrices[i].matrix->info();
    options_.quantization_errors->push_back(
        {.name = info.name,
         .type = info.type_name,
         .error = note.errors[i],
         .num_outlier_columns = static_cast<std::int64_t>(note.outlier_columns.size())});
  }
}

void WeightLoader::CountUse(const MatrixSource& matrix) {
  const MatrixInfo& info = matrix.info();
  if (info.tensors.empty()) return;  // columns of a matrix, which is counted itself
  std::int64_t bytes = 0;
  for (const TensorSource* tensor : info.tensors) {
    used_.insert(tensor->name);
    bytes += static_cast<std::int64_t>(tensor->data.size());
  }
  num_parameters_ += info.rows * info.columns;
  const auto known = std::ranges::find(formats_, info.type_name, &FormatBytes::name);
  if (known == formats_.end()) {
    formats_.push_back({info.type_name, bytes});
  } else {
    known->bytes += bytes;
  }
}

void WeightLoader::Report(std::int64_t bytes, std::string_view tensor_name) {
  done_bytes_ += bytes;
  if (options_.progress && bytes > 0) options_.progress(done_bytes_, source_.total_bytes(), tensor_name);
}

std::vector<std::int32_t> WeightLoader::CommonInputOrder(std::span<const Rows> parts) {
  for (const Rows& part : parts) {
    if (!part.matrix->info().input_order.empty()) return part.matrix->info().input_order;
  }
  return {};
}

Result<nn::PackedWeights> WeightLoader::Pack(WeightFormat format, std::span<const Rows> parts, std::int64_t columns,
                                             InputOrder input_order) {
  std::int64_t num_rows = 0, file_bytes = 0;
  for (const Rows& part : parts) {
    num_rows += part.matrix->info().rows;
    for (const TensorSource* tensor : part.matrix->info().tensors) {
      file_bytes += static_cast<std::int64_t>(tensor->data.size());
    }
  }
  const weights::PackedKey key = KeyOf(parts, input_order);
  nn::PackedWeights packed;
  if (const std::byte* data = FindPacked(options_.packed, key, format, num_rows, columns)) {
    packed =
        nn::PackedWeights::View({.format = format, .n = num_rows, .k = columns, .data = data}, options_.packed->file());
    Report(file_bytes, parts.front().matrix->info().name);
  } else {
    QUIRE_TRY(packed, nn::PackedWeights::Create(format, num_rows, columns));
    QUIRE_TRY_VOID(PackPanels(parts, input_order, file_bytes, &packed));
    if (options_.packing != nullptr) {
      options_.packing->Add(key, {format, num_rows, columns}, {packed.matrix().data, packed.bytes()});
    }
  }
  for (const Rows& part : parts) {
    CountUse(*part.matrix);
    for (const TensorSource* tensor : part.matrix->info().tensors) source_.Release(*tensor);
  }
  packed_bytes_ += static_cast<std::int64_t>(packed.bytes());
  return packed;
}

Result<> WeightLoader::PackPanels(std::span<const Rows> parts, InputOrder input_order, std::int64_t file_bytes,
                                  nn::PackedWeights* packed) {
  const auto [format, num_rows, columns, data] = packed->matrix();
  const auto pack_panel = [&](std::int64_t panel, std::span<weights::RowBuffer> buffers) -> Result<> {
    std::array<kernels::WeightRow, kernels::kPanelWidth> views;
    const std::int64_t begin = panel * kernels::kPanelWidth;
    const std::int64_t count = std::min<std::int64_t>(kernels::kPanelWidth, num_rows - begin);
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t row = begin + i;
      auto part = parts.begin();
      for (; row >= part->matrix->info().rows; ++part) row -= part->matrix->info().rows;
      weights::RowBuffer& buffer = buffers[static_cast<std::size_t>(i)];
      QUIRE_TRY_VOID(ReadRow(*part->matrix, format, input_order, part->order.FileRow(row), &buffer));
      if (!buffer.IsFinite()) {
        return Fail(ErrorCode::kCorrupt, "tensor {}: row {} holds a {} value or scale that is not finite, or too large",
                    part->matrix->info().name, part->order.FileRow(row), part->matrix->info().type_name);
      }
      views[static_cast<std::size_t>(i)] = buffer.View();
    }
    kernels::PackPanel(format, columns, std::span(views).first(static_cast<std::size_t>(count)), packed->panel(panel));
    return {};
  };

  FirstError error;
  const std::int64_t num_panels = kernels::NumPanels(num_rows);
  const std::int64_t waves = std::max<std::int64_t>(1, file_bytes / kReportBytes);
  for (std::int64_t wave = 0; wave < waves; ++wave) {
    const std::int64_t wave_begin = num_panels * wave / waves, wave_end = num_panels * (wave + 1) / waves;
    pool_->ParallelFor(wave_end - wave_begin, 1, [&](std::int64_t begin, std::int64_t end) {
      std::vector<weights::RowBuffer> buffers(kernels::kPanelWidth, MakeRowBuffer(columns));
      for (std::int64_t panel = begin; panel < end; ++panel) {
        if (Result<> done = pack_panel(wave_begin + panel, buffers); !done) return error.Add(std::move(done.error()));
      }
    });
    QUIRE_TRY_VOID(error.Take());
    Report(file_bytes * (wave + 1) / waves - file_bytes * wave / waves, parts.front().matrix->info().name);
  }
  return {};
}

Result<WeightLoader::Stack> WeightLoader::PackStack(std::span<const MatrixPart> parts, std::span<Rows> matrices,
                                                    std::int64_t columns, InputOrder input_order,
                                                    std::vector<nn::PackedWeights>* storage) {
  weights::PackedKey key;
  weights::QuantizationNote note;
  const bool quantises = options_.quantization != weights::Quantization::kNone;
  if (quantises) {
    key = KeyOf(matrices, input_order, "quantization\n");
    QUIRE_TRY(note, Quantize(key, matrices));
  }
  Stack stack{.segments = {}, .outliers = {.columns = note.outlier_columns, .weights = {}}};
  CHECK(input_order.empty() || stack.outliers.columns.empty());  // of matrices that are codes, or floats
  for (std::size_t begin = 0; begin < matrices.size();) {
    const WeightFormat format = PackedFormat(*matrices[begin].matrix, input_order);
    std::size_t end = begin + 1;
    while (end < matrices.size() && PackedFormat(*matrices[end].matrix, input_order) == format) ++end;
    if (!stack.outliers.columns.empty()) {  // first, for the file's pages are given back with the others
      QUIRE_TRY(nn::PackedWeights kept,
                PackOutliers(parts.subspan(begin, end - begin), columns, stack.outliers.columns));
      stack.outliers.weights.push_back(kept.matrix());
      storage->push_back(std::move(kept));
    }
    QUIRE_TRY(nn::PackedWeights packed, Pack(format, matrices.subspan(begin, end - begin), columns, input_order));
    stack.segments.push_back(packed.matrix());
    storage->push_back(std::move(packed));
    begin = end;
  }
  if (quantises) ReportErrors(key, matrices, std::move(note));
  return stack;
}

Result<nn::PackedWeights> WeightLoader::PackOutliers(std::span<const MatrixPart> parts, std::int64_t columns,
                                                     const std::vector<std::int32_t>& outliers) {
  QUIRE_TRY(std::vector<Rows> matrices, FindRows(parts, columns));
  for (Rows& rows : matrices) rows.matrix = weights::KeepColumns(std::move(rows.matrix), outliers);
  return Pack(WeightFormat::kBf16, matrices, static_cast<std::int64_t>(outliers.size()), {});
}

Result<nn::EmbeddingTable> WeightLoader::LoadEmbedding(const std::string& name, std::int64_t rows, std::int64_t columns,
                                                       std::vector<nn::PackedWeights>* storage) {
  const std::array parts{MatrixPart{name, rows}};
  QUIRE_TRY(std::vector<Rows> matrices, FindRows(parts, columns));
  QUIRE_TRY(Stack stack, PackStack(parts, matrices, columns, {}, storage));
  return nn::EmbeddingTable{.matrix = stack.segments.front(), .outliers = std::move(stack.outliers)};
}

Result<std::vector<float>> WeightLoader::LoadVector(const std::string& tensor_name, std::int64_t size, RowOrder order) {
  QUIRE_TRY(const TensorSource* tensor, Find(tensor_name, std::array{size}));
  std::vector<float> in_file(static_cast<std::size_t>(size)), values(static_cast<std::size_t>(size));
  tensor->type->dequantize_row(tensor->data.data(), size, in_file.data());
  for (std::size_t i = 0; i < in_file.size(); ++i) {
    if (std::isfinite(in_file[i])) continue;
    return Fail(ErrorCode::kCorrupt, "tensor {}: element {} is {}", tensor->name, i, in_file[i]);
  }
  for (std::int64_t i = 0; i < size; ++i) {
    values[static_cast<std::size_t>(i)] = in_file[static_cast<std::size_t>(order.FileRow(i))];
  }
  used_.insert(tensor->name);
  num_parameters_ += size;
  packed_bytes_ += size * static_cast<std::int64_t>(sizeof(float));
  Report(static_cast<std::int64_t>(tensor->data.size()), tensor->name);
  return values;
}

Result<std::vector<float>> WeightLoader::LoadBias(const MatrixPart& part, BiasRule rule, bool quantized_layout) {
  const std::string name = part.name + ".bias";
  if (rule == BiasRule::kRequired || (rule == BiasRule::kIfPresent && Has(name))) {
    return LoadVector(name, part.rows, part.order);
  }
  std::vector<float> zeros(static_cast<std::size_t>(part.rows));
  // AutoGPTQ writes biases of zeros for matrices that have none.
  if (quantized_layout && Has(name)) {
    QUIRE_TRY(const std::vector<float> values, LoadVector(name, part.rows, part.order));
    if (values != zeros) {
      return Fail(ErrorCode::kUnsupported, "tensor {} is not zero, but the configuration says that {} has no bias",
                  name, source_.config().architecture_name);
    }
  }
  return zeros;
}

Result<nn::Linear> WeightLoader::LoadLinear(std::span<const MatrixPart> parts, std::int64_t columns, BiasRule rule,
                                            std::vector<nn::PackedWeights>* storage) {
  QUIRE_TRY(std::vector<Rows> matrices, FindRows(parts, columns));
  std::vector<std::int32_t> input_order = CommonInputOrder(matrices);
  QUIRE_TRY(Stack stack, PackStack(parts, matrices, columns, input_order, storage));

  std::vector<float> bias;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    QUIRE_TRY(const std::vector<float> values, LoadBias(parts[i], rule, matrices[i].matrix->info().quantized_layout));
    bias.insert(bias.end(), values.begin(), values.end());
  }
  if (std::ranges::all_of(bias, [](float value) { return value == 0; })) bias.clear();
  return nn::Linear(std::move(stack.segments), std::move(bias), std::move(input_order), std::move(stack.outliers));
}

void WeightLoader::Ignore(std::string_view name) {
  const auto matrix = source_.FindMatrix(name);
  if (!matrix || *matrix == nullptr) return;
  for (const TensorSource* tensor : (*matrix)->info().tensors) used_.insert(tensor->name);
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
