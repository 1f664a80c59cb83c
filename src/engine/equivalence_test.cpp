// The engine against upstream's plain API, written out here with its own model and context: greedy output must be
// the same, token for token.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/backend.h"
#include "engine/mini_prompts.h"
#include "llama.h"

namespace kazeia {
namespace {

constexpr int kMaxAnswer = 64;

class PlainLoop {
 public:
  explicit PlainLoop(const std::string& path) {
    initialise_backend();
    llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = 0;
    model_.reset(llama_model_load_from_file(path.c_str(), model_params));
    llama_context_params context_params = llama_context_default_params();
    context_params.n_ctx = 1024;
    context_params.n_threads = 1;
    context_params.n_threads_batch = 1;
    context_.reset(llama_init_from_model(model_.get(), context_params));
  }

  Tokens answer(const std::string& prompt) {
    const llama_vocab* vocabulary = llama_model_get_vocab(model_.get());
    const auto length = static_cast<std::int32_t>(prompt.size());
    Tokens input(prompt.size() + 8);
    const std::int32_t count = llama_tokenize(vocabulary, prompt.data(), length, input.data(),
                                              static_cast<std::int32_t>(input.size()), false, true);
    EXPECT_GT(count, 0);
    input.resize(static_cast<std::size_t>(count));
    llama_memory_clear(llama_get_memory(context_.get()), true);
    EXPECT_EQ(llama_decode(context_.get(), llama_batch_get_one(input.data(), count)), 0);
    Tokens output;
    while (output.size() < kMaxAnswer) {
      const float* logits = llama_get_logits_ith(context_.get(), -1);
      Token token = static_cast<Token>(std::max_element(logits, logits + llama_vocab_n_tokens(vocabulary)) - logits);
      output.push_back(token);
      if (llama_vocab_is_eog(vocabulary, token)) break;
      EXPECT_EQ(llama_decode(context_.get(), llama_batch_get_one(&token, 1)), 0);
    }
    return output;
  }

 private:
  std::unique_ptr<llama_model, decltype(&llama_model_free)> model_{nullptr, &llama_model_free};
  std::unique_ptr<llama_context, decltype(&llama_free)> context_{nullptr, &llama_free};
};

class Equivalence : public mini::EachModel {};

TEST_P(Equivalence, GreedyOutputEqualsThePlainApiLoopTokenForTokenFor30Prompts) {
  PlainLoop plain(mini::path(GetParam()));
  const auto timeline = mini::timeline(GetParam());
  const auto sampler = mini::sampler(GetParam());
  GenerationOptions options;
  options.max_tokens = kMaxAnswer;
  const std::vector<std::string> all = mini::prompts();
  ASSERT_EQ(all.size(), 30u);
  for (const std::string& prompt : all) {
    const Tokens expected = plain.answer(prompt);
    const GenerationResult result = mini::answer(*timeline, *sampler, GetParam(), prompt, options);
    EXPECT_EQ(result.tokens, expected) << prompt << "\n" << result.text;
    EXPECT_EQ(result.reason, StopReason::kEndOfText) << prompt << "\n" << result.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Engine, Equivalence,
                         testing::Values(mini::kDense, mini::kHybrid, mini::kDenseF16, mini::kHybridF16),
                         mini::model_test_name);

}  // namespace
}  // namespace kazeia
