// Files of packed weights: what was written comes back, and what was not written is refused.
#include "weights/packed_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "weights/test_files.h"

namespace quire::weights {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kFingerprint = 0x1234;
constexpr std::size_t kTrailerBytes = 64, kRecordBytes = 64;
const PackedShape kShape{kernels::WeightFormat::kF16, 16, 8};

PackedKey KeyOf(int i) {
  return MakePackedKey("matrix " + std::to_string(i), {});
}

std::vector<std::byte> Bytes(int i, std::size_t count) {
  return std::vector<std::byte>(count, static_cast<std::byte>(i + 1));
}

// Two matrices; the first does not fill its page.
fs::path WriteFile(const TemporaryFolder& folder, const std::string& name = "a.packed") {
  auto writer = *PackedWriter::Create(folder.path() / name, kFingerprint);
  for (int i = 0; i < 2; ++i) writer.Add(KeyOf(i), kShape, Bytes(i, 256));
  const Result<> committed = writer.Commit();
  if (!committed) ADD_FAILURE() << committed.error().message;
  return folder.path() / name;
}

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string OpenError(const fs::path& path, std::uint64_t fingerprint = kFingerprint) {
  const auto reader = PackedReader::Open(path, fingerprint);
  return reader ? "" : reader.error().message;
}

TEST(PackedFileTest, MatricesComeBackOnPages) {
  const TemporaryFolder folder;
  const auto reader = *PackedReader::Open(WriteFile(folder), kFingerprint);
  EXPECT_EQ(reader.num_matrices(), 2);
  for (int i = 0; i < 2; ++i) {
    const auto found = reader.Find(KeyOf(i), kShape);
    EXPECT_THAT(found, testing::ElementsAreArray(Bytes(i, 256)));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(found.data()) % 4096, 0u);
  }
  EXPECT_TRUE(reader.VerifyData().has_value());
  EXPECT_TRUE(reader.Find(KeyOf(2), kShape).empty());
  EXPECT_TRUE(reader.Find(KeyOf(0), {kShape.format, 16, 16}).empty());
  EXPECT_TRUE(reader.Find(KeyOf(0), {kernels::WeightFormat::kBf16, 16, 8}).empty());
}

TEST(PackedFileTest, KeysTellDescriptionsAndOrdersApart) {
  const std::vector<std::int32_t> order{1, 0};
  EXPECT_EQ(MakePackedKey("a", order), MakePackedKey("a", order));
  EXPECT_NE(MakePackedKey("a", order), MakePackedKey("a", {}));
  EXPECT_NE(MakePackedKey("a", order), MakePackedKey("b", order));
}

TEST(PackedFileTest, AnotherModelAndNoFileAreToldApart) {
  const TemporaryFolder folder;
  EXPECT_THAT(OpenError(WriteFile(folder), kFingerprint + 1), testing::HasSubstr("made of another model"));
  EXPECT_EQ(PackedReader::Open(folder.path() / "none", 0).error().code, ErrorCode::kNotFound);
  EXPECT_THAT(OpenError(folder.path()), testing::HasSubstr("not a regular file"));
}

TEST(PackedFileTest, EveryTruncationIsRefused) {
  const TemporaryFolder folder;
  const std::string whole = ReadAll(WriteFile(folder));
  for (std::size_t size = 0; size < whole.size(); size += size < whole.size() - 300 ? 97 : 1) {
    EXPECT_NE(OpenError(folder.Write("cut.packed", whole.substr(0, size))), "") << size;
  }
  EXPECT_NE(OpenError(folder.Write("cut.packed", whole.substr(1))), "");
  EXPECT_NE(OpenError(folder.Write("long.packed", whole + std::string(64, '\0'))), "");
}

TEST(PackedFileTest, EveryFlippedByteOfTheTableAndTheTrailerIsRefused) {
  const TemporaryFolder folder;
  const std::string whole = ReadAll(WriteFile(folder));
  for (std::size_t i = whole.size() - kTrailerBytes - 2 * kRecordBytes; i < whole.size(); ++i) {
    std::string flipped = whole;
    flipped[i] ^= 0x10;
    EXPECT_NE(OpenError(folder.Write("flipped.packed", flipped)), "") << i;
  }
}

TEST(PackedFileTest, OtherVersionsAreNamed) {
  const TemporaryFolder folder;
  std::string other = ReadAll(WriteFile(folder));
  const std::size_t trailer = other.size() - kTrailerBytes;
  other[trailer + 16] = 99;  // layout_version: magic [8], byte order [4], file version [4] come before it
  EXPECT_THAT(OpenError(folder.Write("other.packed", other)), testing::HasSubstr("is of version 2.99"));
  std::swap(other[trailer + 8], other[trailer + 11]);
  std::swap(other[trailer + 9], other[trailer + 10]);
  EXPECT_THAT(OpenError(folder.Write("other.packed", other)), testing::HasSubstr("byte order"));
}

TEST(PackedFileTest, DamagedDataShowsWhenAllOfItIsRead) {
  const TemporaryFolder folder;
  std::string damaged = ReadAll(WriteFile(folder));
  damaged[4096 + 100] ^= 1;
  const auto reader = *PackedReader::Open(folder.Write("damaged.packed", damaged), kFingerprint);
  EXPECT_THAT(reader.VerifyData().error().message, testing::HasSubstr("256 bytes at byte 4096 is damaged"));
}

// Notes lie among the matrices, and are read with a look at their checksum.
TEST(PackedFileTest, NotesComeBackOrAreRefused) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "notes.packed";
  auto writer = *PackedWriter::Create(path, kFingerprint);
  writer.Add(KeyOf(0), kShape, Bytes(0, 256));
  writer.AddNote(KeyOf(1), Bytes(1, 20));
  ASSERT_TRUE(writer.Commit().has_value());
  {
    const auto reader = *PackedReader::Open(path, kFingerprint);
    EXPECT_EQ(reader.num_matrices(), 1);
    EXPECT_THAT(*reader.FindNote(KeyOf(1)), testing::ElementsAreArray(Bytes(1, 20)));
    EXPECT_TRUE(reader.FindNote(KeyOf(0))->empty()) << "a matrix is no note";
    EXPECT_TRUE(reader.FindNote(KeyOf(2))->empty());
    EXPECT_TRUE(reader.Find(KeyOf(1), {kernels::WeightFormat::kF32, 0, 0}).empty()) << "a note is no matrix";
    EXPECT_TRUE(reader.VerifyData().has_value());
  }
  std::string damaged = ReadAll(path);
  damaged[4096 + 19] ^= 1;
  const auto reader = *PackedReader::Open(folder.Write("damaged.packed", damaged), kFingerprint);
  EXPECT_THAT(reader.FindNote(KeyOf(1)).error().message, testing::HasSubstr("20 bytes at byte 4096"));
  EXPECT_THAT(reader.VerifyData().error().message, testing::HasSubstr("the note of 20 bytes at byte 4096 is damaged"));
}

TEST(PackedFileTest, TheLastWriterWinsAndReadersKeepWhatTheyHave) {
  const TemporaryFolder folder;
  const fs::path path = WriteFile(folder);
  const auto before = *PackedReader::Open(path, kFingerprint);
  auto first = *PackedWriter::Create(path, 7);
  auto second = *PackedWriter::Create(path, 8);
  EXPECT_TRUE(second.Commit().has_value());
  EXPECT_TRUE(first.Commit().has_value());
  EXPECT_EQ(OpenError(path, 7), "");
  EXPECT_TRUE(before.VerifyData().has_value());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "temporary files were left";
}

TEST(PackedFileTest, AFileThatCannotBeWrittenIsAnErrorAndLeavesNothing) {
  const TemporaryFolder folder;
  EXPECT_FALSE(PackedWriter::Create(folder.path() / "no" / "a.packed", 0).has_value());
  {
    auto abandoned = *PackedWriter::Create(folder.path() / "a.packed", 0);
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

// ---- Which model ---------------------------------------------------------------------------------------------------

std::uint64_t FingerprintOf(const fs::path& path) {
  // Nothing of the files is parsed here: the tensors are those of a source without any.
  class Empty final : public ModelSource {
   public:
    const ModelConfig& config() const override { return config_; }
    const GenerationConfig& generation_config() const override { return generation_config_; }
    Result<TextAssets> ReadTextAssets() const override { return TextAssets{}; }
    bool is_gguf() const override { return true; }
    const TensorSource* Find(std::string_view) const override { return nullptr; }
    std::span<const TensorSource> tensors() const override { return {}; }
    std::int64_t total_bytes() const override { return 0; }
    void Release(const TensorSource&) const override {}

   private:
    ModelConfig config_;
    GenerationConfig generation_config_;
  };
  return *ModelFingerprint(Empty(), path, "none");
}

TEST(ModelFingerprintTest, FollowsTheFilesAndNotTheirPlace) {
  const TemporaryFolder folder;
  const fs::path file = folder.Write("model.gguf", "abc");
  const std::uint64_t first = FingerprintOf(file);
  fs::rename(file, folder.path() / "other.gguf");
  EXPECT_EQ(FingerprintOf(folder.path() / "other.gguf"), first);
  fs::last_write_time(folder.path() / "other.gguf", fs::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_NE(FingerprintOf(folder.path() / "other.gguf"), first);

  const std::uint64_t of_folder = FingerprintOf(folder.path());
  folder.Write("README.md", "does not matter");
  EXPECT_EQ(FingerprintOf(folder.path()), of_folder);
  folder.Write("config.json", "{}");
  EXPECT_NE(FingerprintOf(folder.path()), of_folder);
}

}  // namespace
}  // namespace quire::weights
