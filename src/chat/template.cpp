#include "chat/template.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chat.h"
#include "chat/control_text.h"
#include "chat/reply_format.h"
#include "log.h"

namespace kazeia {
namespace {

constexpr std::string_view kRunRaw = "Use `kazeia run --raw` to send text as it is";

// The reason in an exception of upstream's, as one line: it surrounds it with where and with source excerpts.
std::string reason_in(std::string_view text) {
  for (const std::string_view lead : {"\nError: ", "Jinja Exception: "}) {
    const std::size_t at = text.rfind(lead);
    if (at != std::string_view::npos) text.remove_prefix(at + lead.size());
  }
  while (!text.empty() && text.front() == '\n') text.remove_prefix(1);
  text = text.substr(0, text.find('\n'));
  while (!text.empty() && (text.back() == '.' || text.back() == ':' || text.back() == ' ')) text.remove_suffix(1);
  return std::string(text);
}

// JSON without escapes that could hide a marker from ControlText; `text` itself if it is not JSON.
std::string plain_json(const std::string& text) {
  using Json = nlohmann::ordered_json;
  const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return text;
  return value.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

common_chat_msg to_upstream(const Message& message, const ControlText& control) {
  common_chat_msg out;
  out.role = role_name(message.role);
  out.content = control.shield(message.content);
  out.reasoning_content = control.shield(message.thinking);
  out.tool_name = control.shield(message.tool_name);
  out.tool_call_id = control.shield(message.tool_call_id);
  for (const ToolCall& call : message.tool_calls) {
    out.tool_calls.push_back(
        {control.shield(call.name), control.shield(plain_json(call.arguments)), control.shield(call.id)});
  }
  return out;
}

std::vector<std::string_view> all_texts(const Conversation& conversation, std::span<const ToolDefinition> tools,
                                        const std::string& source) {
  std::vector<std::string_view> texts{source};
  for (const Message& message : conversation.messages()) {
    texts.insert(texts.end(), {message.content, message.thinking, message.tool_name, message.tool_call_id});
    for (const ToolCall& call : message.tool_calls) texts.insert(texts.end(), {call.name, call.arguments, call.id});
  }
  for (const ToolDefinition& tool : tools) texts.insert(texts.end(), {tool.description, tool.parameters});
  return texts;
}

// Whether the prompt leaves a thought open: its last start marker has no end marker behind it.
bool leaves_thinking_open(std::string_view generation_prompt, const ReplyMarkers& markers) {
  if (markers.thinking_start.empty()) return false;
  const std::size_t start = generation_prompt.rfind(markers.thinking_start);
  if (start == std::string_view::npos) return false;
  for (const std::string& end : markers.thinking_ends) {
    if (generation_prompt.find(end, start) != std::string_view::npos) return false;
  }
  return true;
}

ReplyMarkers markers_of(const common_chat_params& rendered, const std::string& source, bool has_tools) {
  ReplyMarkers markers;
  markers.thinking_start = rendered.thinking_start_tag;
  markers.thinking_ends = rendered.thinking_end_tags;
  // Upstream finds the markers by comparing renderings with and without a thought; a template that drops every
  // thought from history but opens one in the generation prompt shows no difference.
  constexpr std::string_view kStart = "<think>";
  constexpr std::string_view kEnd = "</think>";
  if (markers.thinking_start.empty() && source.find(kStart) != std::string::npos &&
      source.find(kEnd) != std::string::npos) {
    markers.thinking_start = kStart;
    markers.thinking_ends = {std::string(kEnd)};
  }
  markers.thinking_open = leaves_thinking_open(rendered.generation_prompt, markers);
  if (has_tools) {
    for (const common_grammar_trigger& trigger : rendered.grammar_triggers) {
      if (trigger.type != COMMON_GRAMMAR_TRIGGER_TYPE_WORD) continue;
      // White space around a marker varies from model to model.
      const std::size_t begin = trigger.value.find_first_not_of(" \n");
      const std::size_t end = trigger.value.find_last_not_of(" \n");
      if (begin != std::string::npos) markers.tool_starts.push_back(trigger.value.substr(begin, end - begin + 1));
    }
  }
  return markers;
}

bool is_control(const Model& model, Token token) {
  // A control token has no text of its own.
  return model.piece(token).empty() && !model.piece(token, true).empty();
}

// The control tokens that open a message of the assistant and of the user; one and the same in many templates
// ("<|im_start|>"), and none in some. Found by looking at what the template adds for one more message.
std::vector<Token> opening_tokens(const Model& model, const common_chat_templates* templates) {
  std::vector<Token> openings;
  try {
    const auto message = [](Role role, const char* content) {
      common_chat_msg made;
      made.role = role_name(role);
      made.content = content;
      return made;
    };
    common_chat_templates_inputs inputs;
    const auto tokens = [&](bool opens_answer) {
      inputs.add_generation_prompt = opens_answer;
      const std::string prompt = common_chat_templates_apply(templates, inputs).prompt;
      return model.tokenize(prompt, /*add_special=*/false, /*parse_special=*/true);
    };
    const auto first_added = [&](const Result<Tokens>& before, const Result<Tokens>& after) {
      if (!before.ok() || !after.ok()) return;
      std::size_t at = 0;
      while (at < before->size() && at < after->size() && (*before)[at] == (*after)[at]) ++at;
      while (at < after->size() && !is_control(model, (*after)[at])) ++at;
      if (at < after->size()) openings.push_back((*after)[at]);
    };
    inputs.messages = {message(Role::kUser, "?")};
    first_added(tokens(false), tokens(true));
    inputs.messages.push_back(message(Role::kAssistant, "!"));
    const Result<Tokens> answered = tokens(false);
    inputs.messages.push_back(message(Role::kUser, "?"));
    first_added(answered, tokens(false));
  } catch (const std::exception&) {
    // A template that refuses such a conversation opens its messages in a way of its own.
  }
  return openings;
}

}  // namespace

struct ChatTemplate::State {
  std::shared_ptr<const Model> model;
  common_chat_templates_ptr templates;
  std::string source;
  ControlText control;
  std::vector<Token> openings;  // of messages, "<|im_start|>"
};

ChatTemplate::ChatTemplate(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::create(std::shared_ptr<const Model> model,
                                                           const std::string& jinja_source) {
  const std::string source = jinja_source.empty() ? model->chat_template() : jinja_source;
  if (source.empty()) {
    return Error(ErrorCode::kUnsupported, fmt::format("'{}' has no chat template", model->path()),
                 std::string(kRunRaw));
  }
  // Upstream reports on its own log what it throws as well.
  common_log_set_verbosity_thold(LOG_LEVEL_OUTPUT);
  try {
    common_chat_templates_ptr templates = common_chat_templates_init(model->raw(), jinja_source);
    ControlText control(*model, source);
    std::vector<Token> openings = opening_tokens(*model, templates.get());
    return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::make_unique<State>(
        State{std::move(model), std::move(templates), source, std::move(control), std::move(openings)})));
  } catch (const std::exception& error) {
    std::string reason = error.what();
    try {  // upstream loses the reason on the way out of the call above
      const common_chat_template again(source, "", "");
    } catch (const std::exception& original) {
      reason = original.what();
    }
    return Error(ErrorCode::kUnsupported,
                 fmt::format("the chat template in '{}' cannot be used: {}", model->path(), reason_in(reason)),
                 std::string(kRunRaw));
  }
}

Result<RenderedPrompt> ChatTemplate::render(const Conversation& conversation, const RenderOptions& options) const {
  if (conversation.empty()) return Error(ErrorCode::kUsage, "the conversation is empty", "Say something first");
  const bool has_tools = !options.tools.empty();
  ControlText control = state_->control;
  control.choose_mark(all_texts(conversation, options.tools, state_->source));

  try {
    common_chat_templates_inputs inputs;
    for (const Message& message : conversation.messages()) inputs.messages.push_back(to_upstream(message, control));
    for (const ToolDefinition& tool : options.tools) {
      inputs.tools.push_back(
          {tool.name, control.shield(tool.description), control.shield(plain_json(tool.parameters))});
    }
    inputs.parallel_tool_calls = has_tools;
    inputs.add_generation_prompt = options.add_generation_prompt;
    inputs.enable_thinking = options.thinking;
    inputs.reasoning_format = COMMON_REASONING_FORMAT_DEEPSEEK;
    const common_chat_params rendered = common_chat_templates_apply(state_->templates.get(), inputs);

    RenderedPrompt prompt;
    prompt.markers = markers_of(rendered, state_->source, has_tools);
    prompt.stop_strings = rendered.additional_stops;
    std::vector<std::string> pieces = control.split(rendered.prompt);
    const bool closes = rendered.generation_prompt.find(prompt.markers.thinking_start) != std::string::npos;
    if (options.open_thinking && options.thinking && !prompt.markers.thinking_start.empty() && !closes) {
      pieces.back() += prompt.markers.thinking_start + "\n";
      prompt.markers.thinking_open = true;
    }
    bool first = true;
    for (const std::string& piece : pieces) {
      KAZEIA_ASSIGN(const Tokens tokens, state_->model->tokenize(piece, /*add_special=*/first, /*parse_special=*/true));
      prompt.tokens.insert(prompt.tokens.end(), tokens.begin(), tokens.end());
      prompt.text += piece;
      first = false;
    }
    for (std::size_t i = 0; i < prompt.tokens.size(); ++i) {
      if (std::ranges::find(state_->openings, prompt.tokens[i]) != state_->openings.end()) {
        prompt.message_starts.push_back(i);
      }
    }
    if (has_tools) {
      auto format = std::make_unique<ReplyParser::Format>();
      format->parameters = common_chat_parser_params(rendered);
      format->parameters.reasoning_format = inputs.reasoning_format;
      format->parameters.parser.load(rendered.parser);
      prompt.parser = std::make_shared<const ReplyParser>(std::move(format));
      prompt.tool_grammar = rendered.grammar;
    }
    return prompt;
  } catch (const std::exception& error) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("the chat template refused the conversation: {}", reason_in(error.what())),
                 std::string(kRunRaw));
  }
}

}  // namespace kazeia
