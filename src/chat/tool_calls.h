// Tools: what a program offers, and the calls that a model's reply asks for.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "chat/conversation.h"

namespace kazeia {

// One function that the model may ask for. Nothing here runs it.
struct ToolDefinition {
  std::string name;         // [A-Za-z0-9_.-], 1 to 64 characters
  std::string description;  // may be empty
  std::string parameters;   // JSON schema of an object, as text
};

// OpenAI's form: an array of {"type": "function", "function": {"name", "description", "parameters"}}; the bare inner
// objects are accepted too. kUsage with what is wrong and which tool.
Result<std::vector<ToolDefinition>> parse_tool_definitions(std::string_view json);

// A reply taken apart by the format that the chat template prescribes.
struct ParsedReply {
  std::string thinking;
  std::string answer;
  std::vector<ToolCall> tool_calls;
};

// Knows the format of one rendered prompt's reply. Immutable; made by ChatTemplate::render().
class ReplyParser {
 public:
  struct Format;  // upstream's description
  explicit ReplyParser(std::unique_ptr<const Format> format);
  ~ReplyParser();

  // The whole reply, thinking and markers included. kUnsupported if the text does not follow the format: the
  // model wrote something else, and the text is then best shown as it is.
  Result<ParsedReply> parse(const std::string& reply) const;

 private:
  std::unique_ptr<const Format> format_;
};

}  // namespace kazeia
