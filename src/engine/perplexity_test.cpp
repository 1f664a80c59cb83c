#include "engine/perplexity.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/backend.h"
#include "engine/mini_models.h"
#include "engine/prepared_models.h"
#include "gguf/test_file.h"
#include "llama.h"

namespace kazeia {
namespace {

using ::testing::HasSubstr;

Reading read(const std::string& path, std::string_view text, const Reading* reference = nullptr) {
  PerplexityOptions options;
  options.threads = 1;
  auto result = read_text({path}, text, reference, options);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().sentence());
  return result.ok() ? *std::move(result) : Reading{};
}

Comparison comparison(const std::string& source, const std::string& prepared, std::string_view text) {
  const Reading before = read(source, text);
  const Reading after = read(prepared, text, &before);
  const auto result = compare(before, after);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().sentence());
  return result.ok() ? *result : Comparison{};
}

// Something the mini models were made for.
std::string dialogue() {
  std::string text;
  for (int i = 0; i < 24; ++i) {
    text += "My number is " + std::to_string(10 + 3 * i) + ".\nI noted the number " + std::to_string(10 + 3 * i) +
            ".\nThe capital of Norway is Oslo.\n";
  }
  return text;
}

// By the shortest way: one batch, all positions, no windows.
double plain_perplexity(const std::string& path, const std::string& text, std::size_t warm_up) {
  initialise_backend();
  const std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
      llama_model_load_from_file(path.c_str(), llama_model_default_params()), &llama_model_free);
  const llama_vocab* vocabulary = llama_model_get_vocab(model.get());
  std::vector<llama_token> tokens(text.size());
  tokens.resize(static_cast<std::size_t>(llama_tokenize(vocabulary, text.data(), static_cast<int>(text.size()),
                                                        tokens.data(), static_cast<int>(tokens.size()), false, false)));
  EXPECT_GT(tokens.size(), 64u);
  EXPECT_LE(tokens.size(), 256u);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = params.n_outputs_max = 512;
  params.n_threads = params.n_threads_batch = 1;
  const std::unique_ptr<llama_context, decltype(&llama_free)> context(llama_init_from_model(model.get(), params),
                                                                      &llama_free);
  std::vector<std::int8_t> all(tokens.size(), 1);
  llama_batch batch = llama_batch_get_one(tokens.data(), static_cast<int>(tokens.size()));
  batch.logits = all.data();
  EXPECT_EQ(llama_decode(context.get(), batch), 0);
  double sum = 0;
  std::size_t count = 0;
  for (std::size_t i = warm_up; i + 1 < tokens.size(); ++i) {
    const float* logits = llama_get_logits_ith(context.get(), static_cast<int>(i));
    double normaliser = 0;
    for (int t = 0; t < llama_vocab_n_tokens(vocabulary); ++t) normaliser += std::exp(double{logits[t]});
    sum += std::log(normaliser) - double{logits[tokens[i + 1]]};
    ++count;
  }
  return std::exp(sum / static_cast<double>(count));
}

TEST(Perplexity, IsWhatThePlainDefinitionGives) {
  const std::string text = dialogue().substr(0, 400);
  for (const char* file : {mini::kDense, mini::kHybridF16}) {
    const double plain = plain_perplexity(mini::path(file), text, 32);
    EXPECT_NEAR(read(mini::path(file), text).perplexity(), plain, 0.01 * plain) << file;
  }
}

TEST(Perplexity, IsLowerForProseThanForProseReadBackwards) {
  std::string backwards(perplexity_text().substr(0, 2000));
  const double forwards = read(mini::path(mini::kHybrid), backwards).perplexity();
  std::reverse(backwards.begin(), backwards.end());
  EXPECT_GT(forwards, 1);
  EXPECT_GT(read(mini::path(mini::kHybrid), backwards).perplexity(), 1.5 * forwards);
}

TEST(Perplexity, OfAModelBesideItselfDiffersInNothing) {
  const std::string path = mini::path(mini::kHybrid);
  const Comparison same = comparison(path, path, perplexity_text());
  EXPECT_EQ(same.ratio, 1);
  EXPECT_NEAR(same.divergence, 0, 1e-6);
  EXPECT_EQ(same.same_choice, 1);
  EXPECT_GT(same.positions, 1000u);
}

TEST(Perplexity, ShowsThatFourBitsCostLittle) {
  for (const auto& [f16, q4] : {std::pair(mini::kDenseF16, mini::kDense), std::pair(mini::kHybridF16, mini::kHybrid)}) {
    const Comparison measured = comparison(mini::path(f16), mini::path(q4), perplexity_text());
    RecordProperty(std::string(f16) + ".ratio", std::to_string(measured.ratio));
    EXPECT_GT(measured.ratio, 0.9) << f16;
    EXPECT_LT(measured.ratio, 1.1) << f16;
    EXPECT_GT(measured.divergence, 0.001) << f16;
    EXPECT_LT(measured.divergence, 0.3) << f16;
    EXPECT_GT(measured.same_choice, 0.6) << f16;
  }
}

TEST(Perplexity, ShowsThatAMatrixIsBroken) {
  const std::string known = dialogue();
  const gguf::TestFolder folder;
  std::string bytes = gguf::file_text(mini::path(mini::kHybridF16));
  const auto model = gguf::open_gguf(mini::path(mini::kHybridF16));
  ASSERT_TRUE(model.ok());
  const gguf::Tensor& tensor = *model->metadata().find_tensor("blk.1.ffn_down.weight");
  std::rotate(bytes.begin() + static_cast<std::ptrdiff_t>(tensor.offset),
              bytes.begin() + static_cast<std::ptrdiff_t>(tensor.offset + 1000),
              bytes.begin() + static_cast<std::ptrdiff_t>(tensor.offset + tensor.bytes));
  folder.put("broken.gguf", bytes);
  // On a text that a model knows nothing about a broken one can be less surprised; that is why the divergence counts.
  for (const std::string_view text : {std::string_view(perplexity_text()), std::string_view(known)}) {
    const Comparison measured = comparison(mini::path(mini::kHybridF16), folder.at("broken.gguf"), text);
    EXPECT_GT(measured.divergence, 0.06);  // at four bits all matrices together cost 0.03
    EXPECT_LT(measured.same_choice, 0.9);
  }
}

TEST(Perplexity, RefusesATextThatIsTooShort) {
  const auto result = read_text({mini::path(mini::kDense)}, "Hello.", nullptr, {});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kFile);
  EXPECT_THAT(result.error().sentence(), HasSubstr("too few to measure perplexity. Give one of at least 64"));
}

TEST(Perplexity, SaysWhichFileUpstreamCannotLoad) {
  const gguf::TestFolder folder;
  folder.put("no.gguf", "no");
  const auto result = read_text({folder.at("no.gguf")}, perplexity_text(), nullptr, {});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kEngine);
  EXPECT_THAT(result.error().sentence(), HasSubstr("cannot load '" + folder.at("no.gguf")));
}

TEST(Perplexity, ReadsPartsOfALongTextIfTold) {
  PerplexityOptions options;
  options.most_windows = 3;
  const auto part = read_text({mini::path(mini::kDense)}, perplexity_text(), nullptr, options);
  ASSERT_TRUE(part.ok()) << part.error().sentence();
  const Reading whole = read(mini::path(mini::kDense), perplexity_text());
  const std::size_t window = 256 - 32 - 1;
  ASSERT_EQ(part->predictions.size(), 3 * window);
  // Not the beginning alone.
  EXPECT_EQ(part->predictions[0].token, whole.predictions[0].token);
  EXPECT_NE(part->predictions[window + 2].token, whole.predictions[window + 2].token);
}

TEST(Perplexity, StopsWhenAsked) {
  CancelFlag cancel;
  PerplexityOptions options;
  options.cancel = &cancel;
  options.on_progress = [&](float fraction) {
    EXPECT_LT(fraction, 0.9f);
    cancel.request();
  };
  const auto result = read_text({mini::path(mini::kDense)}, perplexity_text(), nullptr, options);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kCancelled);
}

TEST(Perplexity, DoesNotCompareDifferentTexts) {
  const Reading one = read(mini::path(mini::kDense), dialogue());
  const Reading other = read(mini::path(mini::kDense), perplexity_text(), &one);
  EXPECT_FALSE(compare(one, other).ok());
  EXPECT_FALSE(compare({}, {}).ok());
}

TEST(PerplexityText, IsLongEnough) {
  const auto words = std::count(perplexity_text().begin(), perplexity_text().end(), ' ');
  EXPECT_GT(words, 1400);
  EXPECT_THAT(std::string(perplexity_text()), HasSubstr("Le marché de la place Saint-Martin"));
}

}  // namespace
}  // namespace kazeia
