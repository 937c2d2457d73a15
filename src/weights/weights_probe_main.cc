// A thin program around this module for tests/weights, which compare it with independent implementations.
//
//   weights_probe quantize TYPE COLUMNS       floats on stdin → rows of TYPE on stdout
//   weights_probe dequantize TYPE COLUMNS     rows of TYPE on stdin → floats on stdout
//   weights_probe rope CONFIG.json LENGTH     → the attention scaling and the inverse frequencies, one a line
//   weights_probe list MODEL                  → name, type and dimensions of every tensor, one a line
//   weights_probe floats MODEL TENSOR         → its elements as floats
//   weights_probe matrix MODEL STEM           → the matrix as floats, then as the panels hold it
//   weights_probe convert MODEL OUT.gguf TYPE
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "weights/model_config.h"
#include "weights/model_source.h"
#include "weights/quantize.h"
#include "weights/rope.h"
#include "weights/tensor_source.h"

namespace quire::weights {
namespace {

std::vector<std::byte> ReadStdin() {
  std::vector<std::byte> bytes;
  std::byte buffer[65536];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, stdin)) {
    bytes.insert(bytes.end(), buffer, buffer + got);
  }
  return bytes;
}

Result<> Convert(bool quantize, std::string_view type_name, std::int64_t columns) {
  const TypeTraits* type = FindTypeByName(type_name);
  if (!type || columns <= 0) return Fail(ErrorCode::kInvalidArgument, "unknown type, or no columns");
  QUIRE_TRY(const std::size_t packed_bytes, RowBytes(*type, columns, "stdin"));
  const std::size_t float_bytes = static_cast<std::size_t>(columns) * sizeof(float);
  const std::size_t in_bytes = quantize ? float_bytes : packed_bytes;
  const std::vector<std::byte> in = ReadStdin();
  std::vector<std::byte> packed(packed_bytes);
  std::vector<float> floats(static_cast<std::size_t>(columns));
  for (std::size_t at = 0; at + in_bytes <= in.size(); at += in_bytes) {
    if (quantize) {
      std::memcpy(floats.data(), in.data() + at, float_bytes);
      type->quantize_row(floats.data(), columns, packed.data());
      std::fwrite(packed.data(), 1, packed_bytes, stdout);
    } else {
      type->dequantize_row(in.data() + at, columns, floats.data());
      std::fwrite(floats.data(), 1, float_bytes, stdout);
    }
  }
  return {};
}

Result<> PrintRope(const std::string& path, std::int64_t length) {
  QUIRE_TRY(const std::string text, ReadFile(path, std::size_t{1} << 20));
  QUIRE_TRY(const json::value root, ParseJson(text, path));
  QUIRE_TRY(const ModelConfig config, ParseConfigJson(root, path));
  fmt::print("{:.17g}\n", AttentionScaling(config.rope));
  for (const double frequency : InverseFrequencies(config.rope, config.rotary_dim, length)) {
    fmt::print("{:.17g}\n", frequency);
  }
  return {};
}

Result<> List(const std::string& path) {
  QUIRE_TRY(const auto source, ModelSource::Open(path));
  for (const TensorSource& tensor : source->tensors()) {
    fmt::print("{} {}", tensor.name, tensor.type->name);
    for (const std::int64_t dimension : tensor.shape) fmt::print(" {}", dimension);
    fmt::print("\n");
  }
  return {};
}

Result<> WriteFloats(const std::string& path, std::string_view name) {
  QUIRE_TRY(const auto source, ModelSource::Open(path));
  const TensorSource* tensor = source->Find(name);
  if (!tensor) return Fail(ErrorCode::kNotFound, "{} has no tensor {}", path, name);
  QUIRE_TRY(const std::size_t row_bytes, RowBytes(*tensor->type, tensor->columns(), name));
  std::vector<float> row(static_cast<std::size_t>(tensor->columns()));
  for (std::int64_t r = 0; r < tensor->rows(); ++r) {
    tensor->type->dequantize_row(tensor->data.data() + static_cast<std::size_t>(r) * row_bytes, tensor->columns(),
                                 row.data());
    std::fwrite(row.data(), sizeof(float), row.size(), stdout);
  }
  return {};
}

// What the kernels would see of one row, in the order of the inputs.
Result<> UnpackedRow(const MatrixSource& matrix, std::int64_t row, std::vector<float>* out) {
  const MatrixInfo& info = matrix.info();
  RowBuffer buffer;
  QUIRE_TRY_VOID(matrix.Decode(row, &buffer));
  std::vector<std::byte> panel(kernels::PanelBytes(info.packed, info.columns));
  const kernels::WeightRow view = buffer.View();
  kernels::PackPanel(info.packed, info.columns, std::span(&view, 1), panel.data());
  std::vector<float> values(static_cast<std::size_t>(info.columns));
  kernels::UnpackRow({.format = info.packed, .n = 1, .k = info.columns, .data = panel.data()}, 0, values.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    (*out)[info.input_order.empty() ? i : static_cast<std::size_t>(info.input_order[i])] = values[i];
  }
  return {};
}

Result<> WriteMatrix(const std::string& path, std::string_view stem) {
  QUIRE_TRY(const auto source, ModelSource::Open(path));
  QUIRE_TRY(const auto matrix, source->FindMatrix(stem));
  if (matrix == nullptr) return Fail(ErrorCode::kNotFound, "{} has no matrix {}", path, stem);
  std::vector<float> floats(static_cast<std::size_t>(matrix->info().columns));
  for (std::int64_t row = 0; row < matrix->info().rows; ++row) {
    QUIRE_TRY_VOID(matrix->Dequantize(row, floats.data()));
    std::fwrite(floats.data(), sizeof(float), floats.size(), stdout);
  }
  for (std::int64_t row = 0; row < matrix->info().rows; ++row) {
    QUIRE_TRY_VOID(UnpackedRow(*matrix, row, &floats));
    std::fwrite(floats.data(), sizeof(float), floats.size(), stdout);
  }
  fmt::print(stderr, "{} {}\n", kernels::Traits(matrix->info().packed).name,
             matrix->info().input_order.empty() ? "in order" : "reordered");
  return {};
}

Result<> ConvertModel(const std::string& source, const std::string& output, std::string_view type) {
  ThreadPool pool(2);
  QUIRE_TRY(const QuantizeSummary summary, QuantizeModel(source, output, {.type = std::string(type)}, &pool));
  for (const std::string& note : summary.notes) fmt::print("{}\n", note);
  return {};
}

Result<> Run(std::span<char*> arguments) {
  if (arguments.size() == 3 && std::string_view(arguments[1]) == "list") return List(arguments[2]);
  if (arguments.size() == 4 && std::string_view(arguments[1]) == "floats")
    return WriteFloats(arguments[2], arguments[3]);
  if (arguments.size() == 4 && std::string_view(arguments[1]) == "matrix")
    return WriteMatrix(arguments[2], arguments[3]);
  if (arguments.size() == 5 && std::string_view(arguments[1]) == "convert") {
    return ConvertModel(arguments[2], arguments[3], arguments[4]);
  }
  if (arguments.size() == 4) {
    const std::string_view command = arguments[1];
    const std::int64_t number = std::strtoll(arguments[3], nullptr, 10);
    if (command == "quantize" || command == "dequantize") return Convert(command == "quantize", arguments[2], number);
    if (command == "rope") return PrintRope(arguments[2], number);
  }
  return Fail(ErrorCode::kInvalidArgument, "unknown command, or the wrong number of arguments");
}

}  // namespace
}  // namespace quire::weights

int main(int argc, char** argv) {
  const auto result = quire::weights::Run(std::span(argv, static_cast<std::size_t>(argc)));
  if (result.has_value()) return 0;
  fmt::print(stderr, "{}\n", result.error().message);
  return 1;
}
