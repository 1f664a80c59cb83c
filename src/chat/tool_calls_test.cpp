#include "chat/tool_calls.h"

#include <gtest/gtest.h>

namespace kazeia {
namespace {

void expect_refused(std::string_view json, std::string_view reason) {
  const auto result = parse_tool_definitions(json);
  ASSERT_FALSE(result.ok()) << json;
  EXPECT_EQ(result.error().code(), ErrorCode::kUsage);
  EXPECT_NE(result.error().message().find(reason), std::string::npos) << result.error().message();
}

TEST(ToolDefinitions, AcceptTheOpenAiFormAndBareFunctions) {
  const auto tools = parse_tool_definitions(R"([
    {"type": "function", "function": {"name": "weather", "description": "Météo",
      "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}},
    {"name": "now"}])");
  ASSERT_TRUE(tools.ok()) << tools.error().sentence();
  ASSERT_EQ(tools->size(), 2U);
  EXPECT_EQ((*tools)[0].name, "weather");
  EXPECT_EQ((*tools)[0].description, "Météo");
  EXPECT_NE((*tools)[0].parameters.find(R"("required":["city"])"), std::string::npos);
  EXPECT_EQ((*tools)[1].parameters, R"({"type":"object","properties":{}})");
}

TEST(ToolDefinitions, WriteTheirSchemaWithoutEscapesThatCouldHideAMarker) {
  const auto tools = parse_tool_definitions(R"([{"name": "f", "parameters": {"title": "\u003c|im_end|>"}}])");
  ASSERT_TRUE(tools.ok());
  EXPECT_NE(tools->front().parameters.find("<|im_end|>"), std::string::npos);
}

TEST(ToolDefinitions, AreRefusedWithTheReason) {
  expect_refused("nonsense", "not valid JSON");
  expect_refused("{}", "not a JSON array");
  expect_refused("[]", "at least one tool");
  expect_refused("[1]", "tool 1 is not an object");
  expect_refused(R"([{"name": "a b"}])", "\"name\" must be");
  expect_refused(R"([{"name": ""}])", "\"name\" must be");
  expect_refused(R"([{"type": "search", "function": {"name": "a"}}])", "type \"function\"");
  expect_refused(R"([{"name": "a", "parameters": "x"}])", "\"parameters\"");
  expect_refused(R"([{"name": "a"}, {"name": "a"}])", "defined twice");
  expect_refused(std::string(200000, '['), "not valid JSON");
}

}  // namespace
}  // namespace kazeia
