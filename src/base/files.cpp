#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"

namespace kazeia {
namespace {

Error cannot_open(const std::string& path, int error_number) {
  if (error_number == ENOENT || error_number == ENOTDIR) {
    return Error(ErrorCode::kFile, fmt::format("no file at '{}'", path), "Check the path");
  }
  if (error_number == EACCES || error_number == EPERM) {
    return Error(ErrorCode::kFile, fmt::format("no permission to read '{}'", path),
                 "Change its permissions or choose another file");
  }
  return Error(ErrorCode::kFile, fmt::format("cannot open '{}': {}", path, std::strerror(error_number)));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

Result<std::uint64_t> regular_file_size(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return cannot_open(path, errno);
  if (S_ISDIR(info.st_mode)) {
    return Error(ErrorCode::kFile, fmt::format("'{}' is a directory", path), "Name a file inside it");
  }
  if (!S_ISREG(info.st_mode)) {
    return Error(ErrorCode::kFile, fmt::format("'{}' is not a regular file", path), "Copy it to a file first");
  }
  if (::access(path.c_str(), R_OK) != 0) return cannot_open(path, errno);
  return static_cast<std::uint64_t>(info.st_size);
}

Result<std::string> read_text_file(const std::string& path, std::uint64_t limit_bytes) {
  KAZEIA_ASSIGN(const std::uint64_t size, regular_file_size(path));
  if (size > limit_bytes) {
    return Error(ErrorCode::kFile,
                 fmt::format("'{}' has {} bytes, more than the {} accepted here", path, size, limit_bytes));
  }
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return cannot_open(path, errno);
  std::string text(size, '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::read(file.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return cannot_open(path, errno);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  text.resize(done);
  return text;
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  KAZEIA_ASSIGN(const std::uint64_t size, regular_file_size(path));
  if (size == 0) return MappedFile(nullptr, 0);
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return cannot_open(path, errno);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return cannot_open(path, errno);
  return MappedFile(static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

AtomicFileWriter::AtomicFileWriter(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

AtomicFileWriter::AtomicFileWriter(AtomicFileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::exchange(other.fd_, -1)),
      written_(other.written_),
      failed_(other.failed_),
      error_number_(other.error_number_) {}

AtomicFileWriter::~AtomicFileWriter() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void drop_pages(std::span<const std::byte> mapped) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(mapped.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(mapped.data() + mapped.size()) / page * page;
  if (begin < end) (void)::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Status check_output(const std::string& path, std::uint64_t bytes, bool overwrite) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return Error(ErrorCode::kWrite, fmt::format("'{}' is a directory", path), "Name a file inside it");
  }
  const bool exists = std::filesystem::exists(path, error);
  if (exists && !overwrite) {
    return Error(ErrorCode::kWrite, fmt::format("'{}' exists already", path), "Use --force to replace it");
  }
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  // The old file goes only when the new one is complete, so its bytes do not help.
  if (!error && space.available < bytes) {
    return Error(ErrorCode::kWrite,
                 fmt::format("'{}' needs {}, but only {} are free there", path, format_bytes(bytes),
                             format_bytes(space.available)),
                 "Free some space or choose another disk");
  }
  return {};
}

Result<AtomicFileWriter> AtomicFileWriter::create(const std::string& path, unsigned mode) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return Error(ErrorCode::kWrite, fmt::format("'{}' is not a file that can be replaced", path), "Choose a file name");
  }
  std::string temporary = path + ".partial-XXXXXX";
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) {
    return Error(ErrorCode::kWrite, fmt::format("cannot write '{}': {}", path, std::strerror(errno)),
                 "Choose a folder that exists and is writable");
  }
  ::fchmod(fd, static_cast<mode_t>(mode));
  return AtomicFileWriter(path, std::move(temporary), fd);
}

Status AtomicFileWriter::fail(int error_number) {
  failed_ = true;
  error_number_ = error_number;
  const bool full = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
  return Error(ErrorCode::kWrite,
               full ? fmt::format("no space left to write '{}' (stopped after {} bytes)", path_, written_)
                    : fmt::format("cannot write '{}': {}", path_, std::strerror(error_number)),
               full ? "Free some space or choose another disk; nothing was left behind" : "");
}

Status AtomicFileWriter::write(std::span<const std::byte> bytes) {
  if (failed_) return fail(error_number_);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::write(fd_, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(errno);
    done += static_cast<std::size_t>(n);
    written_ += static_cast<std::uint64_t>(n);
  }
  return {};
}

Status AtomicFileWriter::write(std::string_view text) {
  return write(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

Status AtomicFileWriter::commit() {
  if (failed_) return fail(error_number_);
  if (::fsync(fd_) != 0) return fail(errno);
  if (::close(std::exchange(fd_, -1)) != 0) return fail(errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return fail(errno);
  temporary_.clear();
  // The rename itself survives a power cut only once the folder is on the disk too.
  sync_folder(std::filesystem::path(path_).parent_path().string());
  return {};
}

void sync_folder(const std::string& folder) {
  const Descriptor directory(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() >= 0) ::fsync(directory.get());
}

Status make_private_folder(const std::string& folder, const std::string& hint) {
  const auto make = [&folder] { return ::mkdir(folder.c_str(), 0700) == 0 ? 0 : errno; };
  const std::filesystem::path path(folder);
  int failed = make();
  if (failed == ENOENT && path.has_relative_path() && path.has_parent_path()) {
    KAZEIA_TRY(make_private_folder(path.parent_path().string(), hint));
    failed = make();
  }
  std::error_code ignored;
  if (failed == EEXIST && std::filesystem::is_directory(path, ignored)) return {};
  if (failed != 0) {
    return Error(ErrorCode::kWrite, fmt::format("cannot make the folder '{}': {}", folder, std::strerror(failed)),
                 hint);
  }
  sync_folder(path.parent_path().string());
  return {};
}

}  // namespace kazeia
