// The demo model with and without its packed weights on disk.
#include "engine/packed_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/mapped_file.h"
#include "engine/loader.h"
#include "models/planted_outliers.h"

namespace quire::engine {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

const fs::path kDemo = fs::path(QUIRE_SOURCE_DIR) / "models" / "demo";

class PackedCacheTest : public testing::Test {
 protected:
  PackedCacheTest() {
    std::string pattern = (fs::temp_directory_path() / "quire_packed_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~PackedCacheTest() override { fs::remove_all(folder_); }

  PackedCacheReport Load(const std::string& packed_cache) {
    auto loaded = LoadModel({.model = kDemo, .num_threads = 1, .packed_cache = packed_cache}, {});
    if (!loaded) {
      ADD_FAILURE() << loaded.error().message;
      return {};
    }
    return loaded->packed_cache;
  }
  // The only file of the folder.
  fs::path File() const { return fs::directory_iterator(folder_)->path(); }

  fs::path folder_;
};

TEST(PackedCachePlaceTest, SaysWhereAndWhetherToWrite) {
  EXPECT_TRUE(PackedCachePlace::Parse("").path.empty());
  EXPECT_TRUE(PackedCachePlace::Parse("off").path.empty());
  const auto read = PackedCachePlace::Parse("read:/a/b");
  EXPECT_EQ(read.path, "/a/b");
  EXPECT_FALSE(read.may_write);
  const auto folder = PackedCachePlace::Parse("/a/b");
  EXPECT_TRUE(folder.may_write);
  EXPECT_EQ(folder.FileFor("/models/m.gguf", 0x1F), "/a/b/m.gguf-000000000000001f.packed");
  EXPECT_EQ(folder.FileFor("/models/folder/", 1).parent_path(), "/a/b");
  EXPECT_EQ(PackedCachePlace::Parse("/a/b.packed").FileFor("/models/m.gguf", 1), "/a/b.packed");
}

TEST_F(PackedCacheTest, TheSecondLoadMapsWhatTheFirstWrote) {
  const std::string folder = folder_ / "new" / "folder";
  EXPECT_EQ(Load("off").note, "");
  EXPECT_EQ(Load("read:" + folder).note, "");
  EXPECT_FALSE(fs::exists(folder_ / "new"));
  const PackedCacheReport first = Load(folder);
  EXPECT_THAT(first.note, StartsWith("packed weights kept in " + folder));
  EXPECT_EQ(first.mapped_bytes, 0);
  for (const std::string& place : {folder, "read:" + folder}) {
    const PackedCacheReport second = Load(place);
    EXPECT_THAT(second.note, StartsWith("packed weights from " + folder));
    EXPECT_EQ(second.warning, "");
    EXPECT_GT(second.mapped_bytes, 0);
  }
}

// Which matrices lost how much is known again when nothing is quantised again.
TEST_F(PackedCacheTest, TheSecondLoadReportsTheErrorsOfTheFirst) {
  models::PlantedOutliers::Copy(kDemo, folder_ / "model");
  EngineOptions options{.model = folder_ / "model",
                        .num_threads = 2,
                        .quantization = weights::Quantization::kInt4,
                        .quantization_report = folder_ / "first.tsv",
                        .packed_cache = folder_ / "cache"};
  const auto first = LoadModel(options, {});
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_THAT(first->packed_cache.note, StartsWith("packed weights kept in"));
  options.quantization_report = folder_ / "second.tsv";
  const auto second = LoadModel(options, {});
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_THAT(second->packed_cache.note, StartsWith("packed weights from"));
  const std::string report = *ReadFile(folder_ / "first.tsv", 1 << 20);
  EXPECT_EQ(*ReadFile(folder_ / "second.tsv", 1 << 20), report);
  EXPECT_THAT(report, HasSubstr("model.layers.0.mlp.down_proj.weight\tQ4_K\t0.044294\t1\t0.087781"));
  EXPECT_EQ(DescribeQuantization(options, *second), DescribeQuantization(options, *first));
  EXPECT_THAT(DescribeQuantization(options, *second),
              HasSubstr("; 36 columns kept in BF16, without which it would be"));
  // Another quantization has a file of its own.
  options.quantization = weights::Quantization::kInt8;
  const auto other = LoadModel(options, {});
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_THAT(other->packed_cache.note, StartsWith("packed weights kept in"));
}

TEST_F(PackedCacheTest, AFileThatIsOfNoUseIsWrittenAgain) {
  Load(folder_);
  fs::resize_file(File(), fs::file_size(File()) - 1);
  const PackedCacheReport read = Load("read:" + folder_.string());
  EXPECT_THAT(read.warning, HasSubstr("cut short"));
  EXPECT_EQ(read.note, "");
  const PackedCacheReport written = Load(folder_);
  EXPECT_THAT(written.warning, HasSubstr("cut short"));
  EXPECT_THAT(written.note, StartsWith("packed weights kept in"));
  EXPECT_THAT(Load(folder_).note, StartsWith("packed weights from"));
}

TEST_F(PackedCacheTest, AFolderThatCannotBeWrittenCostsAWarning) {
  std::ofstream(folder_ / "file") << "not a folder";
  for (const std::string& place : {(folder_ / "file").string(), (folder_ / "file" / "below").string()}) {
    const PackedCacheReport report = Load(place);
    EXPECT_EQ(report.note, "");
    EXPECT_THAT(report.warning, HasSubstr("packed weights are not"));
  }
}

}  // namespace
}  // namespace quire::engine
