// The tile cache as a model's load uses it: it saves the packing, and nothing else may change.
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/mini_prompts.h"

namespace kazeia {
namespace {

namespace fs = std::filesystem;

class TileCacheOfAModel : public mini::EachModel {
 protected:
  void SetUp() override {
    folder_ = mini::own_path("tile-cache");
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::shared_ptr<const Model> load(const std::string& path) {
    ModelOptions options;
    options.tile_cache_directory = folder_;
    auto result = Model::load(path, options);
    EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().sentence());
    return result.ok() ? std::move(result).value() : nullptr;
  }
  std::shared_ptr<const Model> load() { return load(mini::path(GetParam())); }

  Tokens greedy_text(const std::shared_ptr<const Model>& model) {
    auto line = Timeline::create(model, mini::small_context());
    auto sampler = Sampler::create(model, mini::greedy());
    EXPECT_TRUE(line.ok() && sampler.ok());
    Tokens all;
    for (const std::string& prompt : {mini::prompts().front(), mini::prompts().back()}) {
      const Tokens answer = mini::answer(**line, **sampler, GetParam(), prompt).tokens;
      all.insert(all.end(), answer.begin(), answer.end());
    }
    return all;
  }

  std::vector<fs::path> cache_files() {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      EXPECT_EQ(entry.path().string().find(".partial"), std::string::npos) << entry.path();
      if (entry.path().extension() == ".tiles") files.push_back(entry.path());
    }
    return files;
  }

  std::string folder_;
};

TEST_P(TileCacheOfAModel, ASecondLoadPacksNothingAndWritesTheSameText) {
  const Tokens expected = greedy_text(mini::model(GetParam()));
  const auto first = load();
  ASSERT_TRUE(first);
  EXPECT_GT(first->tile_bytes(), 0u);
  EXPECT_EQ(first->cached_tile_bytes(), 0u);
  EXPECT_EQ(greedy_text(first), expected);
  const auto files = cache_files();
  ASSERT_EQ(files.size(), 1u);
  const auto written = fs::last_write_time(files.front());

  const auto second = load();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->tile_bytes(), first->tile_bytes());
  EXPECT_EQ(second->cached_tile_bytes(), second->tile_bytes());
  EXPECT_EQ(greedy_text(second), expected);
  EXPECT_EQ(cache_files(), files);
  EXPECT_EQ(fs::last_write_time(files.front()), written);
}

TEST_P(TileCacheOfAModel, ADamagedFileCostsOnePackingAndIsReplaced) {
  const Tokens expected = greedy_text(mini::model(GetParam()));
  ASSERT_TRUE(load());
  const auto files = cache_files();
  ASSERT_EQ(files.size(), 1u);
  {
    std::fstream file(files.front(), std::ios::in | std::ios::out | std::ios::binary);
    const auto middle = static_cast<std::streamoff>(fs::file_size(files.front()) / 2);
    file.seekg(middle);
    const int byte = file.get();
    file.seekp(middle);
    file.put(static_cast<char>(byte ^ 1));
    ASSERT_TRUE(file.good());
  }
  const auto repacked = load();
  ASSERT_TRUE(repacked);
  EXPECT_EQ(repacked->cached_tile_bytes(), 0u);
  EXPECT_EQ(greedy_text(repacked), expected);
  const auto again = load();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->cached_tile_bytes(), again->tile_bytes());
  EXPECT_EQ(greedy_text(again), expected);
}

// Two files of one shape with one byte of difference in their weights must not meet in the cache.
TEST_P(TileCacheOfAModel, AnotherModelOfTheSameShapeGetsTilesOfItsOwn) {
  ASSERT_TRUE(load());
  std::string bytes = mini::file_bytes(mini::path(GetParam()));
  bytes[bytes.size() - 100] = static_cast<char>(bytes[bytes.size() - 100] ^ 1);
  const auto other = load(mini::write_copy("other-" + mini::model_test_name({GetParam(), 0}) + ".gguf", bytes));
  ASSERT_TRUE(other);
  EXPECT_EQ(other->cached_tile_bytes(), 0u);
  EXPECT_EQ(cache_files().size(), 2u);
}

TEST_P(TileCacheOfAModel, AFolderThatCannotBeWrittenCostsNothingButThePacking) {
  std::ofstream(folder_) << "a file where the folder should be";
  const auto model = load();
  ASSERT_TRUE(model);
  EXPECT_GT(model->tile_bytes(), 0u);
  EXPECT_EQ(model->cached_tile_bytes(), 0u);
  EXPECT_EQ(greedy_text(model), greedy_text(mini::model(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Engine, TileCacheOfAModel, testing::Values(mini::kDense, mini::kHybrid),
                         mini::model_test_name);

}  // namespace
}  // namespace kazeia
