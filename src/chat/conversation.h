// What was said: messages in order, and their form on disk.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kazeia {

enum class Role { kSystem, kUser, kAssistant, kTool };
std::string_view role_name(Role role);  // "system", "user", "assistant", "tool"

// One call that the model asks for.
struct ToolCall {
  std::string name;
  std::string arguments;  // a JSON object as text
  std::string id;         // empty if the model's format has none

  bool operator==(const ToolCall&) const = default;
};

struct Message {
  Role role = Role::kUser;
  std::string content{};               // UTF-8
  std::string thinking{};              // assistant only; whether a later prompt has it is the template's decision
  std::vector<ToolCall> tool_calls{};  // assistant only
  std::string tool_name{};             // tool only: which tool answered
  std::string tool_call_id{};          // tool only: which call it answers; may be empty

  bool operator==(const Message&) const = default;
};

// Messages in the order in which they were said; a system message only at the front. The file form is
//   {"format": "kazeia-conversation", "version": 1, "messages": [{"role": "user", "content": "..."}, ...]}
// with "thinking" and "tool_calls" on assistant messages and "name" and "tool_call_id" on tool messages.
class Conversation {
 public:
  // Adds, replaces or (empty text) removes the system message.
  void set_system(std::string content);
  void add(Message message);
  void add_user(std::string content);

  // Removes everything behind the last user message. False, and no change, if there is no such message or
  // nothing behind it.
  bool drop_last_reply();
  // Removes the last user message and everything behind it. False if there is none.
  bool drop_last_exchange();
  // Removes everything but the system message.
  void clear();

  const std::vector<Message>& messages() const { return messages_; }
  bool empty() const { return messages_.empty(); }

  // Bytes that are not UTF-8 are replaced by U+FFFD.
  std::string to_json() const;
  // kFile with what is wrong and where; unknown fields, roles and versions are refused.
  static Result<Conversation> from_json(std::string_view text);

  bool operator==(const Conversation&) const = default;

 private:
  std::vector<Message> messages_;
};

// Some messages of a conversation as a JSON array in the file form, on one line.
std::string messages_to_json(std::span<const Message> messages);
// The way back. `first` is the place that the first of them has in its conversation. Errors as from_json().
Result<std::vector<Message>> messages_from_json(std::string_view text, std::size_t first);

// A file written by save(); at most 64 MiB. Errors: kFile, naming the file.
Result<Conversation> load_conversation(const std::string& path);
// Replaces `path` completely or leaves it as it was. Errors: kWrite.
Status save_conversation(const Conversation& conversation, const std::string& path);

}  // namespace kazeia
