// For the tests of this room: the shipped mini models, and dialogues in the form they were trained on.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/generation.h"
#include "engine/model.h"
#include "engine/sampling.h"
#include "engine/timeline.h"

namespace kazeia::mini {

inline constexpr const char* kDense = "kazeia-mini-qwen3-q4_0.gguf";
inline constexpr const char* kHybrid = "kazeia-mini-qwen35-q4_0.gguf";
inline constexpr const char* kDenseF16 = "kazeia-mini-qwen3-f16.gguf";
inline constexpr const char* kHybridF16 = "kazeia-mini-qwen35-f16.gguf";

inline std::string path(const std::string& file) {
  const char* folder = std::getenv("KAZEIA_MODELS");
  return (folder != nullptr ? std::string(folder) : std::string("models")) + "/" + file;
}

// Loaded once per process.
inline std::shared_ptr<const Model> model(const std::string& file) {
  static std::map<std::string, std::shared_ptr<const Model>> loaded;
  std::shared_ptr<const Model>& entry = loaded[file];
  if (entry == nullptr) {
    auto result = Model::load(path(file), {});
    if (!result.ok()) {
      ADD_FAILURE() << result.error().sentence();
      std::abort();  // no test of this executable can run
    }
    entry = std::move(result).value();
  }
  return entry;
}

inline TimelineOptions small_context(std::uint32_t tokens = 1024) {
  TimelineOptions options;
  options.context_tokens = tokens;
  options.decode_threads = 1;
  return options;
}

inline std::unique_ptr<Timeline> timeline(const std::string& file, const TimelineOptions& options = small_context()) {
  auto result = Timeline::create(model(file), options);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().sentence());
  return result.ok() ? std::move(result).value() : nullptr;
}

inline SamplingOptions greedy() {
  SamplingOptions options;
  options.temperature = 0;
  return options;
}

inline std::unique_ptr<Sampler> sampler(const std::string& file, const SamplingOptions& options = greedy()) {
  auto result = Sampler::create(model(file), options);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().sentence());
  return result.ok() ? std::move(result).value() : nullptr;
}

using Turn = std::pair<std::string, std::string>;  // what the user said, what was answered

inline constexpr const char* kNoThought = "<think>\n\n</think>\n\n";

// The history as the chat template writes it, and the open question with an empty thought.
inline std::string history(const std::vector<Turn>& turns) {
  std::string text;
  for (const auto& [user, answer] : turns) {
    text += "<|im_start|>user\n" + user + "<|im_end|>\n<|im_start|>assistant\n" + answer + "<|im_end|>\n";
  }
  return text;
}
inline std::string question(const std::string& user) {
  return "<|im_start|>user\n" + user + "<|im_end|>\n<|im_start|>assistant\n" + kNoThought;
}

inline Tokens tokens(const std::string& file, std::string_view text) {
  auto result = model(file)->tokenize(text, false, true);
  EXPECT_TRUE(result.ok());
  return result.ok() ? std::move(result).value() : Tokens{};
}

// From an empty timeline: reads `prompt` and generates.
inline GenerationResult answer(Timeline& timeline, Sampler& sampler, const std::string& file, const std::string& prompt,
                               const GenerationOptions& options = {}, const TextSink& sink = {}) {
  timeline.reset();
  sampler.reset();
  const Status read = timeline.prefill(tokens(file, prompt));
  EXPECT_TRUE(read.ok()) << (read.ok() ? "" : read.error().sentence());
  auto result = generate(timeline, sampler, options, sink);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().sentence());
  return result.ok() ? std::move(result).value() : GenerationResult{};
}

// At least `count` tokens of dialogue.
inline Tokens long_text(const std::string& file, std::size_t count) {
  std::string text;
  Tokens result;
  for (int i = 0; result.size() < count; ++i) {
    text += history({{"My number is " + std::to_string(10 + i % 90) + ".",
                      "I noted the number " + std::to_string(10 + i % 90) + "."}});
    if (i % 8 == 7) result = tokens(file, text);
  }
  result.resize(count);
  return result;
}

inline std::string file_bytes(const std::string& file_path) {
  std::ifstream in(file_path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// A path in a folder of this process, removed at its end: ctest runs several tests at once, of one file as well.
inline std::string own_path(const std::string& name) {
  struct Folder {
    std::filesystem::path path = testing::TempDir() + "kazeia-" + std::to_string(::getpid());
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() { std::filesystem::remove_all(path); }
  };
  static const Folder folder;
  return folder.path / name;
}

// A changed copy of a model.
inline std::string write_copy(const std::string& name, const std::string& bytes) {
  const std::string copy = own_path(name);
  std::ofstream(copy, std::ios::binary) << bytes;
  return copy;
}

inline std::string replaced(std::string bytes, std::string_view from, std::string_view to) {
  const std::size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos);
  EXPECT_EQ(from.size(), to.size());
  if (at != std::string::npos) bytes.replace(at, from.size(), to);
  return bytes;
}

class EachModel : public testing::TestWithParam<const char*> {};

inline std::string model_test_name(const testing::TestParamInfo<const char*>& info) {
  const std::string_view file = info.param;
  const bool dense = file.find("qwen35") == std::string_view::npos;
  const bool f16 = file.find("f16") != std::string_view::npos;
  return std::string(dense ? "Dense" : "Hybrid") + (f16 ? "F16" : "Q4");
}

}  // namespace kazeia::mini
