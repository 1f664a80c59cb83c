#include "chat/conversation.h"

#include <array>
#include <initializer_list>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/units.h"

namespace kazeia {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "kazeia-conversation";
constexpr int kVersion = 1;
constexpr std::uint64_t kFileLimitBytes = 64 * kMiB;
constexpr std::array kRoles{Role::kSystem, Role::kUser, Role::kAssistant, Role::kTool};

Error bad(std::string message) {
  return Error(ErrorCode::kFile, std::move(message), "Use a file that /save wrote");
}

// What is around the arguments of a call must not make them too deep to be read again.
constexpr int kDeepestArguments = 64;
constexpr int kDeepestFile = kDeepestArguments + 8;

// Null if the text is not JSON. The writer of values recurses, so nesting is bounded before it meets them.
std::optional<Json> parse_json(std::string_view text, int deepest) {
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > deepest;
    return !too_deep;
  };
  Json value = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (value.is_discarded() || too_deep) return std::nullopt;
  return value;
}

std::optional<Role> role_from(std::string_view name) {
  for (const Role role : kRoles) {
    if (name == role_name(role)) return role;
  }
  return std::nullopt;
}

Status only_fields(const Json& object, std::initializer_list<std::string_view> allowed, const std::string& where) {
  for (const auto& item : object.items()) {
    bool known = false;
    for (const std::string_view name : allowed) known = known || item.key() == name;
    if (!known) return bad(fmt::format("{} has the unknown field \"{}\"", where, item.key()));
  }
  return {};
}

// The string under `name`; empty if it is absent and not `required`.
Result<std::string> text_field(const Json& object, const char* name, bool required, const std::string& where) {
  const auto found = object.find(name);
  if (found == object.end()) {
    if (required) return bad(fmt::format("{} has no \"{}\"", where, name));
    return std::string();
  }
  if (!found->is_string()) return bad(fmt::format("{}: \"{}\" is not a string", where, name));
  return found->get<std::string>();
}

Result<std::vector<ToolCall>> tool_calls_from(const Json& array, const std::string& where) {
  if (!array.is_array()) return bad(fmt::format("{}: \"tool_calls\" is not an array", where));
  std::vector<ToolCall> calls;
  for (const Json& entry : array) {
    const std::string call = fmt::format("{}, tool call {}", where, calls.size() + 1);
    if (!entry.is_object()) return bad(call + " is not an object");
    KAZEIA_TRY(only_fields(entry, {"name", "arguments", "id"}, call));
    KAZEIA_ASSIGN(std::string name, text_field(entry, "name", true, call));
    KAZEIA_ASSIGN(std::string id, text_field(entry, "id", false, call));
    const auto arguments = entry.find("arguments");
    if (arguments == entry.end() || !arguments->is_object()) return bad(call + ": \"arguments\" is not an object");
    calls.push_back({std::move(name), arguments->dump(), std::move(id)});
  }
  return calls;
}

Result<Message> message_from(const Json& entry, std::size_t index) {
  const std::string where = fmt::format("message {}", index + 1);
  if (!entry.is_object()) return bad(where + " is not an object");
  KAZEIA_ASSIGN(const std::string role_text, text_field(entry, "role", true, where));
  const std::optional<Role> role = role_from(role_text);
  if (!role) return bad(fmt::format("{} has the unknown role \"{}\"", where, role_text));
  if (*role == Role::kSystem && index != 0) return bad(where + ": a system message must come first");

  Message message;
  message.role = *role;
  KAZEIA_ASSIGN(message.content, text_field(entry, "content", true, where));
  if (*role == Role::kAssistant) {
    KAZEIA_TRY(only_fields(entry, {"role", "content", "thinking", "tool_calls"}, where));
    KAZEIA_ASSIGN(message.thinking, text_field(entry, "thinking", false, where));
    if (const auto calls = entry.find("tool_calls"); calls != entry.end()) {
      KAZEIA_ASSIGN(message.tool_calls, tool_calls_from(*calls, where));
    }
  } else if (*role == Role::kTool) {
    KAZEIA_TRY(only_fields(entry, {"role", "content", "name", "tool_call_id"}, where));
    KAZEIA_ASSIGN(message.tool_name, text_field(entry, "name", false, where));
    KAZEIA_ASSIGN(message.tool_call_id, text_field(entry, "tool_call_id", false, where));
  } else {
    KAZEIA_TRY(only_fields(entry, {"role", "content"}, where));
  }
  return message;
}

Json to_object(const Message& message) {
  Json object = {{"role", role_name(message.role)}, {"content", message.content}};
  if (!message.thinking.empty()) object["thinking"] = message.thinking;
  for (const ToolCall& call : message.tool_calls) {
    Json entry = {{"name", call.name}};
    const std::optional<Json> arguments = parse_json(call.arguments, kDeepestArguments);
    entry["arguments"] = arguments && arguments->is_object() ? *arguments : Json::object();
    if (!call.id.empty()) entry["id"] = call.id;
    object["tool_calls"].push_back(std::move(entry));
  }
  if (!message.tool_name.empty()) object["name"] = message.tool_name;
  if (!message.tool_call_id.empty()) object["tool_call_id"] = message.tool_call_id;
  return object;
}

Json to_array(std::span<const Message> messages) {
  Json array = Json::array();
  for (const Message& message : messages) array.push_back(to_object(message));
  return array;
}

Result<std::vector<Message>> messages_from(const Json& array, std::size_t first) {
  std::vector<Message> messages;
  messages.reserve(array.size());
  for (const Json& entry : array) {
    KAZEIA_ASSIGN(Message message, message_from(entry, first + messages.size()));
    messages.push_back(std::move(message));
  }
  return messages;
}

}  // namespace

std::string_view role_name(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
    case Role::kTool:
      return "tool";
  }
  return "unknown";
}

void Conversation::set_system(std::string content) {
  const bool has = !messages_.empty() && messages_.front().role == Role::kSystem;
  if (content.empty()) {
    if (has) messages_.erase(messages_.begin());
  } else if (has) {
    messages_.front().content = std::move(content);
  } else {
    messages_.insert(messages_.begin(), Message{.role = Role::kSystem, .content = std::move(content)});
  }
}

void Conversation::add(Message message) {
  messages_.push_back(std::move(message));
}

void Conversation::add_user(std::string content) {
  messages_.push_back(Message{.role = Role::kUser, .content = std::move(content)});
}

bool Conversation::drop_last_reply() {
  std::size_t keep = messages_.size();
  while (keep > 0 && messages_[keep - 1].role != Role::kUser) --keep;
  if (keep == 0 || keep == messages_.size()) return false;
  messages_.resize(keep);
  return true;
}

bool Conversation::drop_last_exchange() {
  std::size_t keep = messages_.size();
  while (keep > 0 && messages_[keep - 1].role != Role::kUser) --keep;
  if (keep == 0) return false;
  messages_.resize(keep - 1);
  return true;
}

void Conversation::clear() {
  const bool keep_system = !messages_.empty() && messages_.front().role == Role::kSystem;
  messages_.resize(keep_system ? 1 : 0);
}

std::string Conversation::to_json() const {
  const Json file = {{"format", kFormat}, {"version", kVersion}, {"messages", to_array(messages_)}};
  return file.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

Result<Conversation> Conversation::from_json(std::string_view text) {
  const std::optional<Json> parsed = parse_json(text, kDeepestFile);
  if (!parsed) return bad("not valid JSON");
  const Json& file = *parsed;
  if (!file.is_object()) return bad("not a JSON object");
  KAZEIA_ASSIGN(const std::string format, text_field(file, "format", true, "the file"));
  if (format != kFormat) return bad(fmt::format("\"format\" is \"{}\" instead of \"{}\"", format, kFormat));
  const auto version = file.find("version");
  if (version == file.end() || !version->is_number_integer() || *version != kVersion) {
    return Error(ErrorCode::kFile, fmt::format("\"version\" is not {}, the only one this program reads", kVersion),
                 "Use the version of kazeia that wrote it");
  }
  KAZEIA_TRY(only_fields(file, {"format", "version", "messages"}, "the file"));
  const auto messages = file.find("messages");
  if (messages == file.end() || !messages->is_array()) return bad("\"messages\" is not an array");

  Conversation conversation;
  KAZEIA_ASSIGN(conversation.messages_, messages_from(*messages, 0));
  return conversation;
}

std::string messages_to_json(std::span<const Message> messages) {
  return to_array(messages).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

Result<std::vector<Message>> messages_from_json(std::string_view text, std::size_t first) {
  const std::optional<Json> parsed = parse_json(text, kDeepestFile);
  if (!parsed) return bad("not valid JSON");
  if (!parsed->is_array()) return bad("not a JSON array");
  return messages_from(*parsed, first);
}

Result<Conversation> load_conversation(const std::string& path) {
  KAZEIA_ASSIGN(const std::string text, read_text_file(path, kFileLimitBytes));
  Result<Conversation> conversation = Conversation::from_json(text);
  if (!conversation.ok()) return conversation.error().within("'" + path + "' is not a saved conversation");
  return conversation;
}

Status save_conversation(const Conversation& conversation, const std::string& path) {
  KAZEIA_ASSIGN(AtomicFileWriter writer, AtomicFileWriter::create(path));
  KAZEIA_TRY(writer.write(conversation.to_json()));
  return writer.commit();
}

}  // namespace kazeia
