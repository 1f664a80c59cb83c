// Where conversations are kept: one folder per name, private to its owner (0700), with the message log `messages.jsonl`
// and the folder `state/` of files that may be deleted at any time. A folder with files of others in it and no message
// log is not a session: it is neither shown nor used nor removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace kazeia {

struct SessionSummary {
  std::string name;
  std::size_t messages = 0;
  std::string first_words;        // of the first user message, one line
  std::uint64_t state_bytes = 0;  // of the files that only save time
  std::time_t changed = 0;        // the last change of the messages
  std::string problem;            // not empty: it cannot be read, and why
};

class SessionDirectory {
 public:
  // $KAZEIA_SESSIONS, or kazeia/sessions in $XDG_DATA_HOME, or in ~/.local/share. kUsage if none is set.
  static Result<std::string> default_root();

  explicit SessionDirectory(std::string root) : root_(std::move(root)) {}

  // kUsage for what cannot be a folder's name everywhere: 1 to 64 (and at most 255 bytes) of letters (any script),
  // digits, space . _ -, not beginning with a dot or a space, not ending with a space.
  static Status check_name(std::string_view name);

  // The session's folder, created if it is not there, as is the root (both 0700). kUsage, kWrite.
  Result<std::string> create(std::string_view name) const;
  // Of one that exists. kUsage for the name, kFile if there is none (with the names that are near it).
  Result<std::string> find(std::string_view name) const;
  // Newest first. An absent root is an empty list.
  Result<std::vector<SessionSummary>> list() const;
  Result<SessionSummary> summary(std::string_view name) const;
  // Removes messages and state; of links in the folder only the links. kUsage while a process has it open, kFile if
  // there is none, kWrite.
  Status remove(std::string_view name) const;

  const std::string& root() const { return root_; }
  static std::string messages_path(const std::string& folder) { return folder + "/messages.jsonl"; }
  static std::string state_folder(const std::string& folder) { return folder + "/state"; }

 private:
  std::string root_;
};

}  // namespace kazeia
