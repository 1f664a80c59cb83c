// The generator's own tokeniser, with which the mini models were made, and the engine agree on every id.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

#include "engine/model.h"

namespace {

using Json = nlohmann::json;

TEST(TokenVectors, AreWhatTheEngineMakesOfTheTexts) {
  const std::string path = std::string(std::getenv("KAZEIA_MODELS")) + "/kazeia-mini-qwen35-q4_0.gguf";
  const auto model = kazeia::Model::load(path, {});
  ASSERT_TRUE(model.ok()) << model.error().sentence();
  std::ifstream file(KAZEIA_VECTORS "/tokens.jsonl");
  int texts = 0;
  for (std::string line; std::getline(file, line); ++texts) {
    const Json record = Json::parse(line);
    const auto ids = (*model)->tokenize(record["text"].get<std::string>(), false, true);
    ASSERT_TRUE(ids.ok()) << line;
    EXPECT_EQ(*ids, record["ids"].get<kazeia::Tokens>()) << record["text"];
  }
  EXPECT_GE(texts, 75);
}

}  // namespace
