// Loading and running decoders that were never files.
#include "models/decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/allocation_test_util.h"
#include "kernels/kernels_test_util.h"
#include "models/fake_source.h"
#include "weights/test_files.h"

namespace quire::models {
namespace {

using weights::Architecture;

constexpr int kNumBlocks = 128;

auto All(std::string_view type) {
  return [type](TensorRole) { return type; };
}

// As llama.cpp's Q4_K_M mixes them: one projection of the fused QKV has another type than the others.
std::string_view MixedTypes(TensorRole role) {
  if (role == TensorRole::kValue || role == TensorRole::kDown || role == TensorRole::kLmHead) return "Q6_K";
  return role == TensorRole::kOutput ? "Q8_0" : "Q4_K";
}

// A type of its own for every projection.
std::string_view AllSortsOfTypes(TensorRole role) {
  constexpr std::string_view kTypes[] = {"Q2_K", "Q3_K", "Q5_K", "IQ4_NL", "MXFP4", "Q4_1", "Q5_1", "Q5_0", "Q4_0"};
  return kTypes[static_cast<std::size_t>(role) % std::size(kTypes)];
}

weights::ModelConfig MixedConfig() {
  weights::ModelConfig config = SmallConfig(Architecture::kLlama);
  config.hidden_size = 256;
  config.intermediate_size = 512;
  config.head_dim = config.rotary_dim = 64;
  return config;
}

std::unique_ptr<Decoder> LoadOrDie(const FakeSource& source, ThreadPool* pool, const LoadOptions& options = {}) {
  auto model = Decoder::Load(source, options, pool);
  if (!model) ADD_FAILURE() << model.error().message;
  return *std::move(model);
}

std::string LoadError(const FakeSource& source) {
  ThreadPool pool(1);
  const auto model = Decoder::Load(source, {}, &pool);
  return model ? "" : model.error().message;
}

// A sequence as the scheduler would keep it.
struct TestSequence {
  std::vector<TokenId> tokens;
  std::vector<BlockId> blocks;
  int computed = 0;
};

class Bench {
 public:
  Bench(const Decoder* model, const kernels::KernelTable* kernels, int num_threads, int max_tokens = 256)
      : model_(model), pool_(num_threads) {
    kv_ = *nn::KvPool::Create(model->kv_layout(), kNumBlocks);
    workspace_ = *nn::Workspace::Create(model->WorkspaceBytes(*kernels, num_threads, max_tokens, max_tokens));
    context_ = {&pool_, kernels, &workspace_};
  }

  TestSequence Begin(std::vector<TokenId> tokens) {
    TestSequence sequence{.tokens = std::move(tokens), .blocks = {}};
    // Every other block: neighbours in a sequence are not neighbours in the pool.
    for (std::size_t i = 0; i * 16 < sequence.tokens.size(); ++i) {
      sequence.blocks.push_back(BlockId(next_block_));
      next_block_ = (next_block_ + 7) % kNumBlocks;  // 7 and 128 have no common divisor: every block once
    }
    return sequence;
  }

  // The next counts[i] tokens of sequence i, all in one batch; logits of every row.
  std::vector<float> Step(std::vector<TestSequence*> sequences, std::vector<int> counts) {
    std::vector<TokenId> tokens;
    std::vector<SequenceSlice> slices;
    std::vector<std::int32_t> rows;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      TestSequence& s = *sequences[i];
      slices.push_back({static_cast<std::int32_t>(tokens.size()), counts[i], s.computed, s.blocks});
      for (int t = 0; t < counts[i]; ++t) {
        rows.push_back(static_cast<std::int32_t>(rows.size()));
        tokens.push_back(s.tokens[static_cast<std::size_t>(s.computed + t)]);
      }
      s.computed += counts[i];
    }
    std::vector<float> logits(tokens.size() * static_cast<std::size_t>(model_->config().vocab_size));
    const std::int64_t before = num_allocations.load();
    model_->Forward(context_, {tokens, slices, rows}, &kv_, logits.data());
    allocated_ += num_allocations.load() - before;
    return logits;
  }

  // All logits of one sequence, computed in chunks.
  std::vector<float> Alone(const std::vector<TokenId>& tokens, int chunk) {
    next_block_ = 0;
    TestSequence sequence = Begin(tokens);
    std::vector<float> all;
    const int count = static_cast<int>(tokens.size());
    while (sequence.computed < count) {
      const std::vector<float> some = Step({&sequence}, {std::min(chunk, count - sequence.computed)});
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

  std::int64_t allocated() const { return allocated_; }

 private:
  const Decoder* model_;
  ThreadPool pool_;
  nn::KvPool kv_;
  nn::Workspace workspace_;
  nn::ExecContext context_;
  int next_block_ = 0;
  std::int64_t allocated_ = 0;
};

std::vector<TokenId> RandomTokens(int count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(TokenId(static_cast<std::int32_t>(random() % 70)));
  return tokens;
}

// Bit patterns, so that NaN equals NaN and 0 differs from −0.
std::vector<std::uint32_t> Bits(std::span<const float> values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

// ---- Loading -------------------------------------------------------------------------------------------------------

TEST(DecoderLoadTest, MissingTensorsAreNamed) {
  for (const bool is_gguf : {false, true}) {
    for (const std::string& name : {TensorName(is_gguf, TensorRole::kDown, TensorPart::kWeight, 1),
                                    TensorName(is_gguf, TensorRole::kEmbedTokens, TensorPart::kWeight),
                                    TensorName(is_gguf, TensorRole::kKeyNorm, TensorPart::kWeight, 0),
                                    TensorName(is_gguf, TensorRole::kFinalNorm, TensorPart::kWeight)}) {
      FakeSource source(SmallConfig(Architecture::kQwen3), is_gguf, All("F32"));
      EXPECT_EQ(LoadError(source), "");
      source.Drop(name);
      EXPECT_THAT(LoadError(source), testing::HasSubstr(name + " is missing"));
    }
  }
  FakeSource biased(SmallConfig(Architecture::kQwen2), false, All("BF16"));
  biased.Drop("model.layers.0.self_attn.v_proj.bias");
  EXPECT_THAT(LoadError(biased), testing::HasSubstr("model.layers.0.self_attn.v_proj.bias is missing"));
}

TEST(DecoderLoadTest, UnexpectedTensorsAreNamed) {
  FakeSource source(SmallConfig(Architecture::kLlama), false, All("BF16"));
  source.Add("model.layers.0.self_attn.rotary_emb.inv_freq", {8}, "F32");  // harmless
  EXPECT_EQ(LoadError(source), "");
  source.Add("model.layers.0.self_attn.q_proj.bias", {64}, "F32");  // the configuration says nothing of it
  EXPECT_THAT(LoadError(source), testing::HasSubstr("the tensor model.layers.0.self_attn.q_proj.bias"));
  for (int i = 10; i < 30; ++i) source.Add("extra." + std::to_string(i), {4}, "F32");
  EXPECT_THAT(LoadError(source),
              testing::AllOf(testing::HasSubstr("extra.10, extra.11"), testing::HasSubstr("13 more")));
}

TEST(DecoderLoadTest, MisshapenTensorsAreNamedWithBothShapes) {
  FakeSource source(SmallConfig(Architecture::kLlama), false, All("F32"));
  source.Drop("model.layers.1.mlp.up_proj.weight");
  source.Add("model.layers.1.mlp.up_proj.weight", {96, 32}, "F32");
  EXPECT_THAT(LoadError(source), testing::AllOf(testing::HasSubstr("model.layers.1.mlp.up_proj.weight"),
                                                testing::HasSubstr("[96, 32]"), testing::HasSubstr("[96, 64]")));
}

// At load, with the name and the row; never at a step.
TEST(DecoderLoadTest, RowsThatAreNotFiniteAreNamed) {
  const std::string name = "blk.1.ffn_down.weight";
  for (const auto& [type, place] :
       {std::pair{"F32", 4}, std::pair{"BF16", 8}, std::pair{"Q4_0", 18}, std::pair{"Q4_1", 2}, std::pair{"Q5_0", 0},
        std::pair{"Q5_1", 2}, std::pair{"Q2_K", 82}, std::pair{"Q3_K", 108}, std::pair{"Q4_K", 2},
        std::pair{"Q6_K", 208}, std::pair{"IQ4_NL", 0}, std::pair{"MXFP4", 17}}) {
    FakeSource source(MixedConfig(), true, All(type));
    EXPECT_EQ(LoadError(source), "") << type;
    source.Spoil(name, 3, static_cast<std::size_t>(place), std::vector(4, std::byte{0}));
    EXPECT_EQ(LoadError(source), "") << type << ": a scale of zero is allowed";
    source.Spoil(name, 3, static_cast<std::size_t>(place), std::vector(4, std::byte{0xFF}));
    EXPECT_THAT(LoadError(source), testing::StartsWith("tensor " + name + ": row 3 holds a " + type)) << type;
  }
  FakeSource source(MixedConfig(), true, All("F32"));
  source.Spoil("output_norm.weight", 0, 8, std::vector(4, std::byte{0xFF}));
  EXPECT_THAT(LoadError(source), testing::StartsWith("tensor output_norm.weight: element 2 is "));
}

TEST(DecoderLoadTest, HeadsTiedOrNot) {
  weights::ModelConfig config = SmallConfig(Architecture::kLlama);
  config.tie_word_embeddings = true;
  FakeSource tied(config, false, All("BF16"));
  ThreadPool pool(1);
  const std::int64_t tied_bytes = LoadOrDie(tied, &pool)->weight_bytes();
  tied.Add("lm_head.weight", {70, 64}, "BF16");  // a copy under the head's name is nothing unexpected
  EXPECT_EQ(LoadError(tied), "");
  FakeSource untied(SmallConfig(Architecture::kLlama), false, All("BF16"));
  EXPECT_EQ(LoadOrDie(untied, &pool)->weight_bytes(), tied_bytes + 80 * 64 * 2);  // 70 rows are five panels
  untied.Drop("lm_head.weight");
  EXPECT_THAT(LoadError(untied), testing::HasSubstr("lm_head.weight is missing"));
}

TEST(DecoderLoadTest, GgufBiasesNeedNoFlag) {
  FakeSource source(SmallConfig(Architecture::kLlama), true, All("F32"));
  source.Add("blk.0.attn_q.bias", {64}, "F32");
  EXPECT_EQ(LoadError(source), "");
}

TEST(DecoderLoadTest, RotaryRowsOfGgufAreReordered) {
  const RowOrder order{.head_dim = 8, .rotary_dim = 6};
  std::vector<std::int64_t> rows;
  for (int row = 0; row < 16; ++row) rows.push_back(order.FileRow(row));
  EXPECT_THAT(rows, testing::ElementsAre(0, 2, 4, 1, 3, 5, 6, 7, 8, 10, 12, 9, 11, 13, 14, 15));
}

TEST(DecoderLoadTest, SaysWhatItHolds) {
  ThreadPool pool(2);
  FakeSource source(MixedConfig(), true, MixedTypes);
  std::int64_t last = 0, total = 0;
  const auto model = Decoder::Load(source,
                                   {.progress =
                                        [&](std::int64_t done, std::int64_t all, std::string_view tensor) {
                                          EXPECT_GT(done, last);
                                          EXPECT_FALSE(tensor.empty());
                                          last = done;
                                          total = all;
                                        }},
                                   &pool);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, source.total_bytes());
  EXPECT_THAT((*model)->weight_formats(), testing::AllOf(testing::HasSubstr("Q4_K"), testing::HasSubstr("Q6_K"),
                                                         testing::HasSubstr("Q8_0"), testing::StartsWith("Q4_K + ")));
}

// Weights from a file are those that packing makes, to the bit, and nothing is packed again.
TEST(DecoderLoadTest, PackedFilesGiveTheSameBits) {
  const weights::TemporaryFolder folder;
  const auto path = folder.path() / "a.packed";
  const kernels::KernelTable* kernels = kernels::AvailableKernels().back();
  const std::vector<TokenId> tokens = RandomTokens(20, 3);
  ThreadPool pool(2);
  for (const bool is_gguf : {false, true}) {
    FakeSource source(MixedConfig(), is_gguf, MixedTypes);
    auto writer = *weights::PackedWriter::Create(path, 1);
    const auto packed = Decoder::Load(source, {.packing = &writer}, &pool);
    ASSERT_TRUE(packed) << packed.error().message;
    ASSERT_TRUE(writer.Commit().has_value());
    // A scale that packing refuses: whoever does not pack does not see it.
    source.Spoil(TensorName(is_gguf, TensorRole::kOutput, TensorPart::kWeight, 1), 3, 0,
                 std::vector(2, std::byte{0xFF}));
    EXPECT_THAT(LoadError(source), testing::HasSubstr("not finite"));
    std::unique_ptr<Decoder> mapped;
    {
      const auto reader = *weights::PackedReader::Open(path, 1);
      auto model = Decoder::Load(source, {.packed = &reader}, &pool);
      ASSERT_TRUE(model) << model.error().message;
      mapped = *std::move(model);
    }
    EXPECT_EQ(mapped->weight_bytes(), (*packed)->weight_bytes());
    EXPECT_EQ(mapped->weight_formats(), (*packed)->weight_formats());
    EXPECT_EQ(Bits(Bench(mapped.get(), kernels, 2).Alone(tokens, 7)),
              Bits(Bench(packed->get(), kernels, 2).Alone(tokens, 7)));
  }
}

// A file that holds other matrices under the model's fingerprint is of no use, and does no harm.
TEST(DecoderLoadTest, MatricesThatAPackedFileLacksArePacked) {
  const weights::TemporaryFolder folder;
  const auto path = folder.path() / "a.packed";
  ThreadPool pool(1);
  auto writer = *weights::PackedWriter::Create(path, 1);
  ASSERT_TRUE(
      Decoder::Load(FakeSource(SmallConfig(Architecture::kLlama), false, All("F32")), {.packing = &writer}, &pool));
  ASSERT_TRUE(writer.Commit().has_value());
  const auto reader = *weights::PackedReader::Open(path, 1);
  const FakeSource other(SmallConfig(Architecture::kLlama), false, All("BF16"));
  const auto model = Decoder::Load(other, {.packed = &reader}, &pool);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_EQ((*model)->weight_formats(), "BF16");
}

std::int64_t RssAnonBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::atoll(line.c_str() + 8) * 1024;
  }
  return 0;
}

// Peak memory while packing stays below 1.3 × the packed weights.
TEST(DecoderLoadSlowTest, PeakMemoryStaysNearThePackedSize) {
  weights::ModelConfig config = SmallConfig(Architecture::kLlama);
  config.vocab_size = 16000;
  config.hidden_size = 1024;
  config.intermediate_size = 4096;
  config.head_dim = config.rotary_dim = 256;
  FakeSource source(config, false, All("BF16"));
  ThreadPool pool(2);
  const std::int64_t before = RssAnonBytes();
  std::int64_t peak = 0;
  const auto model =
      Decoder::Load(source,
                    {.progress = [&](std::int64_t, std::int64_t,
                                     std::string_view) { peak = std::max(peak, RssAnonBytes() - before); }},
                    &pool);
  ASSERT_TRUE(model);
  EXPECT_GT((*model)->weight_bytes(), 100 << 20);
  EXPECT_LT(static_cast<double>(peak), 1.3 * static_cast<double>((*model)->weight_bytes()));
  EXPECT_GT(static_cast<double>(peak), 0.9 * static_cast<double>((*model)->weight_bytes()));  // it was measured
}

// ---- Running -------------------------------------------------------------------------------------------------------

struct RunCase {
  std::string name;
  weights::ModelConfig config;
  std::string_view (*type_of)(TensorRole);
  weights::Quantization quantization = weights::Quantization::kNone;  // if any, columns are planted that it must keep
};

weights::ModelConfig WindowConfig() {
  weights::ModelConfig config = SmallConfig(Architecture::kMistral);
  config.sliding_window = 4;
  config.layer_uses_sliding_window = {true, false};
  return config;
}

weights::ModelConfig TiedConfig() {
  weights::ModelConfig config = MixedConfig();
  config.tie_word_embeddings = true;
  return config;
}

// In the embedding, which is the head too, and in every Linear of one layer.
void PlantOutlierColumns(FakeSource* source) {
  const auto plant = [&](TensorRole role, std::int64_t column) {
    source->ScaleColumn(TensorName(source->is_gguf(), role, TensorPart::kWeight, 0), column, 20);
  };
  plant(TensorRole::kEmbedTokens, 5);
  plant(TensorRole::kKey, 9);
  plant(TensorRole::kValue, 200);
  plant(TensorRole::kOutput, 255);
  plant(TensorRole::kUp, 0);
  plant(TensorRole::kDown, 500);
}

// What each matrix of the planted model keeps.
std::vector<std::int64_t> NumOutlierColumns(std::span<const weights::MatrixError> errors) {
  std::vector<std::int64_t> numbers;
  for (const weights::MatrixError& matrix : errors) numbers.push_back(matrix.num_outlier_columns);
  return numbers;
}

std::vector<RunCase> RunCases() {
  const auto floats = [](TensorRole) { return std::string_view("F32"); };
  return {{"bf16", SmallConfig(Architecture::kQwen3), [](TensorRole) { return std::string_view("BF16"); }},
          {"f16", SmallConfig(Architecture::kQwen2), [](TensorRole) { return std::string_view("F16"); }},
          {"f32 window", WindowConfig(), [](TensorRole) { return std::string_view("F32"); }},
          {"mixed", MixedConfig(), MixedTypes},
          {"all sorts", MixedConfig(), AllSortsOfTypes},
          {"int4 with outliers", TiedConfig(), floats, weights::Quantization::kInt4},
          {"int8 with outliers", TiedConfig(), floats, weights::Quantization::kInt8}};
}

class DecoderRunTest : public kernels::TierTest {};

INSTANTIATE_TEST_SUITE_P(Tiers, DecoderRunTest, kernels::EveryTier(), kernels::TierName);

// DET-01, QNT-08: a row is a function of its sequence, whatever shares the batch, the chunk or the threads.
TEST_P(DecoderRunTest, RowsDoNotDependOnTheBatch) {
  ThreadPool pool(2);
  for (const RunCase& run : RunCases()) {
    FakeSource source(run.config, true, run.type_of);
    std::vector<weights::MatrixError> errors;
    if (run.quantization != weights::Quantization::kNone) PlantOutlierColumns(&source);
    const auto model = LoadOrDie(source, &pool, {.quantization = run.quantization, .quantization_errors = &errors});
    if (run.quantization != weights::Quantization::kNone) {
      EXPECT_THAT(NumOutlierColumns(errors), testing::ElementsAre(1, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0));
    }
    const std::vector<TokenId> a = RandomTokens(50, 1), b = RandomTokens(37, 2), c = RandomTokens(20, 3);
    Bench one(model.get(), GetParam(), 1);
    const std::vector<float> alone_a = one.Alone(a, 50), alone_b = one.Alone(b, 37), alone_c = one.Alone(c, 20);

    Bench two(model.get(), GetParam(), 2);
    TestSequence sa = two.Begin(a), sb = two.Begin(b), sc = two.Begin(c);
    std::vector<float> got_a, got_b, got_c;
    const auto vocab = static_cast<std::ptrdiff_t>(run.config.vocab_size);
    for (const auto& [na, nb, nc] : std::vector<std::array<int, 3>>{{30, 1, 0}, {1, 17, 3}, {16, 1, 1}, {3, 18, 16}}) {
      std::vector<TestSequence*> sequences{&sa, &sb};
      std::vector<int> counts{na, nb};
      if (nc > 0) {
        sequences.push_back(&sc);
        counts.push_back(nc);
      }
      const std::vector<float> logits = two.Step(sequences, counts);
      const auto split = [&](std::vector<float>* out, int begin, int count) {
        out->insert(out->end(), logits.begin() + begin * vocab, logits.begin() + (begin + count) * vocab);
      };
      split(&got_a, 0, na);
      split(&got_b, na, nb);
      split(&got_c, na + nb, nc);
    }
    EXPECT_EQ(Bits(got_a), Bits(alone_a)) << run.name;
    EXPECT_EQ(Bits(got_b), Bits(alone_b)) << run.name;
    EXPECT_EQ(Bits(got_c), Bits(alone_c)) << run.name;
    EXPECT_EQ(one.allocated() + two.allocated(), 0) << run.name << ": a step allocates nothing";
  }
}

// SWA-01, SWA-02: with a window of 4, prefill and decode see the same keys, also when the length crosses the window.
TEST_P(DecoderRunTest, WindowsAreTheSameInPrefillAndDecode) {
  ThreadPool pool(1);
  FakeSource source(WindowConfig(), false, All("F32"));
  const auto model = LoadOrDie(source, &pool);
  Bench bench(model.get(), GetParam(), 1);
  const std::vector<TokenId> tokens = RandomTokens(24, 5);
  const std::vector<float> whole = bench.Alone(tokens, 24);
  EXPECT_EQ(Bits(bench.Alone(tokens, 1)), Bits(whole));
  for (const int prefill : {3, 4, 5, 8}) EXPECT_EQ(Bits(bench.Alone(tokens, prefill)), Bits(whole)) << prefill;
}

// … and the window is exactly that wide: the first layer's keys reach a later token through 3 predecessors per layer.
TEST_P(DecoderRunTest, WindowsEndWhereTheyShould) {
  ThreadPool pool(1);
  weights::ModelConfig config = WindowConfig();
  config.layer_uses_sliding_window = {true, true};
  FakeSource source(config, false, All("F32"));
  const auto model = LoadOrDie(source, &pool);
  Bench bench(model.get(), GetParam(), 1);
  std::vector<TokenId> tokens = RandomTokens(24, 6), changed = tokens;
  changed[5] = TokenId((tokens[5].value() + 1) % 70);
  const std::vector<float> a = bench.Alone(tokens, 24), b = bench.Alone(changed, 24);
  const auto row = [&](const std::vector<float>& logits, int index) {
    return Bits(std::span(logits).subspan(static_cast<std::size_t>(index) * 70, 70));
  };
  for (int i = 0; i < 24; ++i) {
    // Two layers of window 4: position i depends on i − 6 … i.
    if (i < 5 || i > 11) {
      EXPECT_EQ(row(a, i), row(b, i)) << i;
    } else {
      EXPECT_NE(row(a, i), row(b, i)) << i;
    }
  }
}

// The largest step fits exactly: every token its own sequence, all logits.
TEST_P(DecoderRunTest, TheWorkspaceIsEnoughForTheLargestStep) {
  ThreadPool pool(2);
  for (const RunCase& run : RunCases()) {
    FakeSource source(run.config, false, run.type_of);
    const auto model = LoadOrDie(source, &pool);
    constexpr int kTokens = 90;
    Bench bench(model.get(), GetParam(), 2, kTokens);
    std::vector<TestSequence> sequences;
    for (int i = 0; i < kTokens; ++i) sequences.push_back(bench.Begin({TokenId(i % 70)}));
    std::vector<TestSequence*> pointers;
    for (TestSequence& sequence : sequences) pointers.push_back(&sequence);
    const std::vector<float> all = bench.Step(pointers, std::vector<int>(kTokens, 1));
    const auto vocab = static_cast<std::size_t>(run.config.vocab_size);
    // Equal tokens at equal positions have equal logits.
    EXPECT_EQ(Bits(std::span(all).first(vocab)), Bits(std::span(all).subspan(70 * vocab, vocab))) << run.name;
    TestSequence whole = bench.Begin(RandomTokens(kTokens, 9));
    bench.Step({&whole}, {kTokens});
  }
}

// The fused projections of mixed types compute what the dequantised weights say, up to the 8-bit activations.
TEST_P(DecoderRunTest, MixedTypesAgreeWithTheirFloats) {
  ThreadPool pool(2);
  for (const auto types : {MixedTypes, AllSortsOfTypes}) {
    FakeSource source(MixedConfig(), true, types);
    FakeSource floats(MixedConfig(), true, types);
    for (const weights::TensorSource& tensor : source.tensors()) {
      if (tensor.shape.size() == 1) continue;
      floats.ReplaceByFloats(tensor.name);
    }
    const auto model = LoadOrDie(source, &pool), exact = LoadOrDie(floats, &pool, {.kv_dtype = kernels::KvDtype::kF32});
    const std::vector<TokenId> tokens = RandomTokens(40, 8);
    const std::vector<float> got = Bench(model.get(), GetParam(), 2).Alone(tokens, 40);
    const std::vector<float> expected = Bench(exact.get(), &kernels::ReferenceKernels(), 2).Alone(tokens, 40);
    double difference = 0, size = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      difference += std::abs(double{got[i]} - double{expected[i]});
      size += std::abs(double{expected[i]});
    }
    // Measured: 0.046, since every product adds 0.7 % of noise and random attention sharpens it. A row out of place or
    // a wrong scale gives about 1.
    EXPECT_LT(difference / size, 0.1);
  }
}

}  // namespace
}  // namespace quire::models
