// Weights in tiles against the same weights in upstream's own layouts, both through the engine and in one process.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/backend.h"
#include "engine/mini_prompts.h"
#include "gguf/reader.h"
#include "llama.h"
#include "tiles/buffer_type.h"
#include "tiles/layout.h"

namespace kazeia {
namespace {

constexpr int kSteps = 128;  // per prompt, past the end of the answer

std::shared_ptr<const Model> load_path(const std::string& path, Placement placement) {
  ModelOptions options;
  options.placement = placement;
  auto result = Model::load(path, options);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().sentence());
  return result.ok() ? std::move(result).value() : nullptr;
}

std::shared_ptr<const Model> load(const std::string& file, Placement placement) {
  return load_path(mini::path(file), placement);
}

// A copy of the model with its tied table in another type and every other tensor as it is.
std::string with_table(const std::string& file, ggml_type type) {
  initialise_backend();
  const std::string copy = mini::own_path(std::string("table-") + ggml_type_name(type) + "-" + file);
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.nthread = 1;
  params.ftype = LLAMA_FTYPE_MOSTLY_Q4_0;
  params.token_embedding_type = type;
  params.output_tensor_type = type;
  params.allow_requantize = true;
  EXPECT_EQ(llama_model_quantize(mini::path(file).c_str(), copy.c_str(), &params), 0u);
  return copy;
}

std::unique_ptr<Timeline> timeline(const std::shared_ptr<const Model>& model, int threads) {
  TimelineOptions options = mini::small_context();
  options.decode_threads = threads;
  auto result = Timeline::create(model, options);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().sentence());
  return result.ok() ? std::move(result).value() : nullptr;
}

Token most_likely(std::span<const float> logits) {
  return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<double> log_softmax(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  const double offset = top + std::log(sum);
  std::vector<double> result;
  result.reserve(logits.size());
  for (const float logit : logits) result.push_back(logit - offset);
  return result;
}

double kl_divergence(std::span<const float> expected, std::span<const float> actual) {
  const std::vector<double> p = log_softmax(expected), q = log_softmax(actual);
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return sum;
}

// What was seen while both models read the first one's greedy text. As long as no step differs, that is the greedy text
// of the second one too.
struct Comparison {
  std::int64_t steps = 0;
  int prompts_that_differ = 0;
  double largest_first_gap = 0;  // between the candidates of a first difference, in the expected logits
  double mean_kl = 0;
  double largest_kl = 0;
  double largest_logit_error = 0;

  void print(const char* what) const {
    std::printf(
        "%s, %lld tokens: %d prompts differ, largest gap at a first difference %.2e; KL mean %.2e, largest "
        "%.2e; largest difference of a logit %.2e\n",
        what, static_cast<long long>(steps), prompts_that_differ, largest_first_gap, mean_kl, largest_kl,
        largest_logit_error);
  }
};

Comparison compare(const std::string& file, const std::shared_ptr<const Model>& expected_model,
                   const std::shared_ptr<const Model>& actual_model) {
  Comparison seen;
  const auto expected_line = timeline(expected_model, 1), actual_line = timeline(actual_model, 1);
  if (expected_line == nullptr || actual_line == nullptr) return seen;
  double kl_sum = 0;
  for (const std::string& prompt : mini::prompts()) {
    const Tokens input = mini::tokens(file, prompt);
    expected_line->reset();
    actual_line->reset();
    EXPECT_TRUE(expected_line->prefill(input).ok() && actual_line->prefill(input).ok());
    bool differed = false;
    for (int step = 0; step < kSteps; ++step) {
      const std::span<const float> expected = expected_line->logits(), actual = actual_line->logits();
      const double kl = kl_divergence(expected, actual);
      kl_sum += kl;
      seen.largest_kl = std::max(seen.largest_kl, kl);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        seen.largest_logit_error = std::max<double>(seen.largest_logit_error, std::abs(expected[i] - actual[i]));
      }
      ++seen.steps;
      const Token next = most_likely(expected), other = most_likely(actual);
      if (next != other && !differed) {
        differed = true;
        ++seen.prompts_that_differ;
        const double gap = expected[static_cast<std::size_t>(next)] - expected[static_cast<std::size_t>(other)];
        seen.largest_first_gap = std::max(seen.largest_first_gap, gap);
      }
      EXPECT_TRUE(expected_line->decode(next).ok() && actual_line->decode(next).ok());
    }
  }
  EXPECT_EQ(seen.steps, static_cast<std::int64_t>(mini::prompts().size()) * kSteps);
  seen.mean_kl = kl_sum / static_cast<double>(seen.steps);
  return seen;
}

class TilesEquivalence : public mini::EachModel {};

// Where both sides quantise the activations alike, which is everywhere but in K-quant products, nothing may differ.
TEST_P(TilesEquivalence, GreedyTextIsUpstreamsOn30PromptsOf128Tokens) {
  ASSERT_GE(mini::prompts().size(), 30u);
  for (const ggml_type table : {GGML_TYPE_Q4_0, GGML_TYPE_Q8_0}) {
    const std::string path = with_table(GetParam(), table);
    const auto upstream = load_path(path, Placement::kUpstream), tiles = load_path(path, Placement::kCpu);
    ASSERT_TRUE(upstream && tiles);
    ASSERT_GT(tiles->tile_bytes(), 0u);
    const Comparison seen = compare(GetParam(), upstream, tiles);
    seen.print(ggml_type_name(table));
    EXPECT_LT(seen.largest_first_gap, 1e-3);
    EXPECT_LT(seen.largest_logit_error, 1e-3);
    EXPECT_LE(seen.mean_kl, 1e-9);
  }
}

// The shipped files have a Q6_K table. Upstream multiplies it with activations of one scale per 256 columns, the tiles
// with one scale per 32, and their weight scales are rounded to f16: two approximations of one product. The gap at
// which the text may differ is therefore wider than 1e-3, and what has to be shown is that ours is no worse: measured
// from the same table in floats, the tiles' distributions are not farther away than upstream's.
TEST_P(TilesEquivalence, DistributionsOfAQ6KTableAreUpstreamsAndAsCloseToTheFloatProduct) {
  constexpr double kGap = 0.05;  // measured: 1.2e-2 dense, 2.3e-2 hybrid; upstream from the float table: 1.9e-2
  const auto upstream = load(GetParam(), Placement::kUpstream), tiles = load(GetParam(), Placement::kCpu);
  const auto exact = load_path(with_table(GetParam(), GGML_TYPE_F32), Placement::kUpstream);
  ASSERT_TRUE(upstream && tiles && exact);
  const Comparison seen = compare(GetParam(), upstream, tiles);
  const Comparison tiles_error = compare(GetParam(), exact, tiles),
                   upstream_error = compare(GetParam(), exact, upstream);
  seen.print("tiles from upstream");
  tiles_error.print("tiles from the float table");
  upstream_error.print("upstream from the float table");
  EXPECT_LE(seen.mean_kl, 1e-4);
  EXPECT_LT(seen.largest_first_gap, kGap);
  EXPECT_LE(tiles_error.mean_kl, upstream_error.mean_kl);
}

// What ThreadSanitizer looks at: prefill and decode with a team.
TEST_P(TilesEquivalence, TwoThreadsGiveTheSameLogitsAsOne) {
  const auto model = load(GetParam(), Placement::kCpu);
  ASSERT_TRUE(model);
  const auto one = timeline(model, 1), two = timeline(model, 2);
  ASSERT_TRUE(one && two);
  const Tokens input = mini::tokens(GetParam(), mini::prompts()[26]);
  ASSERT_TRUE(one->prefill(input).ok() && two->prefill(input).ok());
  for (int step = 0; step < 12; ++step) {
    const std::vector<float> expected(one->logits().begin(), one->logits().end());
    const std::vector<float> actual(two->logits().begin(), two->logits().end());
    ASSERT_LT(kl_divergence(expected, actual), 1e-9) << "token " << step;
    const Token next = most_likely(expected);
    ASSERT_EQ(most_likely(actual), next) << "token " << step;
    ASSERT_TRUE(one->decode(next).ok() && two->decode(next).ok());
  }
}

// Would fail if kUpstream silently ran on tiles: then the two could not differ at all.
TEST_P(TilesEquivalence, BothPlacementsLiveInOneProcessAndTakeTheirOwnPath) {
  const std::uint64_t before = tiles::resident_tile_bytes();
  const auto first = load(GetParam(), Placement::kCpu);
  const std::uint64_t with_tiles = tiles::resident_tile_bytes() - before;
  const auto second = load(GetParam(), Placement::kUpstream);
  const auto third = load(GetParam(), Placement::kCpu);
  ASSERT_TRUE(first && second && third);
  EXPECT_GT(first->tile_bytes(), 0u);
  EXPECT_EQ(second->tile_bytes(), 0u);
  EXPECT_EQ(third->tile_bytes(), first->tile_bytes());
  EXPECT_EQ(tiles::resident_tile_bytes() - before, 2 * with_tiles);

  const Tokens input = mini::tokens(GetParam(), mini::question("What is the capital of Japan?"));
  std::vector<std::vector<float>> logits;
  for (const auto& model : {first, second, third}) {
    const auto line = timeline(model, 1);
    ASSERT_TRUE(line != nullptr && line->prefill(input).ok());
    logits.emplace_back(line->logits().begin(), line->logits().end());
  }
  EXPECT_EQ(logits[0], logits[2]);
  EXPECT_NE(logits[0], logits[1]);
}

TEST_P(TilesEquivalence, EveryTensorWithALayoutIsKeptOnceTheTiedTableIncluded) {
  std::uint64_t expected = 0;
  bool tied = true;
  {
    const auto file = gguf::open_gguf(mini::path(GetParam()));
    ASSERT_TRUE(file.ok());
    for (const gguf::File& part : file.value().parts()) {
      for (const gguf::Tensor& tensor : part.tensors()) {
        tied = tied && tensor.name != "output.weight";
        const auto type = tiles::weight_type_of(static_cast<std::uint32_t>(tensor.type->id));
        if (!type || tensor.dimension_count != 2) continue;
        expected +=
            tiles::Shape{*type, static_cast<std::int64_t>(tensor.dims[1]), static_cast<std::int64_t>(tensor.dims[0])}
                .bytes();
      }
    }
  }
  ASSERT_TRUE(tied);
  const std::uint64_t before = tiles::resident_tile_bytes();
  {
    const auto model = load(GetParam(), Placement::kCpu);
    ASSERT_TRUE(model);
    EXPECT_EQ(model->tile_bytes(), expected);
    EXPECT_EQ(tiles::resident_tile_bytes() - before, expected);
  }
  EXPECT_EQ(tiles::resident_tile_bytes(), before);
}

INSTANTIATE_TEST_SUITE_P(Engine, TilesEquivalence, testing::Values(mini::kDense, mini::kHybrid), mini::model_test_name);

class WithoutTileLayout : public mini::EachModel {};

TEST_P(WithoutTileLayout, AFileLoadsWithoutTilesAndAnswers) {
  const std::uint64_t before = tiles::resident_tile_bytes();
  const auto model = load(GetParam(), Placement::kCpu);
  ASSERT_TRUE(model);
  EXPECT_EQ(model->tile_bytes(), 0u);
  EXPECT_EQ(tiles::resident_tile_bytes(), before);
  const auto line = timeline(model, 1);
  const auto sampler = Sampler::create(model, mini::greedy());
  ASSERT_TRUE(line != nullptr && sampler.ok());
  const GenerationResult result =
      mini::answer(*line, **sampler, GetParam(), mini::question("What is the capital of Japan?"));
  EXPECT_NE(result.text.find("Tokyo"), std::string::npos) << result.text;
  EXPECT_EQ(result.reason, StopReason::kEndOfText);
}

INSTANTIATE_TEST_SUITE_P(Engine, WithoutTileLayout, testing::Values(mini::kDenseF16, mini::kHybridF16),
                         mini::model_test_name);

}  // namespace
}  // namespace kazeia
