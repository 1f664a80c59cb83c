#include "engine/constraint.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/mini_models.h"

namespace kazeia {
namespace {

constexpr const char* kPersonSchema = R"({
  "type": "object",
  "properties": {
    "name": {"type": "string", "minLength": 1, "maxLength": 12},
    "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "colors": {"type": "array", "items": {"enum": ["red", "bleu"]}, "maxItems": 3},
    "friendly": {"type": "boolean"}
  },
  "required": ["name", "age", "colors", "friendly"],
  "additionalProperties": false
})";

Error refusal(const SamplingOptions& options) {
  const auto result = Sampler::create(mini::model(mini::kDense), options);
  if (result.ok()) {
    ADD_FAILURE() << "accepted: " << options.grammar << options.json_schema;
    return Error(ErrorCode::kEngine, "");
  }
  EXPECT_EQ(result.error().code(), ErrorCode::kUsage);
  return result.error();
}

Error refused_grammar(const std::string& grammar) {
  SamplingOptions options;
  options.grammar = grammar;
  return refusal(options);
}

Error refused_schema(const std::string& schema) {
  SamplingOptions options;
  options.json_schema = schema;
  return refusal(options);
}

std::unique_ptr<Constraint> constraint(const std::string& gbnf) {
  auto result = Constraint::create(mini::model(mini::kDense), gbnf);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().sentence());
  return result.ok() ? std::move(result).value() : nullptr;
}

Token single(const std::string& text) {
  const Tokens tokens = mini::tokens(mini::kDense, text);
  EXPECT_EQ(tokens.size(), 1u) << text;
  return tokens.empty() ? -1 : tokens.front();
}

TEST(Grammar, ThatDoesNotParseIsRefusedWithTheReason) {
  testing::internal::CaptureStderr();
  EXPECT_NE(refused_grammar("root ::= \"a").message().find("unexpected end of input"), std::string::npos);
  EXPECT_NE(refused_grammar("root = \"a\"").message().find("expecting ::="), std::string::npos);
  EXPECT_NE(refused_grammar("root ::= answer").message().find("'answer' is not defined"), std::string::npos);
  EXPECT_NE(refused_grammar("answer ::= \"a\"").message().find("no rule named 'root'"), std::string::npos);
  EXPECT_NE(refused_grammar("root ::= root \"a\" | \"b\"").message().find("left recursion"), std::string::npos);
  EXPECT_NE(refused_grammar("root ::= \"a\"{1,2001}").message().find("more than 2000 times"), std::string::npos);
  EXPECT_NE(refused_grammar("root ::= \"a\"{99999999999999999999}").message().find("more than"), std::string::npos);
  EXPECT_NE(refused_grammar("root ::= \"a\"{ 5 , 2 }").message().find("at least 5 and at most 2"), std::string::npos);
  EXPECT_NE(refused_grammar("# nothing but a remark").message().find("root"), std::string::npos);
  EXPECT_NE(refused_grammar(std::string("root ::= \"a\"\0x", 14)).message().find("zero byte"), std::string::npos);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "upstream's parser prints what it refuses";
}

TEST(Grammar, ThatIsNestedTooDeeplyOrTooLongIsRefusedBeforeItIsParsed) {
  const std::string deep = "root ::= " + std::string(100000, '(') + "\"a\"" + std::string(100000, ')');
  EXPECT_NE(refused_grammar(deep).message().find("nested"), std::string::npos);
  EXPECT_NE(refused_grammar("root ::= \"" + std::string(2u << 20, 'a') + "\"").message().find("bytes"),
            std::string::npos);
}

TEST(JsonSchema, ThatCannotBeUsedIsRefusedWithTheReason) {
  EXPECT_NE(refused_schema("{\"type\": ").message().find("JSON schema"), std::string::npos);
  EXPECT_NE(refused_schema("not json").message().find("JSON schema"), std::string::npos);
  for (const std::string schema : {R"({"type": "elephant"})", R"({"$ref": "https://example.com/schema.json"})",
                                   R"({"type": "string", "pattern": "^((($"})"}) {
    EXPECT_NE(refused_schema(schema).message().find("JSON schema"), std::string::npos) << schema;
  }
  EXPECT_NE(refused_schema(R"({"type": "string", "minLength": 5, "maxLength": 2})").message().find("at most 2"),
            std::string::npos);
  EXPECT_NE(refused_schema(std::string(100000, '[') + std::string(100000, ']')).message().find("nested"),
            std::string::npos);
}

TEST(JsonSchema, WithAPatternThatWouldBeIgnoredIsRefusedWhereverItIs) {
  const std::string loose = R"({"type": "string", "pattern": "abc"})";
  for (const std::string& schema :
       {loose, R"({"type": "array", "items": )" + loose + "}",
        R"({"type": "object", "properties": {"a": )" + loose + "}}", R"({"anyOf": [{"type": "null"}, )" + loose + "]}",
        R"({"$ref": "#/$defs/a", "$defs": {"a": )" + loose + "}}",
        R"({"type": "object", "additionalProperties": )" + loose + "}"}) {
    EXPECT_NE(refused_schema(schema).message().find("'abc'"), std::string::npos) << schema;
  }
  SamplingOptions options;
  options.json_schema = R"({"type": "string", "pattern": "^[a-c]{2}-[0-9]+$"})";
  EXPECT_TRUE(Sampler::create(mini::model(mini::kDense), options).ok());
}

TEST(Grammar, MayContainBracketsInItsLiteralsClassesAndComments) {
  const std::string brackets(200, '(');
  const auto result =
      Constraint::create(mini::model(mini::kDense),
                         "# {5,2} " + brackets + "\nroot ::= \"{5,2}\\\"{9,1}" + brackets + "\" [{(9,1}\\]]{1,2}");
  EXPECT_TRUE(result.ok()) << result.error().sentence();
}

TEST(Constraint, AllowsWhatTheGrammarAllowsAndKnowsWhenItIsComplete) {
  const auto grammar = constraint("root ::= [0-9] [0-9]");
  const Token one = single("1");
  const Token end = single("<|im_end|>");
  EXPECT_TRUE(grammar->allows(one));
  EXPECT_FALSE(grammar->allows(single("a")));
  EXPECT_FALSE(grammar->allows(end));
  ASSERT_TRUE(grammar->accept(one).ok());
  EXPECT_FALSE(grammar->complete());
  ASSERT_TRUE(grammar->accept(one).ok());
  EXPECT_TRUE(grammar->complete());
  EXPECT_TRUE(grammar->allows(end));
  EXPECT_FALSE(grammar->allows(one));
  grammar->reset();
  EXPECT_FALSE(grammar->complete());
  EXPECT_TRUE(grammar->allows(one));
}

TEST(Constraint, ThatMayEndButAlsoGoOnIsNotComplete) {
  const auto grammar = constraint("root ::= [0-9]*");
  EXPECT_TRUE(grammar->allows(single("<|im_end|>")));
  EXPECT_FALSE(grammar->complete());
}

TEST(Constraint, RefusesATokenThatDoesNotContinueIt) {
  const auto grammar = constraint("root ::= \"yes\"");
  const Status status = grammar->accept(single("a"));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kEngine);
  const Status early_end = grammar->accept(single("<|im_end|>"));
  ASSERT_FALSE(early_end.ok()) << "upstream would abort the process";
}

TEST(Constraint, ControlTokensAreNoTextUnlessTheGrammarNamesTokens) {
  const Token start = single("<|im_start|>");
  EXPECT_FALSE(constraint("root ::= .*")->allows(start));
  const auto named = constraint("root ::= <[" + std::to_string(start) + "]> \"a\"");
  EXPECT_TRUE(named->allows(start));
}

TEST(Constraint, AllowsNothingAfterUpstreamContradictedItselfUntilItIsReset) {
  // Upstream allows tokens that reach into a token element with the rest of their text, and then refuses them.
  const auto grammar = constraint("root ::= \"a\" !<[5]>");
  for (Token token = 0; token < 2048; ++token) {
    if (!grammar->allows(token)) continue;
    if (!grammar->accept(token).ok()) {
      EXPECT_FALSE(grammar->allows(token));
      EXPECT_FALSE(grammar->complete());
    }
    grammar->reset();
    EXPECT_TRUE(grammar->allows(token));
  }
}

TEST(Sampler, ReportsWhenTheGrammarAllowsNothingThatTheModelOffers) {
  SamplingOptions options = mini::greedy();
  options.grammar = "root ::= \"a\"";
  const auto sampler = mini::sampler(mini::kDense, options);
  std::vector<float> logits(2048, -std::numeric_limits<float>::infinity());
  logits[static_cast<std::size_t>(single("b"))] = 1.0f;
  const auto token = sampler->sample(logits);
  ASSERT_FALSE(token.ok());
  EXPECT_EQ(token.error().code(), ErrorCode::kEngine);
  EXPECT_EQ(sampler->sample(logits, false).value(), single("b")) << "unconstrained, it is free";
}

class Constrained : public mini::EachModel {};

TEST_P(Constrained, OutputIsValidJsonIn50Of50Tries) {
  const auto timeline = mini::timeline(GetParam());
  SamplingOptions options;
  options.temperature = 1.8f;
  options.top_k = 0;
  options.top_p = 1;
  options.json_schema = kPersonSchema;
  GenerationOptions limits;
  limits.max_tokens = 600;
  int valid = 0;
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    options.seed = seed;
    const auto sampler = mini::sampler(GetParam(), options);
    const GenerationResult result =
        mini::answer(*timeline, *sampler, GetParam(), mini::question("Who are you?"), limits);
    const auto json = nlohmann::json::parse(result.text, nullptr, false);
    const bool good = !json.is_discarded() && json.is_object() && json.size() == 4 && json["name"].is_string() &&
                      json["age"].is_number_integer() && json["age"] >= 0 && json["age"] <= 120 &&
                      json["colors"].is_array() && json["colors"].size() <= 3 && json["friendly"].is_boolean();
    EXPECT_TRUE(good) << result.text;
    EXPECT_EQ(result.reason, StopReason::kConstraint);
    valid += good ? 1 : 0;
  }
  EXPECT_EQ(valid, 50);
}

TEST_P(Constrained, OutputFollowsAGbnfGrammar) {
  const auto timeline = mini::timeline(GetParam());
  SamplingOptions options = mini::greedy();
  options.grammar = "root ::= (\"oui\" | \"non\") \", \" [0-9]{3} \".\"";
  const auto sampler = mini::sampler(GetParam(), options);
  const GenerationResult result = mini::answer(*timeline, *sampler, GetParam(), mini::question("Bonjour !"));
  EXPECT_EQ(result.reason, StopReason::kConstraint);
  EXPECT_THAT(result.text, testing::MatchesRegex("(oui|non), [0-9][0-9][0-9]\\."));
}

TEST_P(Constrained, StartsAfterTheThought) {
  const auto timeline = mini::timeline(GetParam());
  SamplingOptions options = mini::greedy();
  options.grammar = "root ::= \"{\" [0-9]{1,3} \"}\"";
  const auto sampler = mini::sampler(GetParam(), options);
  GenerationOptions limits;
  limits.max_tokens = 100;
  limits.constrain_after = "</think>";
  const std::string open =
      "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n<think>\n";
  const GenerationResult result = mini::answer(*timeline, *sampler, GetParam(), open, limits);
  const std::size_t end = result.text.find("</think>");
  ASSERT_NE(end, std::string::npos) << result.text;
  EXPECT_NE(result.text.substr(0, end).find("The capital is Paris."), std::string::npos) << result.text;
  EXPECT_THAT(result.text.substr(end + 8), testing::MatchesRegex("\\{[0-9]+\\}"));
  EXPECT_EQ(result.reason, StopReason::kConstraint);
}

INSTANTIATE_TEST_SUITE_P(Sampler, Constrained, testing::Values(mini::kDense, mini::kHybrid), mini::model_test_name);

}  // namespace
}  // namespace kazeia
