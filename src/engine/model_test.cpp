#include "engine/model.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/mini_models.h"

namespace kazeia {
namespace {

Error load_error(const std::string& path, const ModelOptions& options = {}) {
  const auto result = Model::load(path, options);
  if (result.ok()) {
    ADD_FAILURE() << path << " was loaded";
    return Error(ErrorCode::kUsage, "");
  }
  return result.error();
}

std::string dense_bytes() {
  return mini::file_bytes(mini::path(mini::kDense));
}

// `bytes` with a boolean "qwen3.attention.causal" = false in front of its metadata, and a filler that makes the
// insertion 64 bytes long, so that the tensor data stay aligned.
std::string with_bidirectional_attention(std::string bytes) {
  const auto number = [](std::uint64_t value, std::size_t width) {
    std::string out(width, '\0');
    std::memcpy(out.data(), &value, width);
    return out;
  };
  const std::string key = "qwen3.attention.causal";
  const std::string filler_key = "x.filler";
  std::string entry = number(key.size(), 8) + key + number(7, 4) + number(0, 1);
  entry += number(filler_key.size(), 8) + filler_key + number(8, 4) + number(1, 8) + "f";
  EXPECT_EQ(entry.size(), 64u);
  std::uint64_t count = 0;
  std::memcpy(&count, bytes.data() + 16, 8);
  bytes.replace(16, 8, number(count + 2, 8));
  bytes.insert(24, entry);
  return bytes;
}

TEST(ModelLoad, TellsWhatTheModelIs) {
  const auto model = mini::model(mini::kDense);
  EXPECT_EQ(model->architecture(), "qwen3");
  EXPECT_EQ(model->placement(), Placement::kCpu);
  EXPECT_EQ(placement_name(model->placement()), "cpu");
  EXPECT_EQ(model->vocabulary_size(), 2048);
  EXPECT_EQ(model->trained_context_tokens(), 2048u);
  EXPECT_GT(model->weight_bytes(), 1'000'000u);
  EXPECT_LT(model->weight_bytes(), std::filesystem::file_size(model->path()));
  EXPECT_GT(model->load_ms(), 0);
  EXPECT_NE(model->chat_template().find("<|im_start|>"), std::string::npos);
}

TEST(ModelLoad, KnowsWhichModelsKeepARecurrentState) {
  EXPECT_FALSE(mini::model(mini::kDense)->has_recurrent_state());
  EXPECT_TRUE(mini::model(mini::kHybrid)->has_recurrent_state());
  EXPECT_EQ(mini::model(mini::kHybrid)->architecture(), "qwen35");
}

TEST(ModelLoad, ReportsProgressThatOnlyGrowsAndReachesTheEnd) {
  std::vector<float> seen;
  ModelOptions options;
  options.on_progress = [&seen](float fraction) { seen.push_back(fraction); };
  ASSERT_TRUE(Model::load(mini::path(mini::kDense), options).ok());
  ASSERT_FALSE(seen.empty());
  EXPECT_LE(seen.size(), 101u);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_FLOAT_EQ(seen.back(), 1.0f);
}

TEST(ModelLoad, StopsWhenItIsCancelled) {
  CancelFlag cancel;
  ModelOptions options;
  options.cancel = &cancel;
  options.on_progress = [&cancel](float) { cancel.request(); };
  EXPECT_EQ(load_error(mini::path(mini::kDense), options).code(), ErrorCode::kCancelled);
}

TEST(ModelLoad, RefusesAMissingFileADirectoryAndSomethingElse) {
  EXPECT_EQ(load_error(mini::path("no-such-model.gguf")).code(), ErrorCode::kFile);
  EXPECT_EQ(load_error(testing::TempDir()).code(), ErrorCode::kFile);
  EXPECT_EQ(load_error(mini::write_copy("text.gguf", "This is a letter, not a model.")).code(), ErrorCode::kFile);
  EXPECT_EQ(load_error(mini::write_copy("empty.gguf", "")).code(), ErrorCode::kFile);
}

TEST(ModelLoad, RefusesATruncatedFile) {
  const std::string bytes = dense_bytes();
  for (const std::size_t kept : {bytes.size() - 1, bytes.size() / 2, bytes.size() / 50, std::size_t{20}}) {
    EXPECT_EQ(load_error(mini::write_copy("truncated.gguf", bytes.substr(0, kept))).code(), ErrorCode::kFile) << kept;
  }
}

TEST(ModelLoad, NamesAnArchitectureThatItDoesNotKnow) {
  // The value, not one of the keys that begin with it.
  std::string bytes = dense_bytes();
  const std::size_t at = bytes.find("general.architecture");
  ASSERT_NE(at, std::string::npos);
  const std::size_t value = bytes.find("qwen3", at);
  bytes.replace(value, 5, "qwenZ");
  for (std::size_t key = bytes.find("qwen3."); key != std::string::npos; key = bytes.find("qwen3.", key)) {
    bytes.replace(key, 5, "qwenZ");
  }
  const Error error = load_error(mini::write_copy("unknown-architecture.gguf", bytes));
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_NE(error.message().find("'qwenZ'"), std::string::npos) << error.message();
}

TEST(ModelLoad, RefusesAModelWithoutATokenizer) {
  std::string bytes = dense_bytes();
  const std::size_t at = bytes.find("gpt2", bytes.find("tokenizer.ggml.model"));
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 4, "none");
  const Error error = load_error(mini::write_copy("no-tokenizer.gguf", bytes));
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.sentence();
}

TEST(ModelLoad, RefusesAModelThatDoesNotWriteTokenByToken) {
  const Error error = load_error(mini::write_copy("bidirectional.gguf", with_bidirectional_attention(dense_bytes())));
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_NE(error.message().find("embedding"), std::string::npos) << error.message();
}

TEST(ModelLoad, QuotesUpstreamWhenATensorIsMissing) {
  const std::string bytes = mini::replaced(dense_bytes(), "blk.1.attn_q.weight", "blk.1.attn_Q.weight");
  const Error error = load_error(mini::write_copy("missing-tensor.gguf", bytes));
  EXPECT_TRUE(error.code() == ErrorCode::kEngine || error.code() == ErrorCode::kFile);
  EXPECT_NE(error.message().find("attn_"), std::string::npos) << error.message();
}

TEST(ModelLoad, WorksWithoutAChatTemplate) {
  const std::string bytes = mini::replaced(dense_bytes(), "tokenizer.chat_template", "tokenizer.chat_Template");
  const auto result = Model::load(mini::write_copy("no-template.gguf", bytes), {});
  ASSERT_TRUE(result.ok()) << result.error().sentence();
  EXPECT_EQ(result.value()->chat_template(), "");
}

TEST(ModelLoad, RefusesWeightsAboveTheMemoryThatIsFree) {
  ModelOptions options;
  options.memory_budget_bytes = 1'000'000;
  const Error error = load_error(mini::path(mini::kDense), options);
  EXPECT_EQ(error.code(), ErrorCode::kTooLarge);
  EXPECT_NE(error.message().find("are free"), std::string::npos) << error.message();
}

TEST(ModelTokens, GoToTextAndBack) {
  const auto model = mini::model(mini::kDense);
  for (const std::string text :
       {"Hello!", "Éteignez l'écran, baissez la lumière.", "🙂 日本", " two  spaces\n\n", ""}) {
    const auto tokens = model->tokenize(text, false, false);
    ASSERT_TRUE(tokens.ok());
    std::string back;
    for (const Token token : tokens.value()) back += model->piece(token);
    EXPECT_EQ(back, text);
  }
}

TEST(ModelTokens, ReadControlTokensOnlyWhenAsked) {
  const auto model = mini::model(mini::kDense);
  const auto special = model->tokenize("<|im_end|>", false, true);
  const auto typed = model->tokenize("<|im_end|>", false, false);
  ASSERT_TRUE(special.ok() && typed.ok());
  ASSERT_EQ(special.value().size(), 1u);
  EXPECT_GT(typed.value().size(), 1u);
  const Token end = special.value().front();
  EXPECT_TRUE(model->ends_generation(end));
  EXPECT_EQ(model->piece(end), "");
  EXPECT_EQ(model->piece(end, true), "<|im_end|>");
}

TEST(ModelTokens, OutsideTheVocabularyHaveNoTextAndEndNothing) {
  const auto model = mini::model(mini::kDense);
  for (const Token token : {-1, 2048, 1 << 30}) {
    EXPECT_EQ(model->piece(token, true), "");
    EXPECT_FALSE(model->ends_generation(token));
  }
}

}  // namespace
}  // namespace kazeia
