#include "bench/ledger.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"
#include "bench/record_rules.h"

namespace kazeia::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".jsonl";
constexpr std::uint64_t kFileLimitBytes = kGiB;

Error cannot_write(const std::string& path, int error_number) {
  const bool full = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
  return Error(
      ErrorCode::kWrite,
      fmt::format("cannot add to the ledger '{}': {}", path, full ? "no space left" : std::strerror(error_number)),
      full ? "Free some space and add the record again" : "Make the file and its folder writable");
}

// An open file, locked for as long as it is open.
class LockedFile {
 public:
  LockedFile(const std::string& path, int flags, int lock) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) return;
    int locked = 0;
    do {
      locked = ::flock(fd_, lock);
    } while (locked != 0 && errno == EINTR);
    // Reading works without: the worst is a line that is just being written, and it is named.
    if (locked != 0 && lock == LOCK_EX) ::close(std::exchange(fd_, -1));
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;
  ~LockedFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  bool is_open() const { return fd_ >= 0; }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

Result<std::string> text_of(const LockedFile& file, const std::string& path) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return Error(ErrorCode::kFile, fmt::format("'{}' is not a regular file", path), "Check the ledger's folder");
  }
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size > kFileLimitBytes) {
    return Error(ErrorCode::kFile, fmt::format("'{}' has {} bytes, more than a ledger can have", path, size));
  }
  std::string text(size, '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::pread(file.get(), text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error(ErrorCode::kFile, fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  text.resize(done);
  return text;
}

Error torn(const std::string& path, std::size_t number, std::size_t begin, std::string_view line) {
  if (record_from_json(line).ok()) {
    return Error(ErrorCode::kFile, fmt::format("'{}', line {}: the line break at the end is missing", path, number),
                 fmt::format("The record is whole; add it with `echo >> '{}'`", path));
  }
  return Error(
      ErrorCode::kFile,
      fmt::format("'{}', line {}: the line is cut off: its writer never came to an end", path, number),
      fmt::format("Nothing before it is touched; remove it with `truncate -s {} '{}'` and add its record again", begin,
                  path));
}

// What the lines of one file have in common, and what a new one has to keep.
class Lines {
 public:
  Lines(std::string path, std::string machine_id) : path_(std::move(path)), machine_id_(std::move(machine_id)) {}

  Status read(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      const std::size_t number = records_.size() + 1;
      if (end == std::string_view::npos) return torn(path_, number, at, text.substr(at));
      const std::string where = fmt::format("'{}', line {}", path_, number);
      Result<Record> record = record_from_json(text.substr(at, end - at));
      if (!record.ok()) {
        return Error(ErrorCode::kFile, fmt::format("{}: {}", where, record.error().message()),
                     "Put back the file as it was, from version control or a copy");
      }
      if (record->machine.id != machine_id_) {
        return Error(ErrorCode::kFile, fmt::format("{}: the record is of the machine {}", where, record->machine.id),
                     "Every machine has a file of its own");
      }
      const std::string problem = problem_of(*record);
      if (!problem.empty()) {
        return Error(ErrorCode::kFile, fmt::format("{}: {}", where, problem),
                     "Put back the file as it was; lines are only ever added");
      }
      take(std::move(record).value());
      at = end + 1;
    }
    return {};
  }

  // As if it were appended, without writing it.
  Status add(const Record& record) {
    const std::string problem = problem_of(record);
    if (!problem.empty()) {
      return Error(ErrorCode::kUsage, problem, "Add every record once, in the order in which they were measured");
    }
    take(record);
    return {};
  }

  std::vector<Record> records() && { return std::move(records_); }

 private:
  std::string problem_of(const Record& record) const {
    if (ids_.contains(record.id)) return fmt::format("the record {} is in the ledger already", record.id);
    if (!records_.empty() && record.time < records_.back().time) {
      return fmt::format("the record {} of {} is older than the one before it, of {}", record.id, record.time,
                         records_.back().time);
    }
    return {};
  }
  void take(Record record) {
    ids_.insert(record.id);
    records_.push_back(std::move(record));
  }

  std::string path_;
  std::string machine_id_;
  std::vector<Record> records_;
  std::set<std::string> ids_;
};

void sync_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

// One write a line. What an error has written of them is cut off again.
Status write_lines(const LockedFile& file, const std::string& path, const std::vector<std::string>& lines) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return cannot_write(path, errno);
  int failed = 0;
  for (const std::string& line : lines) {
    for (std::size_t done = 0; failed == 0 && done < line.size();) {
      const ssize_t n = ::write(file.get(), line.data() + done, line.size() - done);
      if (n < 0 && errno != EINTR) failed = errno;
      if (n > 0) done += static_cast<std::size_t>(n);
    }
  }
  if (failed == 0 && ::fsync(file.get()) != 0) failed = errno;
  if (failed == 0) return {};
  // If even this fails, a reader finds the torn line and says how to mend it.
  if (::ftruncate(file.get(), info.st_size) == 0) (void)::fsync(file.get());
  return cannot_write(path, failed);
}

}  // namespace

std::string Ledger::path_of(const std::string& machine_id) const {
  return folder_ + "/" + machine_id + std::string(kEnding);
}

Result<std::vector<Record>> Ledger::read(const std::string& machine_id) const {
  const std::string path = path_of(machine_id);
  const LockedFile file(path, O_RDONLY, LOCK_SH);
  if (!file.is_open()) {
    if (errno == ENOENT) return std::vector<Record>();
    return Error(ErrorCode::kFile, fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  }
  KAZEIA_ASSIGN(const std::string text, text_of(file, path));
  Lines lines(path, machine_id);
  KAZEIA_TRY(lines.read(text));
  return std::move(lines).records();
}

Result<std::vector<Record>> Ledger::read_all() const {
  std::error_code error;
  std::vector<std::string> machines;
  const fs::directory_iterator end;
  for (fs::directory_iterator entry(folder_, error); !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() != kEnding) continue;
    const std::string machine = entry->path().stem().string();
    if (!is_hex(machine, 8)) {
      return Error(ErrorCode::kFile, fmt::format("'{}' is not named after a machine", entry->path().string()),
                   "A file of a ledger has the 8 hexadecimal digits of a machine's id as its name");
    }
    machines.push_back(machine);
  }
  if (error) {
    return Error(ErrorCode::kFile, fmt::format("there is no ledger in '{}': {}", folder_, error.message()),
                 "Name its folder with --ledger");
  }
  std::sort(machines.begin(), machines.end());
  std::vector<Record> all;
  for (const std::string& machine : machines) {
    KAZEIA_ASSIGN(std::vector<Record> records, read(machine));
    std::move(records.begin(), records.end(), std::back_inserter(all));
  }
  std::stable_sort(all.begin(), all.end(), [](const Record& a, const Record& b) { return a.time < b.time; });
  return all;
}

Status Ledger::append(std::span<const Record> records) {
  std::map<std::string, std::vector<Record>> by_machine;
  for (const Record& record : records) {
    // What cannot be read back must not be written; a text that is not UTF-8 changes on the way.
    Result<Record> read_back = record_from_json(to_json(record));
    if (!read_back.ok()) return read_back.error().within(fmt::format("the record '{}' cannot be kept", record.id));
    std::vector<Record>& added = by_machine[read_back->machine.id];
    added.push_back(std::move(read_back).value());
  }
  for (const auto& [machine, added] : by_machine) {
    KAZEIA_ASSIGN(std::vector<Record> present, read(machine));
    Lines lines(path_of(machine), machine);
    for (const Record& record : present) KAZEIA_TRY(lines.add(record));
    for (const Record& record : added) KAZEIA_TRY(lines.add(record));
  }
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return cannot_write(folder_, error.value());
  for (const auto& [machine, added] : by_machine) {
    const std::string path = path_of(machine);
    const bool is_new = !fs::exists(path, error);
    const LockedFile file(path, O_RDWR | O_APPEND | O_CREAT, LOCK_EX);
    if (!file.is_open()) return cannot_write(path, errno);
    if (is_new) ::fchmod(file.get(), 0644);  // whatever the umask: it is to be shared
    // Once more: another process may have added something since.
    KAZEIA_ASSIGN(const std::string text, text_of(file, path));
    Lines present(path, machine);
    KAZEIA_TRY(present.read(text));
    std::vector<std::string> lines;
    for (const Record& record : added) {
      KAZEIA_TRY(present.add(record));
      lines.push_back(to_json(record) + "\n");
    }
    KAZEIA_TRY(write_lines(file, path, lines));
    if (is_new) sync_folder(folder_);
  }
  return {};
}

Result<Record> find_record(std::span<const Record> records, std::string_view prefix) {
  const Record* found = nullptr;
  for (const Record& record : records) {
    if (prefix.empty() || !record.id.starts_with(prefix)) continue;
    if (found != nullptr) {
      return Error(ErrorCode::kUsage, fmt::format("more than one record begins with '{}'", prefix),
                   "Give more digits of its id");
    }
    found = &record;
  }
  if (found == nullptr) {
    return Error(ErrorCode::kUsage, fmt::format("no record of the ledger begins with '{}'", prefix),
                 "`kazeia ledger list` shows their ids");
  }
  return *found;
}

}  // namespace kazeia::bench
