// The key of the tile cache: the hash of a model, and the memo that saves reading it again.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tiles/tile_cache.h"

namespace kazeia::tiles {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}
void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

class ModelHash : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "kazeia-hash-" + std::to_string(::getpid()) + "-" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    cache_ = folder_ + "/cache";
    model_ = folder_ + "/model.gguf";
    write_file(model_, "the bytes of a model");
    // The hash of a file that changed this very moment is not remembered.
    std::this_thread::sleep_for(std::chrono::milliseconds(80));
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string hash() { return hash_of({model_}); }
  std::string hash_of(const std::vector<std::string>& parts) {
    const auto result = model_hash(parts, cache_, 2);
    EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().sentence());
    return result.ok() ? *result : "";
  }
  fs::path memo() const { return fs::directory_iterator(cache_)->path(); }

  std::string folder_;
  std::string cache_;
  std::string model_;
};

TEST_F(ModelHash, Is32HexDigitsAndTheSameForTheSameBytes) {
  const std::string first = hash();
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(first.find_first_not_of("0123456789abcdef"), std::string::npos) << first;
  EXPECT_EQ(hash(), first);
  fs::copy_file(model_, folder_ + "/copy.gguf");
  EXPECT_EQ(hash_of({folder_ + "/copy.gguf"}), first);
}

TEST_F(ModelHash, IsRememberedWithoutReadingTheModelAgain) {
  const std::string first = hash();
  std::string text = read_file(memo());
  const std::string other(32, 'a');
  text.replace(text.find(first), 32, other);
  write_file(memo(), text);
  EXPECT_EQ(hash(), other);
}

TEST_F(ModelHash, OfAFileThatChangedThisMomentIsNotRemembered) {
  write_file(model_, "the bytes of another model");
  (void)hash();
  EXPECT_FALSE(fs::exists(cache_) && !fs::is_empty(cache_));
}

TEST_F(ModelHash, IsTakenAgainWhenTheFileWasTouched) {
  const std::string first = hash();
  std::string text = read_file(memo());
  text.replace(text.find(first), 32, std::string(32, 'a'));
  write_file(memo(), text);
  fs::last_write_time(model_, fs::last_write_time(model_) + std::chrono::seconds(5));
  EXPECT_EQ(hash(), first);
}

TEST_F(ModelHash, IsTakenAgainWhenTheMemoIsDamaged) {
  const std::string first = hash();
  const std::string text = read_file(memo());
  for (const std::string& damaged : {std::string(), text.substr(0, text.size() / 2), text.substr(1), text + "x"}) {
    write_file(memo(), damaged);
    EXPECT_EQ(hash(), first);
  }
}

TEST_F(ModelHash, IsAnotherForOtherBytesOfTheSameSize) {
  const std::string first = hash();
  write_file(model_, "the bytes of a mOdel");
  // The clock of the file system may not have ticked since.
  fs::last_write_time(model_, fs::last_write_time(model_) + std::chrono::seconds(1));
  EXPECT_NE(hash(), first);
}

TEST_F(ModelHash, DependsOnTheOrderAndTheCutsOfASplitModel) {
  write_file(folder_ + "/a", "12");
  write_file(folder_ + "/b", "3");
  write_file(folder_ + "/c", "1");
  write_file(folder_ + "/d", "23");
  const std::string first = hash_of({folder_ + "/a", folder_ + "/b"});
  EXPECT_NE(hash_of({folder_ + "/b", folder_ + "/a"}), first);
  EXPECT_NE(hash_of({folder_ + "/c", folder_ + "/d"}), first);
}

TEST_F(ModelHash, NeedsNoFolderThatCanBeWritten) {
  const std::string first = hash();
  const auto result = model_hash({model_}, model_ + "/below-a-file", 1);
  ASSERT_TRUE(result.ok()) << result.error().sentence();
  EXPECT_EQ(*result, first);
}

TEST_F(ModelHash, OfAMissingFileIsAnError) {
  const auto result = model_hash({folder_ + "/none"}, cache_, 1);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kFile);
}

}  // namespace
}  // namespace kazeia::tiles
