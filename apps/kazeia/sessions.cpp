// `kazeia sessions`: the conversations that are kept, without a model.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/units.h"
#include "session/directory.h"
#include "session/message_log.h"
#include "terminal.h"
#include "verbs.h"

namespace kazeia::cli {
namespace {

using Json = nlohmann::ordered_json;

struct SessionsArguments {
  std::string directory;           // empty: the default
  std::string name;                // of show and export
  std::vector<std::string> names;  // of rm
  std::string file;
  bool json = false;
  bool thinking = false;
  bool yes = false;
  bool force = false;
};

Result<SessionDirectory> directory_of(const SessionsArguments& arguments) {
  if (!arguments.directory.empty()) return SessionDirectory(arguments.directory);
  KAZEIA_ASSIGN(std::string root, SessionDirectory::default_root());
  return SessionDirectory(std::move(root));
}

// What comes from a conversation: as it is in a file or a pipe, harmless on a terminal.
std::string shown(std::string_view text) {
  return is_terminal(STDOUT_FILENO) ? without_control_characters(text) : std::string(text);
}

std::string date_text(std::time_t time) {
  std::tm local{};
  char text[32];
  if (::localtime_r(&time, &local) == nullptr || std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local) == 0) {
    return "?";
  }
  return text;
}

std::string dumped(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json summary_json(const SessionSummary& summary) {
  return {{"name", summary.name},
          {"messages", summary.messages},
          {"changed", summary.changed},
          {"state_bytes", summary.state_bytes},
          {"first_words", summary.first_words},
          {"problem", summary.problem.empty() ? Json(nullptr) : Json(summary.problem)}};
}

// Columns on a terminal. fmt knows how wide the characters of every script are, and tells by what it adds.
std::size_t width_of(const std::string& text) {
  constexpr std::size_t kWide = 512;
  return kWide - (fmt::format("{:<{}}", text, kWide).size() - text.size());
}

std::string table_of(const std::vector<SessionSummary>& sessions) {
  constexpr std::size_t kColumns = 5;
  using Row = std::array<std::string, kColumns>;
  std::vector<Row> rows{{"name", "messages", "last change", "state", "about"}};
  for (const SessionSummary& session : sessions) {
    const bool readable = session.problem.empty();
    rows.push_back({session.name, readable ? std::to_string(session.messages) : "?", date_text(session.changed),
                    session.state_bytes == 0 ? "-" : format_bytes(session.state_bytes),
                    shown(readable ? session.first_words : "cannot be read: " + session.problem)});
  }
  std::array<std::size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (std::size_t i = 0; i + 1 < kColumns; ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string table;
  for (const Row& row : rows) {
    table += fmt::format("{:<{}}  {:>{}}  {:<{}}  {:>{}}  {}\n", row[0], widths[0], row[1], widths[1], row[2],
                         widths[2], row[3], widths[3], row[4]);
  }
  return table;
}

Status list(const SessionsArguments& arguments) {
  KAZEIA_ASSIGN(const SessionDirectory directory, directory_of(arguments));
  KAZEIA_ASSIGN(const std::vector<SessionSummary> sessions, directory.list());
  Output output;
  if (arguments.json) {
    Json json = Json::array();
    for (const SessionSummary& session : sessions) json.push_back(summary_json(session));
    return output.write(dumped(json));
  }
  if (sessions.empty()) {
    fmt::print(stderr, "There are no sessions in '{}'.\n", directory.root());
    return {};
  }
  return output.write(table_of(sessions));
}

// With what was wrong with the file on stderr.
Result<MessageLog> read(const SessionsArguments& arguments) {
  KAZEIA_ASSIGN(const SessionDirectory directory, directory_of(arguments));
  const std::string& name = arguments.name;
  KAZEIA_ASSIGN(const std::string folder, directory.find(name));
  const std::string path = SessionDirectory::messages_path(folder);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return Error(ErrorCode::kFile, fmt::format("nothing was said in the session '{}' yet", name));
  }
  Result<MessageLog> log = MessageLog::read(path);
  if (log.ok()) {
    for (const std::string& remark : log->remarks()) fmt::print(stderr, "kazeia: warning: '{}': {}.\n", name, remark);
  }
  return log;
}

std::string message_text(const Message& message, bool thinking) {
  std::string text;
  if (thinking && !message.thinking.empty()) text += fmt::format("[thinking]\n{}\n\n", message.thinking);
  text += fmt::format("[{}{}{}]\n", role_name(message.role), message.tool_name.empty() ? "" : " ", message.tool_name);
  text += message.content;
  if (!message.content.empty() && !message.content.ends_with('\n')) text += '\n';
  for (const ToolCall& call : message.tool_calls) text += fmt::format("-> {} {}\n", call.name, call.arguments);
  return text;
}

Status show(const SessionsArguments& arguments) {
  KAZEIA_ASSIGN(const MessageLog log, read(arguments));
  const std::vector<Message>& messages = log.conversation().messages();
  Output output;
  if (arguments.json) {
    return output.write(dumped({{"name", arguments.name},
                                {"changed", log.changed()},
                                {"left_out", log.left_out()},
                                {"remarks", log.remarks()},
                                {"messages", Json::parse(messages_to_json(messages), nullptr, false)}}));
  }
  std::string text;
  for (const Message& message : messages) {
    if (!text.empty()) text += '\n';
    text += message_text(message, arguments.thinking);
  }
  KAZEIA_TRY(output.write(shown(text)));
  if (log.left_out() > 0) {
    fmt::print(stderr, "(prompts leave out the first {} of these messages, because the context was full)\n",
               log.left_out());
  }
  return {};
}

Status export_session(const SessionsArguments& arguments) {
  KAZEIA_ASSIGN(const MessageLog log, read(arguments));
  const std::string json = log.conversation().to_json();
  if (arguments.file.empty()) return Output().write(json);
  KAZEIA_TRY(check_output(arguments.file, json.size(), arguments.force));
  KAZEIA_TRY(save_conversation(log.conversation(), arguments.file));
  fmt::print(stderr, "{} messages saved to {}\n", log.conversation().messages().size(), arguments.file);
  return {};
}

// True for a yes.
Result<bool> confirmed(const std::vector<std::string>& names) {
  const CancelFlag& cancel = catch_interrupts(SecondInterrupt::kEndsProcess);
  KAZEIA_TRY(Output().write(
      fmt::format("Remove {} with all messages? [y/N] ",
                  names.size() == 1 ? fmt::format("'{}'", names.front()) : fmt::format("{} sessions", names.size()))));
  std::string answer;
  if (LineReader().read(answer, cancel) == LineReader::Outcome::kInterrupted) {
    return Error(ErrorCode::kCancelled, "stopped by the user");
  }
  return answer == "y" || answer == "Y" || answer == "yes";
}

Status remove(const SessionsArguments& arguments) {
  KAZEIA_ASSIGN(const SessionDirectory directory, directory_of(arguments));
  for (const std::string& name : arguments.names) {
    // A slip in the last name must not be noticed after the first is gone.
    if (const auto found = directory.find(name); !found.ok()) return found.error();
  }
  if (!arguments.yes && is_terminal(STDIN_FILENO) && is_terminal(STDOUT_FILENO)) {
    KAZEIA_ASSIGN(const bool yes, confirmed(arguments.names));
    if (!yes) {
      fmt::print(stderr, "Nothing was removed.\n");
      return {};
    }
  }
  for (const std::string& name : arguments.names) {
    KAZEIA_TRY(directory.remove(name));
    fmt::print(stderr, "'{}' is removed.\n", name);
  }
  return {};
}

}  // namespace

void add_sessions(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<SessionsArguments>();
  CLI::App* verb = app.add_subcommand("sessions", "Conversations that are kept: list, show, export, remove");
  verb->require_subcommand(1);
  const auto add = [&](const char* name, const char* description, Status (*work)(const SessionsArguments&)) {
    CLI::App* part = verb->add_subcommand(name, description);
    part->add_option(
        "--sessions-dir", arguments->directory,
        "Where sessions are kept; default: $KAZEIA_SESSIONS, or kazeia/sessions in the user's data folder");
    part->callback([arguments, &action, work] { action = [arguments, work] { return work(*arguments); }; });
    return part;
  };
  const auto add_name = [&](CLI::App* part) { part->add_option("NAME", arguments->name, "The session")->required(); };

  CLI::App* part = add("list", "One line for each, newest first", list);
  part->add_flag("--json", arguments->json, "A JSON array");

  part = add("show", "What was said", show);
  add_name(part);
  part->add_flag("--thinking", arguments->thinking, "What the model thought, too");
  part->add_flag("--json", arguments->json, "One JSON object, with everything");

  part = add("export", "The file that /save writes and /load reads", export_session);
  add_name(part);
  part->add_option("FILE", arguments->file, "Where to; stdout if it is not given");
  part->add_flag("--force", arguments->force, "Replace an existing file");

  part = add("rm", "Remove sessions with all their messages", remove);
  part->add_option("NAME", arguments->names, "The sessions")->required();
  part->add_flag("--yes", arguments->yes, "Do not ask");
}

}  // namespace kazeia::cli
