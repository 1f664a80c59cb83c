#include "session/directory.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/files.h"
#include "base/user_folders.h"
#include "session/lock.h"
#include "session/message_log.h"
#include "session/name.h"

namespace kazeia {
namespace {

namespace fs = std::filesystem;

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// A folder that another program has made is no session, so that removing one cannot remove what is not ours.
bool is_session(const std::string& folder) {
  if (!is_folder(folder)) return false;
  std::error_code error;
  const fs::directory_iterator end;
  bool has_messages = false;
  bool has_others = false;
  for (fs::directory_iterator entry(folder, error); !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    has_messages = has_messages || name == "messages.jsonl";
    has_others = has_others || (!name.starts_with("messages.jsonl") && name != "lock" && name != "state");
  }
  return has_messages || (!has_others && !error);
}

constexpr const char* kFolderHint = "Keep sessions in a folder that is writable";

Result<std::vector<std::string>> names_in(const std::string& root) {
  std::vector<std::string> names;
  std::error_code error;
  const fs::directory_iterator end;
  fs::directory_iterator entry(root, error);
  if (error == std::errc::no_such_file_or_directory) return names;
  for (; !error && entry != end; entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (fault_of_name(name).empty() && is_session(entry->path().string())) names.push_back(std::move(name));
  }
  if (error) {
    return Error(ErrorCode::kFile, fmt::format("cannot read the sessions in '{}': {}", root, error.message()),
                 "Name another folder with --sessions-dir");
  }
  return names;
}

// What somebody who typed `name` may have meant, nearest first.
std::vector<std::string> near_names(const std::string& root, std::string_view name) {
  constexpr std::size_t kMostNamed = 3;
  const auto names = names_in(root);
  if (!names.ok()) return {};
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const std::string& other : *names) {
    if (const auto edits = edits_between(name, other)) near.emplace_back(*edits, other);
  }
  std::sort(near.begin(), near.end());
  if (near.size() > kMostNamed) near.resize(kMostNamed);
  std::vector<std::string> found;
  found.reserve(near.size());
  for (auto& [edits, other] : near) found.push_back(std::move(other));
  return found;
}

std::uint64_t bytes_in(const std::string& folder) {
  std::uint64_t bytes = 0;
  std::error_code error;
  const fs::recursive_directory_iterator end;
  for (fs::recursive_directory_iterator entry(folder, error); !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_symlink(ignored) || !entry->is_regular_file(ignored)) continue;
    const std::uintmax_t size = entry->file_size(ignored);
    if (!ignored) bytes += size;
  }
  return bytes;
}

// The beginning of a text on one line, cut between characters.
std::string one_line(std::string_view text) {
  constexpr std::size_t kMostCharacters = 60;
  std::string line;
  std::size_t characters = 0;
  bool space_due = false;
  for (const char byte : text) {
    const auto c = static_cast<unsigned char>(byte);
    if (c <= ' ' || c == 0x7F) {
      space_due = !line.empty();
      continue;
    }
    const bool begins = (c & 0xC0U) != 0x80;
    if (begins && characters + (space_due ? 1 : 0) >= kMostCharacters) return line + "…";
    if (space_due) line += ' ';
    characters += (begins ? 1 : 0) + (space_due ? 1 : 0);
    space_due = false;
    line += byte;
  }
  return line;
}

std::time_t modified(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_mtim.tv_sec : 0;
}

}  // namespace

Result<std::string> SessionDirectory::default_root() {
  if (std::string own = environment("KAZEIA_SESSIONS"); !own.empty()) return own;
  if (std::string data = in_data_folder("sessions"); !data.empty()) return data;
  return Error(ErrorCode::kUsage, "there is no folder for sessions: neither KAZEIA_SESSIONS nor HOME is set",
               "Set one of them, or use --sessions-dir");
}

Status SessionDirectory::check_name(std::string_view name) {
  const std::string fault = fault_of_name(name);
  if (fault.empty()) return {};
  return Error(ErrorCode::kUsage, "this cannot be the name of a session: " + fault,
               "Use letters, digits, spaces and . _ - for it");
}

Result<std::string> SessionDirectory::create(std::string_view name) const {
  KAZEIA_TRY(check_name(name));
  const std::string folder = fmt::format("{}/{}", root_, name);
  KAZEIA_TRY(make_private_folder(root_, kFolderHint));
  KAZEIA_TRY(make_private_folder(folder, kFolderHint));
  if (!is_session(folder)) {
    return Error(ErrorCode::kUsage, fmt::format("'{}' is a folder with other files in it", folder), "Use another name");
  }
  return folder;
}

Result<std::string> SessionDirectory::find(std::string_view name) const {
  KAZEIA_TRY(check_name(name));
  std::string folder = fmt::format("{}/{}", root_, name);
  if (is_session(folder)) return folder;
  const std::vector<std::string> near = near_names(root_, name);
  return Error(ErrorCode::kFile, fmt::format("there is no session '{}' in '{}'", name, root_),
               near.empty() ? "`kazeia sessions list` shows what is there"
                            : fmt::format("Near it: '{}'", fmt::join(near, "', '")));
}

Result<std::vector<SessionSummary>> SessionDirectory::list() const {
  KAZEIA_ASSIGN(const std::vector<std::string> names, names_in(root_));
  std::vector<SessionSummary> summaries;
  for (const std::string& name : names) {
    // One that was removed since is not in the list.
    if (auto one = summary(name); one.ok()) summaries.push_back(std::move(one).value());
  }
  std::sort(summaries.begin(), summaries.end(), [](const SessionSummary& a, const SessionSummary& b) {
    return a.changed != b.changed ? a.changed > b.changed : a.name < b.name;
  });
  return summaries;
}

Result<SessionSummary> SessionDirectory::summary(std::string_view name) const {
  KAZEIA_ASSIGN(const std::string folder, find(name));
  SessionSummary summary;
  summary.name = name;
  summary.state_bytes = bytes_in(state_folder(folder));
  const std::string path = messages_path(folder);
  std::error_code ignored;
  const bool begun = fs::exists(path, ignored);
  summary.changed = modified(begun ? path : folder);
  if (!begun) return summary;
  const Result<MessageLog> log = MessageLog::read(path);
  if (!log.ok()) {
    summary.problem = log.error().message();
    return summary;
  }
  if (log->changed() != 0) summary.changed = log->changed();
  const std::vector<Message>& messages = log->conversation().messages();
  summary.messages = messages.size();
  const auto first = std::find_if(messages.begin(), messages.end(),
                                  [](const Message& message) { return message.role == Role::kUser; });
  if (first != messages.end()) summary.first_words = one_line(first->content);
  return summary;
}

Status SessionDirectory::remove(std::string_view name) const {
  KAZEIA_ASSIGN(const std::string folder, find(name));
  KAZEIA_ASSIGN(const SessionLock lock, SessionLock::take(folder));
  std::error_code error;
  fs::remove_all(folder, error);  // of a link it removes the link
  if (error) {
    return Error(ErrorCode::kWrite, fmt::format("cannot remove '{}': {}", folder, error.message()),
                 "Make the folder writable");
  }
  sync_folder(root_);
  return {};
}

}  // namespace kazeia
