#include "weights/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/mapped_file.h"
#include "weights/test_files.h"

namespace quire::weights {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::size_t FilesIn(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(GgufWriter, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "m.gguf";
  auto writer = GgufWriter::Create(path);
  ASSERT_TRUE(writer.has_value()) << writer.error().message;
  writer->PutString("string", "grüße");
  writer->PutUint32("uint", 7);
  writer->PutInt32("int", -7);
  writer->PutFloat("float", 0.25f);
  writer->PutBool("bool", true);
  writer->PutStrings("strings", std::vector<std::string>{"a", "", "c"});
  writer->PutFloats("floats", std::vector<float>{1, 2});
  writer->PutInt32s("ints", std::vector<std::int32_t>{-1});
  writer->PutBools("bools", {true, false});
  const std::vector<std::int64_t> vector = {3}, matrix = {2, 32};
  ASSERT_TRUE(writer->AddTensor("v", *FindTypeByName("F32"), vector).has_value());
  ASSERT_TRUE(writer->AddTensor("m", *FindTypeByName("Q8_0"), matrix).has_value());
  EXPECT_THAT(writer->AddTensor("x", *FindTypeByName("Q4_K"), matrix).error().message, HasSubstr("tensor x"));
  ASSERT_TRUE(writer->WriteHeader().has_value());
  std::vector<std::byte> data(12 + 68);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
  // In pieces that do not stop where tensors do.
  for (std::size_t at = 0; at < data.size(); at += 7) {
    ASSERT_TRUE(writer->Append(std::span(data).subspan(at, std::min<std::size_t>(7, data.size() - at))).has_value());
  }
  EXPECT_FALSE(std::filesystem::exists(path));  // not before it is whole
  ASSERT_TRUE(writer->Commit().has_value());
  EXPECT_EQ(FilesIn(folder.path()), 1u);

  const auto mapped = MappedFile::Open(path);
  ASSERT_TRUE(mapped.has_value());
  const auto file = GgufFile::Parse(mapped->bytes(), "m.gguf");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(**file->OptionalString("string"), "grüße");
  EXPECT_EQ(**file->OptionalInt("uint", 0, 9), 7);
  EXPECT_EQ(**file->OptionalInt("int", -9, 9), -7);
  EXPECT_EQ(**file->OptionalReal("float", 0, 1), 0.25);
  EXPECT_EQ(**file->OptionalBool("bool"), true);
  EXPECT_THAT(*file->Strings("strings"), ElementsAre("a", "", "c"));
  EXPECT_THAT(*file->Floats("floats"), ElementsAre(1, 2));
  EXPECT_THAT(*file->Int32s("ints"), ElementsAre(-1));
  EXPECT_THAT(*file->Bools("bools"), ElementsAre(true, false));
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_TRUE(std::ranges::equal(file->FindTensor("v")->data, std::span(data).first(12)));
  EXPECT_TRUE(std::ranges::equal(file->FindTensor("m")->data, std::span(data).subspan(12)));
  EXPECT_THAT(file->FindTensor("m")->shape, ElementsAre(2, 32));
}

TEST(GgufWriter, NothingIsLeftOfAFileThatWasNotCommitted) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.Write("m.gguf", "what was there before");
  {
    auto writer = GgufWriter::Create(path);
    ASSERT_TRUE(writer.has_value());
    auto moved = std::move(*writer);
    ASSERT_TRUE(moved.WriteHeader().has_value());
    EXPECT_EQ(FilesIn(folder.path()), 2u);
  }
  EXPECT_EQ(FilesIn(folder.path()), 1u);
  EXPECT_EQ(*ReadFile(path, 100), "what was there before");
  EXPECT_THAT(GgufWriter::Create(folder.path() / "no" / "m.gguf").error().message, HasSubstr("cannot create"));
}

TEST(AtomicFile, WhatTheSystemRefusesIsAnErrorThatNamesTheFile) {
  const TemporaryFolder folder;
  auto file = AtomicFile::Create(folder.path() / "x");
  ASSERT_TRUE(file.has_value());
  ASSERT_TRUE(file->Write("text").has_value());
  std::filesystem::create_directory(folder.path() / "x");  // a file cannot replace a folder
  EXPECT_THAT(file->Commit().error().message, HasSubstr("/x: Is a directory"));
}

}  // namespace
}  // namespace quire::weights
