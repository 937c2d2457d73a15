// What opening a model costs: nothing is read or copied until a tensor is, and Release gives its pages back.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "weights/model_source.h"
#include "weights/test_files.h"

namespace quire::weights {
namespace {

constexpr std::uint64_t kTensorBytes = std::uint64_t{256} << 20;
constexpr std::int64_t kSlackBytes = std::int64_t{16} << 20;  // what the test itself and the libraries may take

// Resident memory of this process, mapped files included.
std::int64_t ResidentBytes() {
  std::int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// Sums the tensor, which brings every page of it into memory.
unsigned Touch(const TensorSource& tensor) {
  unsigned sum = 0;
  for (std::size_t at = 0; at < tensor.data.size(); at += 512) sum += std::to_integer<unsigned>(tensor.data[at]);
  return sum;
}

void CheckCosts(const std::filesystem::path& path) {
  const std::int64_t before = ResidentBytes();
  const auto source = ModelSource::Open(path);
  ASSERT_TRUE(source.has_value()) << source.error().message;
  EXPECT_LT(ResidentBytes() - before, kSlackBytes);
  for (const TensorSource& tensor : (*source)->tensors()) {
    EXPECT_EQ(Touch(tensor), 0u);
    EXPECT_GT(ResidentBytes() - before, static_cast<std::int64_t>(kTensorBytes / 2));
    (*source)->Release(tensor);
    EXPECT_LT(ResidentBytes() - before, kSlackBytes) << tensor.name;
  }
}

TEST(Memory, OpeningAFolderReadsNoTensor) {
  const TemporaryFolder folder;
  folder.Write("config.json", R"({"architectures":["LlamaForCausalLM"],"vocab_size":8,"hidden_size":4,
      "intermediate_size":8,"num_hidden_layers":1,"num_attention_heads":2,"max_position_embeddings":16})");
  const std::filesystem::path path =
      folder.Write("model.safetensors",
                   SafetensorsFile(fmt::format(R"({{"a":{{"dtype":"F32","shape":[{0}],"data_offsets":[0,{1}]}},)"
                                               R"("b":{{"dtype":"F32","shape":[{0}],"data_offsets":[{1},{2}]}}}})",
                                               kTensorBytes / 4, kTensorBytes, 2 * kTensorBytes),
                                   0));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + 2 * kTensorBytes);  // a hole: no disk space
  CheckCosts(folder.path());
}

TEST(Memory, OpeningAGgufFileReadsNoTensor) {
  const TemporaryFolder folder;
  GgufBytes bytes;
  bytes.String("general.architecture", "llama").Float("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  for (const auto& [key, value] :
       {std::pair{"block_count", 1u}, std::pair{"embedding_length", 1024u}, std::pair{"feed_forward_length", 64u},
        std::pair{"context_length", 64u}, std::pair{"attention.head_count", 4u}}) {
    bytes.Uint32(std::string("llama.") + key, value);
  }
  bytes.Tensor("token_embd.weight", {1024, kTensorBytes / 4096}, 0, 0);
  bytes.Tensor("output.weight", {1024, kTensorBytes / 4096}, 0, kTensorBytes);
  const std::filesystem::path path = folder.Write("m.gguf", bytes.File(0));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + 2 * kTensorBytes);
  CheckCosts(path);
}

}  // namespace
}  // namespace quire::weights
