// Our numbers against upstream's, and our files in upstream's hands.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "ggml.h"
#include "gguf/inspection.h"
#include "gguf/loadable.h"
#include "gguf/synth.h"
#include "gguf/test_file.h"
#include "llama.h"

namespace kazeia::gguf {
namespace {

std::vector<std::string> shipped_models() {
  const char* folder = std::getenv("KAZEIA_MODELS");
  std::vector<std::string> paths;
  if (folder == nullptr) return paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".gguf") paths.push_back(entry.path().string());
  }
  return paths;
}

TEST(TypesOfUpstream, AreAllInOurTableWithTheSameSizes) {
  for (int id = 0; id < GGML_TYPE_COUNT; ++id) {
    const auto type = static_cast<ggml_type>(id);
    const TensorType* ours = find_tensor_type(static_cast<std::uint32_t>(id));
    if (ggml_blck_size(type) == 0) {
      EXPECT_EQ(ours, nullptr) << id;
      EXPECT_NE(removed_tensor_type(static_cast<std::uint32_t>(id)), "") << id;
      continue;
    }
    ASSERT_NE(ours, nullptr) << ggml_type_name(type);
    std::string name = ggml_type_name(type);
    for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    EXPECT_EQ(ours->name, name);
    EXPECT_EQ(ours->block_elements, ggml_blck_size(type)) << name;
    EXPECT_EQ(ours->block_bytes, ggml_type_size(type)) << name;
  }
}

TEST(ShippedModels, PassTheReaderAndTheLoadCheck) {
  const std::vector<std::string> paths = shipped_models();
  ASSERT_FALSE(paths.empty());
  for (const std::string& path : paths) {
    const Result<ModelFile> model = open_gguf(path);
    ASSERT_TRUE(model.ok()) << model.error().sentence();
    const Status status = check_loadable(model->parts());
    EXPECT_TRUE(status.ok()) << path << ": " << status.error().sentence();
  }
}

TEST(ShippedModels, ShowTheirHybridLayers) {
  const std::string folder = std::getenv("KAZEIA_MODELS");
  const Result<ModelFile> hybrid = open_gguf(folder + "/kazeia-mini-qwen35-q4_0.gguf");
  ASSERT_TRUE(hybrid.ok()) << hybrid.error().sentence();
  EXPECT_THAT(inspect(hybrid->parts()).layers, ::testing::ElementsAre(LayerKind::kRecurrent, LayerKind::kRecurrent,
                                                                      LayerKind::kRecurrent, LayerKind::kAttention));
  const Result<ModelFile> dense = open_gguf(folder + "/kazeia-mini-qwen3-q4_0.gguf");
  ASSERT_TRUE(dense.ok()) << dense.error().sentence();
  EXPECT_THAT(inspect(dense->parts()).layers, ::testing::Each(LayerKind::kAttention));
}

TEST(ShippedModels, AreRefusedAtEveryTruncationOfTheirHeader) {
  const std::string folder = std::getenv("KAZEIA_MODELS");
  const std::string bytes = file_text(folder + "/kazeia-mini-qwen35-q4_0.gguf");
  for (std::size_t size = 0; size < bytes.size(); size += size < 70000 ? 97 : 49999) {
    EXPECT_NE(refusal(bytes.substr(0, size)), "") << size;
  }
}

// Loads and decodes with upstream's plain API; the logits after `text`, or nothing.
std::vector<float> upstream_logits(const std::string& path, const std::string& text, std::string* read_back) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params model_params = llama_model_default_params();
  model_params.use_extra_bufts = false;
  const std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
      llama_model_load_from_file(path.c_str(), model_params), &llama_model_free);
  if (model == nullptr) return {};
  const llama_vocab* vocabulary = llama_model_get_vocab(model.get());
  std::vector<llama_token> tokens(512);
  const int count = llama_tokenize(vocabulary, text.data(), static_cast<std::int32_t>(text.size()), tokens.data(),
                                   static_cast<std::int32_t>(tokens.size()), false, true);
  if (count <= 0) return {};
  tokens.resize(static_cast<std::size_t>(count));
  for (const llama_token token : tokens) {
    char piece[64];
    const int size = llama_token_to_piece(vocabulary, token, piece, sizeof(piece), 0, true);
    read_back->append(piece, static_cast<std::size_t>(std::max(size, 0)));
  }
  llama_context_params context_params = llama_context_default_params();
  context_params.n_ctx = 512;
  context_params.n_threads = context_params.n_threads_batch = 1;
  const std::unique_ptr<llama_context, decltype(&llama_free)> context(
      llama_init_from_model(model.get(), context_params), &llama_free);
  if (context == nullptr || llama_decode(context.get(), llama_batch_get_one(tokens.data(), count)) != 0) return {};
  const float* logits = llama_get_logits_ith(context.get(), -1);
  return {logits, logits + llama_vocab_n_tokens(vocabulary)};
}

TEST(SyntheticFile, LoadsTokenisesAndDecodesUpstreamWithSaneLogits) {
  for (const std::uint32_t interval : {4u, 0u}) {
    const Shape shape{"tiny",   interval == 0 ? "qwen3" : "qwen35",
                      8,        256,
                      512,      4,
                      2,        64,
                      30208,    2048,
                      30100,    1e4f,
                      interval, 16,
                      4,        8,
                      32,       4};
    const TestFolder folder;
    const Result<std::uint64_t> written = write_synthetic(shape, folder.at("m.gguf"), {});
    ASSERT_TRUE(written.ok()) << written.error().sentence();
    const std::string text = "<|im_start|>user\nWhat is the capital of Norvège? 日本 12+7\n\n  <|im_end|>\n<think>";
    std::string read_back;
    const std::vector<float> logits = upstream_logits(folder.at("m.gguf"), text, &read_back);
    ASSERT_EQ(logits.size(), shape.vocabulary);
    EXPECT_EQ(read_back, text);
    double squares = 0;
    for (const float logit : logits) {
      ASSERT_TRUE(std::isfinite(logit));
      squares += double{logit} * double{logit};
    }
    const double deviation = std::sqrt(squares / static_cast<double>(logits.size()));
    EXPECT_GT(deviation, 0.2);
    EXPECT_LT(deviation, 5);
  }
}

TEST(Reader, TakesLittleTimeForALargeVocabulary) {
  const Header header = synthetic_header(*find_shape("qwen3.5-4b"));
  const TestFolder folder;
  folder.put("m.gguf", header.serialise());
  std::filesystem::resize_file(folder.at("m.gguf"), header.file_bytes());
  double best_ms = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Result<ModelFile> model = open_gguf(folder.at("m.gguf"));
    ASSERT_TRUE(model.ok());
    EXPECT_TRUE(check_loadable(model->parts()).ok());
    best_ms =
        std::min(best_ms, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  RecordProperty("best_ms", std::to_string(best_ms));
  // 10 times what a quiet machine takes in a release build: a change of order is caught, a busy runner is not.
  EXPECT_LT(best_ms, 500);
}

}  // namespace
}  // namespace kazeia::gguf
