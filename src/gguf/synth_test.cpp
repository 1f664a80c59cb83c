#include "gguf/synth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "gguf/inspection.h"
#include "gguf/loadable.h"
#include "gguf/random_blocks.h"
#include "gguf/test_file.h"
#include "gguf/vocabulary.h"

namespace kazeia::gguf {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A hybrid model of 7 MB.
constexpr Shape kTiny{"tiny", "qwen35", 4, 256, 512, 4, 2, 64, 30208, 2048, 30100, 1e4f, 4, 16, 4, 8, 32, 4};

float float_from_half(std::uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const float fraction = static_cast<float>(half & 1023) / 1024.0f;
  const float size = exponent == 0 ? std::ldexp(fraction, -14) : std::ldexp(1.0f + fraction, exponent - 15);
  return (half & 0x8000) != 0 ? -size : size;
}

class PublishedShape : public ::testing::TestWithParam<std::string_view> {};

TEST_P(PublishedShape, MakesALoadableFileOfTheExactShapes) {
  const Shape& shape = *find_shape(GetParam());
  const Header header = synthetic_header(shape);
  // A sparse file: the reader looks at the header only.
  const TestFolder folder;
  folder.put("m.gguf", header.serialise());
  std::filesystem::resize_file(folder.at("m.gguf"), header.file_bytes());
  const Result<ModelFile> model = open_gguf(folder.at("m.gguf"));
  ASSERT_TRUE(model.ok()) << model.error().sentence();
  const Status loadable = check_loadable(model->parts());
  EXPECT_TRUE(loadable.ok()) << loadable.error().sentence();
  const Inspection facts = inspect(model->parts());
  EXPECT_EQ(facts.vocabulary, shape.vocabulary);
  EXPECT_EQ(facts.layers.size(), shape.layers);
  EXPECT_TRUE(facts.tied_embeddings);
  EXPECT_TRUE(facts.template_has_thinking);
  ASSERT_EQ(facts.types.size(), 3u);
  for (const TypeShare& type : facts.types) EXPECT_THAT(type.type, ::testing::AnyOf("Q4_0", "Q6_K", "F32"));
  for (std::size_t i = 0; i < facts.layers.size(); ++i) {
    const bool full = !shape.hybrid() || i % 4 == 3;
    EXPECT_EQ(facts.layers[i], full ? LayerKind::kAttention : LayerKind::kRecurrent) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, PublishedShape, ::testing::Values("qwen3-0.6b", "qwen3-4b", "qwen3.5-0.8b", "qwen3.5-4b"),
                         [](const auto& shape) {
                           std::string name(shape.param);
                           for (char& c : name) {
                             if (c == '.' || c == '-') c = '_';
                           }
                           return name;
                         });

TEST(Shapes, HaveTheParameterCountsOfThePublishedModels) {
  const auto parameters = [](std::string_view name) {
    std::uint64_t sum = 0;
    for (const TensorPlan& tensor : tensors_of(*find_shape(name))) {
      std::uint64_t elements = 1;
      for (const std::uint64_t dim : tensor.dims) elements *= dim;
      sum += elements;
    }
    return sum;
  };
  EXPECT_EQ(parameters("qwen3-0.6b"), 596049920u);                             // the published count
  EXPECT_EQ(parameters("qwen3-4b"), 4022468096u);                              // the published count
  EXPECT_NEAR(static_cast<double>(parameters("qwen3.5-4b")), 4.21e9, 0.01e9);  // its language model alone
  EXPECT_EQ(find_shape("qwen3-5t"), nullptr);
}

TEST(Synth, IsTheSameFileForTheSameSeedOnly) {
  const TestFolder folder;
  const auto write = [&](const char* name, std::uint64_t seed) {
    SynthOptions options;
    options.seed = seed;
    const Result<std::uint64_t> bytes = write_synthetic(kTiny, folder.at(name), options);
    EXPECT_TRUE(bytes.ok()) << bytes.error().sentence();
    return file_text(folder.at(name));
  };
  const std::string first = write("a", 1);
  EXPECT_EQ(first, write("b", 1));
  EXPECT_NE(first, write("c", 2));
  EXPECT_EQ(first.size(), synthetic_header(kTiny).file_bytes());
}

TEST(Synth, KeepsAnExistingFileUnlessTold) {
  const TestFolder folder;
  folder.put("m.gguf", "precious");
  SynthOptions options;
  const Result<std::uint64_t> refused = write_synthetic(kTiny, folder.at("m.gguf"), options);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().sentence(), HasSubstr("exists already. Use --force"));
  EXPECT_EQ(file_text(folder.at("m.gguf")), "precious");
  options.overwrite = true;
  EXPECT_TRUE(write_synthetic(kTiny, folder.at("m.gguf"), options).ok());
  EXPECT_TRUE(open_gguf(folder.at("m.gguf")).ok());
}

TEST(Synth, LeavesNothingBehindWhenCancelled) {
  const TestFolder folder;
  CancelFlag cancel;
  SynthOptions options;
  options.cancel = &cancel;
  options.on_progress = [&](std::uint64_t, std::uint64_t) { cancel.request(); };
  const Result<std::uint64_t> result = write_synthetic(kTiny, folder.at("m.gguf"), options);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kCancelled);
  EXPECT_EQ(folder.count(), 0u);
}

TEST(Synth, ReportsProgressUpToTheEnd) {
  const TestFolder folder;
  std::uint64_t last = 0;
  std::uint64_t announced = 0;
  SynthOptions options;
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_GT(done, last);
    last = done;
    announced = total;
  };
  ASSERT_TRUE(write_synthetic(kTiny, folder.at("m.gguf"), options).ok());
  EXPECT_EQ(last, announced);
}

TEST(SynthVocabulary, IsUniqueAndCompleteAndHasItsSpecialTokensInPlace) {
  const Vocabulary vocabulary = make_vocabulary(151936, 151643);
  EXPECT_EQ(vocabulary.tokens.size(), 151936u);
  EXPECT_EQ(vocabulary.token_types.size(), 151936u);
  const std::set<std::string> unique(vocabulary.tokens.begin(), vocabulary.tokens.end());
  EXPECT_EQ(unique.size(), vocabulary.tokens.size());
  EXPECT_EQ(vocabulary.tokens[151643], "<|endoftext|>");
  EXPECT_EQ(vocabulary.tokens[151645], "<|im_end|>");
  EXPECT_EQ(vocabulary.tokens[151668], "</think>");
  EXPECT_EQ(vocabulary.end_of_turn, 151645u);
  for (const std::string& merge : vocabulary.merges) {
    const std::size_t space = merge.find(' ');
    ASSERT_NE(space, std::string::npos);
    EXPECT_TRUE(unique.contains(merge.substr(0, space))) << merge;
    EXPECT_TRUE(unique.contains(merge.substr(0, space) + merge.substr(space + 1))) << merge;
  }
}

TEST(RandomBlocks, GiveMatricesTheDeviationThatKeepsActivationsInRange) {
  constexpr std::uint64_t kColumns = 2560;
  std::vector<std::byte> data(18 * 20000);
  Random random(1, 2, 3);
  fill_blocks(data, TypeId::kQ4_0, Fill::kMatrix, kColumns, random);
  double sum = 0;
  double squares = 0;
  for (std::size_t at = 0; at < data.size(); at += 18) {
    std::uint16_t half = 0;
    std::memcpy(&half, data.data() + at, 2);
    const double scale = float_from_half(half);
    for (std::size_t i = 2; i < 18; ++i) {
      const int byte = std::to_integer<int>(data[at + i]);
      for (const int quant : {(byte & 15) - 8, (byte >> 4) - 8}) {
        sum += scale * quant;
        squares += scale * scale * quant * quant;
      }
    }
  }
  const double count = 32.0 * 20000;
  const double expected = 1.0 / std::sqrt(static_cast<double>(kColumns));
  EXPECT_NEAR(std::sqrt(squares / count), expected, 0.03 * expected);
  EXPECT_NEAR(sum / count, 0, 0.02 * expected);
}

TEST(RandomBlocks, RoundHalvesLikeTheStandard) {
  EXPECT_EQ(half_from_float(0.0f), 0x0000);
  EXPECT_EQ(half_from_float(-2.0f), 0xC000);
  EXPECT_EQ(half_from_float(65504.0f), 0x7BFF);
  EXPECT_EQ(half_from_float(65520.0f), 0x7C00);
  EXPECT_EQ(half_from_float(1e9f), 0x7C00);
  EXPECT_EQ(half_from_float(0x1p-24f), 0x0001);
  EXPECT_EQ(half_from_float(0x1p-25f), 0x0000);  // half way: to even
  EXPECT_EQ(half_from_float(1.0f + 0x1p-11f), 0x3C00);
  EXPECT_EQ(half_from_float(1.0f + 3 * 0x1p-11f), 0x3C02);
  for (std::uint32_t half = 0; half < 0x7C00; ++half) {
    ASSERT_EQ(half_from_float(float_from_half(static_cast<std::uint16_t>(half))), half);
  }
}

}  // namespace
}  // namespace kazeia::gguf
