#include "chat/tool_calls.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "chat/reply_format.h"

namespace kazeia {
namespace {

using Json = nlohmann::ordered_json;

Error bad(std::string message) {
  return Error(
      ErrorCode::kUsage, std::move(message),
      R"(Expected [{"type": "function", "function": {"name": ..., "description": ..., "parameters": {...}}}])");
}

bool is_tool_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  };
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), allowed);
}

Result<ToolDefinition> definition_from(const Json& entry, std::size_t index) {
  const std::string where = fmt::format("tool {}", index + 1);
  if (!entry.is_object()) return bad(where + " is not an object");
  const Json* function = &entry;
  if (const auto inner = entry.find("function"); inner != entry.end()) {
    const auto type = entry.find("type");
    if (type != entry.end() && *type != "function") return bad(where + ": only tools of type \"function\" are known");
    if (!inner->is_object()) return bad(where + ": \"function\" is not an object");
    function = &*inner;
  }

  ToolDefinition tool;
  const auto name = function->find("name");
  if (name == function->end() || !name->is_string() || !is_tool_name(name->get_ref<const std::string&>())) {
    return bad(where + ": \"name\" must be 1 to 64 letters, digits, '_', '.' or '-'");
  }
  tool.name = name->get<std::string>();
  if (const auto description = function->find("description"); description != function->end()) {
    if (!description->is_string()) return bad(where + ": \"description\" is not a string");
    tool.description = description->get<std::string>();
  }
  Json parameters = {{"type", "object"}, {"properties", Json::object()}};
  if (const auto given = function->find("parameters"); given != function->end()) {
    if (!given->is_object()) return bad(where + ": \"parameters\" is not a JSON schema object");
    if (!given->empty()) parameters = *given;
  }
  tool.parameters = parameters.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  return tool;
}

}  // namespace

Result<std::vector<ToolDefinition>> parse_tool_definitions(std::string_view json) {
  constexpr int kDeepest = 64;  // writing a value recurses
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kDeepest;
    return !too_deep;
  };
  const Json file = Json::parse(json, watch, /*allow_exceptions=*/false);
  if (file.is_discarded() || too_deep) return bad("the tool definitions are not valid JSON");
  if (!file.is_array() || file.empty()) return bad("the tool definitions are not a JSON array with at least one tool");
  std::vector<ToolDefinition> tools;
  for (const Json& entry : file) {
    KAZEIA_ASSIGN(ToolDefinition tool, definition_from(entry, tools.size()));
    const bool twice =
        std::any_of(tools.begin(), tools.end(), [&](const ToolDefinition& other) { return other.name == tool.name; });
    if (twice) return bad(fmt::format("the tool \"{}\" is defined twice", tool.name));
    tools.push_back(std::move(tool));
  }
  return tools;
}

ReplyParser::ReplyParser(std::unique_ptr<const Format> format) : format_(std::move(format)) {}
ReplyParser::~ReplyParser() = default;

Result<ParsedReply> ReplyParser::parse(const std::string& reply) const {
  try {
    const common_chat_msg message = common_chat_parse(reply, /*is_partial=*/false, format_->parameters);
    ParsedReply parsed;
    parsed.thinking = message.reasoning_content;
    parsed.answer = message.content;
    for (const common_chat_tool_call& call : message.tool_calls) {
      // Upstream's parser is lenient and lets a call pass that a token limit cut in the middle.
      if (!Json::parse(call.arguments, nullptr, /*allow_exceptions=*/false).is_object()) {
        return Error(ErrorCode::kUnsupported, fmt::format("the call of {} is not complete", call.name));
      }
      parsed.tool_calls.push_back({call.name, call.arguments, call.id});
    }
    return parsed;
  } catch (const std::exception& error) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("the reply does not follow the chat template's format: {}", error.what()));
  }
}

}  // namespace kazeia
