#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "gguf/reader.h"
#include "gguf/test_file.h"

namespace kazeia::gguf {
namespace {

using ::testing::HasSubstr;

TestFile part(int number, int count) {
  TestFile file;
  file.u16("split.no", static_cast<std::uint16_t>(number - 1)).u16("split.count", static_cast<std::uint16_t>(count));
  if (number == 1) file.string("general.architecture", "qwen3").i32("split.tensors.count", count);
  file.tensor(fmt::format("blk.{}.weight", number), {4});
  return file;
}

class Split : public ::testing::Test {
 protected:
  static std::string name(int number, int count) { return fmt::format("m-{:05}-of-{:05}.gguf", number, count); }
  void put(int number, int count, const TestFile& file) const { folder_.put(name(number, count), file.bytes()); }
  void put_all() const {
    for (int number = 1; number <= 3; ++number) put(number, 3, part(number, 3));
  }
  std::string refusal_of(int number = 1) const {
    const Result<ModelFile> model = open_gguf(folder_.at(name(number, 3)));
    return model.ok() ? "" : model.error().sentence();
  }
  TestFolder folder_;
};

TEST_F(Split, FollowsAllPartsFromTheFirst) {
  put_all();
  const Result<ModelFile> model = open_gguf(folder_.at(name(1, 3)));
  ASSERT_TRUE(model.ok()) << model.error().sentence();
  EXPECT_EQ(model->parts().size(), 3u);
  EXPECT_NE(model->parts()[2].find_tensor("blk.3.weight"), nullptr);
  EXPECT_EQ(model->metadata().find("general.architecture")->as_string(), "qwen3");
  EXPECT_EQ(model->total_bytes(), std::filesystem::file_size(folder_.at(name(1, 3))) +
                                      std::filesystem::file_size(folder_.at(name(2, 3))) +
                                      std::filesystem::file_size(folder_.at(name(3, 3))));
  EXPECT_EQ(model->tensor_bytes(), 3u * 4 * sizeof(float));
}

TEST_F(Split, NamesTheMissingPart) {
  put_all();
  std::filesystem::remove(folder_.at(name(2, 3)));
  EXPECT_THAT(refusal_of(), HasSubstr("part 2 of 3 is missing: no file at"));
  EXPECT_THAT(refusal_of(), HasSubstr(name(2, 3)));
}

TEST_F(Split, SendsTheUserToTheFirstPart) {
  put_all();
  EXPECT_THAT(refusal_of(2), HasSubstr("is part 2 of 3"));
  EXPECT_THAT(refusal_of(2), HasSubstr(name(1, 3) + "' instead"));
}

TEST_F(Split, RefusesAPartOfAnotherModel) {
  put_all();
  put(2, 3, part(2, 3).u16("split.no", 2));
  EXPECT_THAT(refusal_of(), HasSubstr("says it is part 3 of 3, but its name says part 2 of 3"));
}

TEST_F(Split, RefusesCountersOfAnotherType) {
  put_all();
  put(2, 3, part(2, 3).u32("split.no", 1));
  EXPECT_THAT(refusal_of(), HasSubstr("'split.no' must be a non-negative u16"));
}

TEST_F(Split, RefusesTheSameTensorInTwoParts) {
  put_all();
  put(3, 3, TestFile().u16("split.no", 2).u16("split.count", 3).tensor("blk.2.weight", {4}));
  EXPECT_THAT(refusal_of(), HasSubstr("tensor 'blk.2.weight' is in two parts"));
}

TEST_F(Split, RefusesAWrongTensorTotal) {
  put_all();
  put(1, 3, part(1, 3).i32("split.tensors.count", 7));
  EXPECT_THAT(refusal_of(), HasSubstr("hold 3 tensors together, but 7 are announced"));
}

TEST_F(Split, RefusesADamagedPartByItsName) {
  put_all();
  folder_.put(name(3, 3), part(3, 3).bytes().substr(0, 50));
  EXPECT_THAT(refusal_of(), HasSubstr(name(3, 3)));
  EXPECT_THAT(refusal_of(), HasSubstr("at byte"));
}

TEST_F(Split, RefusesAPartThatWasRenamed) {
  folder_.put("model.gguf", part(1, 3).bytes());
  const Result<ModelFile> model = open_gguf(folder_.at("model.gguf"));
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.error().message(), HasSubstr("is one of 3 parts, but is not named like one"));
}

TEST_F(Split, SaysWhatIsWrongWithAPathThatIsNoFile) {
  EXPECT_THAT(open_gguf(folder_.at("absent.gguf")).error().message(), HasSubstr("no file at"));
  EXPECT_THAT(open_gguf(folder_.at("")).error().message(), HasSubstr("directory"));
}

}  // namespace
}  // namespace kazeia::gguf
