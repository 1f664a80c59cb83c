#include "gguf/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf/test_file.h"

namespace kazeia::gguf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Header small_header() {
  Header header;
  header.add_string("general.architecture", "test");
  header.add_u32("test.block_count", 3);
  header.add_strings("list", std::vector<std::string>{"a", "", "ccc"});
  header.add_tensor("one", TypeId::kF32, {5});
  header.add_tensor("two", TypeId::kQ4_0, {64, 3});
  return header;
}

TEST(Writer, WritesWhatTheReaderReads) {
  const TestFolder folder;
  const Header header = small_header();
  Result<Writer> writer = Writer::create(folder.at("m.gguf"), header);
  ASSERT_TRUE(writer.ok()) << writer.error().sentence();
  const std::string data = std::string(20, '1') + std::string(108, '2');
  // In pieces that respect no tensor's end.
  for (std::size_t at = 0; at < data.size(); at += 7) {
    ASSERT_TRUE(writer->write(view(data.substr(at, 7))).ok());
  }
  ASSERT_TRUE(writer->commit().ok());

  const Result<ModelFile> model = open_gguf(folder.at("m.gguf"));
  ASSERT_TRUE(model.ok()) << model.error().sentence();
  const File& file = model->metadata();
  EXPECT_EQ(file.size(), header.file_bytes());
  EXPECT_EQ(file.find("test.block_count")->as_unsigned(), 3u);
  EXPECT_THAT(file.find("list")->strings(), ElementsAre("a", "", "ccc"));
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_THAT(file.data(file.tensors()[0]), ::testing::Each(std::byte{'1'}));
  EXPECT_EQ(file.data(file.tensors()[1]).size(), 108u);
  EXPECT_THAT(file.data(file.tensors()[1]), ::testing::Each(std::byte{'2'}));
}

TEST(Writer, CopiesValuesOfAnotherFile) {
  TestFile source;
  source.f32("real", 0.5f).strings("list", {"x", "yy"}).boolean("flag", true).i32s("numbers", {1, -2});
  const std::string bytes = source.bytes();
  const Result<File> file = parse(view(bytes));
  ASSERT_TRUE(file.ok());
  Header header;
  for (const Entry& entry : file->metadata()) header.add_value(entry.key, entry.value);
  EXPECT_EQ(header.serialise(), bytes + std::string((32 - bytes.size() % 32) % 32, '\0'));
}

TEST(Writer, LeavesNothingBehindWithoutACommit) {
  const TestFolder folder;
  {
    Result<Writer> writer = Writer::create(folder.at("m.gguf"), small_header());
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->write(view(std::string(20, '1'))).ok());
  }
  EXPECT_EQ(folder.count(), 0u);
}

TEST(Writer, RefusesToCommitWhileDataAreMissing) {
  const TestFolder folder;
  {
    Result<Writer> writer = Writer::create(folder.at("m.gguf"), small_header());
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->write(view(std::string(20, '1'))).ok());
    const Status status = writer->commit();
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message(), HasSubstr("incomplete"));
  }
  EXPECT_EQ(folder.count(), 0u);
}

}  // namespace
}  // namespace kazeia::gguf
