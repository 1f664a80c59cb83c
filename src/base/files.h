// Files: whole reads, read-only mappings, and writes that appear completely or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kazeia {

// Checks that `path` names a regular, readable file and returns its size in bytes. kFile otherwise,
// with a sentence that tells missing, directory, permission and special file apart.
Result<std::uint64_t> regular_file_size(const std::string& path);

// The whole file as text. Refuses files above `limit_bytes` (kFile).
Result<std::string> read_text_file(const std::string& path, std::uint64_t limit_bytes);

// A file mapped read-only and private. Move-only; unmapped on destruction. An empty file maps to an
// empty span.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const std::byte* data, std::size_t size) : data_(data), size_(size) {}
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Drops the whole pages inside `mapped`, a part of a read-only private mapping of a file, from this process: a page
// that is wanted again is read from the page cache again.
void drop_pages(std::span<const std::byte> mapped);

// Whether a file of `bytes` bytes can be written to `path`: kWrite if there is a directory, or a file (without
// `overwrite`), or not enough space beside it.
Status check_output(const std::string& path, std::uint64_t bytes, bool overwrite);

// Brings what was made, renamed or removed in `folder` ("" = the current one) to the disk, as far as it can.
void sync_folder(const std::string& folder);

// Makes `folder` with its parents, for the owner only (0700), and brings their names to the disk. A folder that is
// there keeps its mode: it may be used for other things. kWrite, with `hint` as what to do next.
Status make_private_folder(const std::string& folder, const std::string& hint);

// Writes to a temporary file beside `path` and renames it into place in commit(); without a commit
// nothing is left behind and an existing file is untouched. Errors (disk full, read-only folder) are
// kWrite and sticky: after one, every call returns it.
class AtomicFileWriter {
 public:
  static Result<AtomicFileWriter> create(const std::string& path, unsigned mode = 0644);
  AtomicFileWriter(AtomicFileWriter&& other) noexcept;
  AtomicFileWriter& operator=(AtomicFileWriter&& other) = delete;
  ~AtomicFileWriter();

  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);
  std::uint64_t bytes_written() const { return written_; }
  // Where the bytes written so far can be read until commit(): for a check of the file before it gets its name.
  const std::string& temporary_path() const { return temporary_; }
  // Flushes to the disk (fsync file and folder) and renames. Call once.
  Status commit();

 private:
  AtomicFileWriter(std::string path, std::string temporary, int fd);
  Status fail(int error_number);

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  std::uint64_t written_ = 0;
  bool failed_ = false;
  int error_number_ = 0;
};

}  // namespace kazeia
