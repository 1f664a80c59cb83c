#include "chat/template.h"

#include <gtest/gtest.h>

#include "chat/mini_model.h"

namespace kazeia {
namespace {

// ChatML with tools and a thought that the model itself opens, the form of the Qwen3 family.
constexpr const char* kToolTemplate = R"({%- if tools %}
{{- '<|im_start|>system\nYou may call these functions:\n<tools>' }}
{%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\n</tools>\nWrite <tool_call>\n{"name": NAME, "arguments": ARGUMENTS}\n</tool_call><|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\n<tool_response>\n' + message.content + '\n</tool_response><|im_end|>\n' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\n' }}
{%- if message.reasoning_content and loop.last %}
{{- '<think>\n' + message.reasoning_content + '\n</think>\n\n' }}
{%- endif %}
{{- message.content }}
{%- if message.tool_calls %}{%- for call in message.tool_calls %}
{{- '\n<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}
{{- '}\n</tool_call>' }}
{%- endfor %}{%- endif %}
{{- '<|im_end|>\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %})";

// A thought that the prompt opens and calls in tags, the form of the Qwen3.5 family.
constexpr const char* kTaggedToolTemplate = R"({%- if tools %}
{{- '<|im_start|>system\nYou may call:\n' }}{%- for tool in tools %}{{- tool | tojson + '\n' }}{%- endfor %}
{{- 'as <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call><|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n<think>\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '\n</think>\n\n' }}{%- endif %}
{%- endif %})";

const std::vector<ToolDefinition> kWeather{
    {"weather", "Weather of a city",
     R"({"type":"object","properties":{"city":{"type":"string"}},"required":["city"]})"}};

Conversation one_question() {
  Conversation conversation;
  conversation.set_system("Be brief.");
  conversation.add_user("What is 1 + 1?");
  return conversation;
}

class TemplateTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    model_ = mini_model(GetParam());
    ASSERT_NE(model_, nullptr);
  }

  RenderedPrompt render(const Conversation& conversation, const RenderOptions& options, const char* source = "") {
    const auto created = ChatTemplate::create(model_, source);
    if (!created.ok()) {
      ADD_FAILURE() << created.error().sentence();
      return {};
    }
    auto prompt = (*created)->render(conversation, options);
    if (!prompt.ok()) {
      ADD_FAILURE() << prompt.error().sentence();
      return {};
    }
    return std::move(prompt).value();
  }

  std::shared_ptr<const Model> model_;
};

TEST_P(TemplateTest, OpensAThoughtInThePrompt) {
  const RenderedPrompt prompt = render(one_question(), {});
  EXPECT_EQ(prompt.text,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is 1 + 1?<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n");
  EXPECT_TRUE(prompt.markers.thinking_open);
  EXPECT_EQ(prompt.markers.thinking_start, "<think>");
  ASSERT_FALSE(prompt.markers.thinking_ends.empty());
  EXPECT_EQ(prompt.parser, nullptr);
}

TEST_P(TemplateTest, ClosesTheThoughtWhenThinkingIsOff) {
  const RenderedPrompt prompt = render(one_question(), {.thinking = false, .tools = {}});
  EXPECT_TRUE(prompt.text.ends_with("<|im_start|>assistant\n<think>\n\n</think>\n\n")) << prompt.text;
  EXPECT_FALSE(prompt.markers.thinking_open);
}

TEST_P(TemplateTest, DropsEarlierThoughts) {
  Conversation conversation = one_question();
  conversation.add({.role = Role::kAssistant, .content = "1 + 1 = 2.", .thinking = "secret thought"});
  conversation.add_user("Thank you.");
  const RenderedPrompt prompt = render(conversation, {});
  EXPECT_EQ(prompt.text.find("secret thought"), std::string::npos);
  EXPECT_NE(prompt.text.find("<|im_start|>assistant\n1 + 1 = 2.<|im_end|>"), std::string::npos);
}

TEST_P(TemplateTest, KnowsAModelThatOpensItsOwnThought) {
  const RenderedPrompt prompt = render(one_question(), {}, kToolTemplate);
  EXPECT_TRUE(prompt.text.ends_with("<|im_start|>assistant\n")) << prompt.text;
  EXPECT_EQ(prompt.markers.thinking_start, "<think>");
  EXPECT_FALSE(prompt.markers.thinking_open);
  const RenderedPrompt opened =
      render(one_question(), {.thinking = true, .tools = {}, .add_generation_prompt = true, .open_thinking = true},
             kToolTemplate);
  EXPECT_EQ(opened.text, prompt.text + "<think>\n");
  EXPECT_TRUE(opened.markers.thinking_open);
}

TEST_P(TemplateTest, ShowsToolsToTheModelAndParsesItsCalls) {
  const RenderedPrompt prompt = render(one_question(), {.thinking = true, .tools = kWeather}, kToolTemplate);
  EXPECT_NE(prompt.text.find("\"weather\""), std::string::npos);
  EXPECT_EQ(prompt.markers.tool_starts, std::vector<std::string>{"<tool_call>"});
  EXPECT_FALSE(prompt.tool_grammar.empty());
  ASSERT_NE(prompt.parser, nullptr);

  const auto reply = prompt.parser->parse(
      "<think>\nI look it up.\n</think>\n\nOne moment.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
      "\"Orléans\"}}\n</tool_call>");
  ASSERT_TRUE(reply.ok()) << reply.error().sentence();
  EXPECT_EQ(reply->thinking.substr(0, 13), "I look it up.");
  EXPECT_EQ(reply->answer.substr(0, 11), "One moment.");
  ASSERT_EQ(reply->tool_calls.size(), 1U);
  EXPECT_EQ(reply->tool_calls[0].name, "weather");
  EXPECT_EQ(reply->tool_calls[0].arguments, R"({"city": "Orléans"})");

  const auto plain = prompt.parser->parse("It rains.");
  ASSERT_TRUE(plain.ok()) << plain.error().sentence();
  EXPECT_EQ(plain->answer, "It rains.");
  EXPECT_TRUE(plain->tool_calls.empty());
  EXPECT_FALSE(prompt.parser->parse("<tool_call>\n{\"name\": \"weather\", \"argu").ok());
}

TEST_P(TemplateTest, ParsesTaggedCallsBehindAThoughtThatThePromptOpened) {
  const std::string call =
      "<tool_call>\n<function=weather>\n<parameter=city>\nOrléans\n</parameter>\n</function>\n</tool_call>";
  for (const bool thinking : {true, false}) {
    const RenderedPrompt prompt =
        render(one_question(), {.thinking = thinking, .tools = kWeather}, kTaggedToolTemplate);
    EXPECT_EQ(prompt.markers.thinking_open, thinking);
    EXPECT_EQ(prompt.markers.tool_starts, std::vector<std::string>{"<tool_call>"});
    ASSERT_NE(prompt.parser, nullptr);
    const auto reply = prompt.parser->parse((thinking ? "I look.\n</think>\n\n" : "") + call);
    ASSERT_TRUE(reply.ok()) << reply.error().sentence();
    ASSERT_EQ(reply->tool_calls.size(), 1U);
    EXPECT_EQ(reply->tool_calls[0].name, "weather");
    EXPECT_NE(reply->tool_calls[0].arguments.find("Orléans"), std::string::npos);
  }
}

TEST_P(TemplateTest, ParsesSeveralCallsInOneReply) {
  const RenderedPrompt prompt = render(one_question(), {.thinking = false, .tools = kWeather}, kToolTemplate);
  ASSERT_NE(prompt.parser, nullptr);
  const std::string call = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";
  const auto reply = prompt.parser->parse(call + "\n" + call);
  ASSERT_TRUE(reply.ok()) << reply.error().sentence();
  EXPECT_EQ(reply->tool_calls.size(), 2U);
}

TEST_P(TemplateTest, RendersCallsAndResultsBack) {
  Conversation conversation = one_question();
  Message call;
  call.role = Role::kAssistant;
  call.tool_calls = {{"weather", R"({"city":"\u003c|im_end|>"})", ""}};
  conversation.add(call);
  conversation.add({.role = Role::kTool, .content = "rain<|im_end|>", .tool_name = "weather"});
  const RenderedPrompt prompt = render(conversation, {.thinking = true, .tools = kWeather}, kToolTemplate);
  EXPECT_NE(prompt.text.find("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"<|im_end|>\"}}"),
            std::string::npos)
      << prompt.text;
  EXPECT_NE(prompt.text.find("<tool_response>\nrain<|im_end|>\n</tool_response>"), std::string::npos);
  const auto end = model_->tokenize("<|im_end|>", false, true);
  ASSERT_TRUE(end.ok());
  // System (tools), system, question, call, result: one real end each, none from what was said.
  EXPECT_EQ(std::count(prompt.tokens.begin(), prompt.tokens.end(), end->front()), 5);
}

TEST_P(TemplateTest, TurnsATemplatesOwnErrorIntoASentence) {
  const auto created = ChatTemplate::create(model_, "{{ raise_exception('only users may speak') }}");
  ASSERT_TRUE(created.ok()) << created.error().sentence();
  const auto prompt = (*created)->render(one_question(), {});
  ASSERT_FALSE(prompt.ok());
  EXPECT_EQ(prompt.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(prompt.error().message().find("only users may speak"), std::string::npos) << prompt.error().message();
  EXPECT_EQ(prompt.error().message().find('\n'), std::string::npos);
}

TEST_P(TemplateTest, RefusesATemplateThatDoesNotParse) {
  const auto created = ChatTemplate::create(model_, "{%- for message in %}{{ message }");
  ASSERT_FALSE(created.ok());
  EXPECT_EQ(created.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(created.error().next().find("--raw"), std::string::npos);
}

TEST_P(TemplateTest, RefusesAnEmptyConversation) {
  const auto created = ChatTemplate::create(model_);
  ASSERT_TRUE(created.ok());
  const auto prompt = (*created)->render(Conversation(), {});
  ASSERT_FALSE(prompt.ok());
  EXPECT_EQ(prompt.error().code(), ErrorCode::kUsage);
}

INSTANTIATE_TEST_SUITE_P(Mini, TemplateTest, testing::Values(kDense, kHybrid),
                         [](const auto& test) { return test.param == kDense ? "Dense" : "Hybrid"; });

}  // namespace
}  // namespace kazeia
