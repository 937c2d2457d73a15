// Which models the flags of `quire serve` name.
#include "cli/served_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace quire::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ServedModelsTest : public ::testing::Test {
 protected:
  ServedModelsTest() : folder_(fs::temp_directory_path() / ("quire_models_" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~ServedModelsTest() override { fs::remove_all(folder_); }

  void Touch(const std::string& file) {
    fs::create_directories((folder_ / file).parent_path());
    std::ofstream(folder_ / file) << "x";
  }
  static std::vector<std::string> Names(const std::vector<NamedModel>& models) {
    std::vector<std::string> names;
    for (const NamedModel& model : models) names.push_back(model.name);
    return names;
  }

  const fs::path folder_;
};

TEST_F(ServedModelsTest, AModelIsAPathOrANamedOne) {
  EXPECT_EQ(ParseNamedModel("models/demo")->name, "");
  EXPECT_EQ(ParseNamedModel("models/demo")->path, "models/demo");
  EXPECT_EQ(ParseNamedModel("org/a=x=y.gguf")->name, "org/a");
  EXPECT_EQ(ParseNamedModel("org/a=x=y.gguf")->path, "x=y.gguf");
  EXPECT_FALSE(ParseNamedModel("=x").has_value());
  EXPECT_FALSE(ParseNamedModel("a=").has_value());
  Touch("q=4.gguf");
  const std::string path = (folder_ / "q=4.gguf").string();
  EXPECT_EQ(ParseNamedModel(path)->path, path);
  EXPECT_EQ(ParseNamedModel("a=" + path)->path, path);
}

TEST_F(ServedModelsTest, AFolderHoldsFoldersAndFiles) {
  Touch("small.gguf");
  Touch("folder/config.json");
  Touch("file-in-folder/model.gguf");
  Touch("empty/notes.txt");
  Touch(".hidden/config.json");
  Touch("readme.txt");
  const auto models = ListModels(folder_);
  ASSERT_TRUE(models.has_value());
  EXPECT_THAT(Names(*models), ElementsAre("file-in-folder", "folder", "small"));
  EXPECT_FALSE(ListModels(folder_ / "none").has_value());
}

TEST_F(ServedModelsTest, NamedOnesGoFirst) {
  Touch("a.gguf");
  Touch("b/config.json");
  const auto models = CollectModels({{.name = "b", .path = "elsewhere"}, {.name = {}, .path = "x/c.gguf"}}, folder_);
  ASSERT_TRUE(models.has_value()) << models.error().message;
  EXPECT_THAT(Names(*models), ElementsAre("b", "c", "a"));
  EXPECT_EQ(models->at(0).path, "elsewhere");
  EXPECT_TRUE(models->at(1).load_at_start);
  EXPECT_FALSE(models->at(2).load_at_start);
}

TEST_F(ServedModelsTest, OneNameForTwoIsAnError) {
  const auto named = CollectModels({{.name = {}, .path = "x/a.gguf"}, {.name = {}, .path = "y/a.gguf"}}, {});
  ASSERT_FALSE(named.has_value());
  EXPECT_THAT(named.error().message, HasSubstr("both called a"));
  Touch("a.gguf");
  Touch("a/config.json");
  EXPECT_FALSE(CollectModels({}, folder_).has_value());
  EXPECT_TRUE(CollectModels({{.name = "a", .path = "elsewhere"}}, folder_).has_value());
  EXPECT_TRUE(CollectModels({{.name = {}, .path = folder_ / "a.gguf"}}, folder_).has_value());
  EXPECT_FALSE(CollectModels({{.name = std::string(201, 'x'), .path = "elsewhere"}}, {}).has_value());
  EXPECT_FALSE(CollectModels({{.name = "\xff", .path = "elsewhere"}}, {}).has_value());
}

TEST_F(ServedModelsTest, AFolderWithoutModelsIsAnError) {
  Touch("readme.txt");
  const auto models = CollectModels({}, folder_);
  ASSERT_FALSE(models.has_value());
  EXPECT_EQ(models.error().param, "models_dir");
}

}  // namespace
}  // namespace quire::cli
