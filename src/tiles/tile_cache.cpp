#include "tiles/tile_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <span>
#include <thread>

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/files.h"

namespace kazeia::tiles {
namespace {

constexpr std::uint64_t kHeaderBytes = 4096;
constexpr std::uint64_t kChunkBytes = std::uint64_t{16} << 20;
constexpr char kMagic[8] = {'K', 'Z', 'T', 'I', 'L', 'E', 'S', '\n'};
constexpr std::uint32_t kFormatVersion = 1;
constexpr std::uint64_t kMostTensors = 100'000;

struct Header {  // little-endian, the rest of the first page is zero
  char magic[8];
  std::uint32_t format_version;
  std::uint32_t layout_version;
  char key[32];  // the model hash, hex
  std::uint64_t image_bytes;
  std::uint64_t trailer_bytes;  // directory and chunk checksums, behind the image
  std::uint64_t tensor_count;
  std::uint64_t trailer_checksum;  // XXH3-64
  std::uint64_t header_checksum;   // XXH3-64 of the bytes before it
};

Error damaged(const std::string& path, const char* what) {
  return Error(ErrorCode::kFile, fmt::format("the tile cache file '{}' is {}", path, what));
}

std::uint64_t chunk_count(std::uint64_t bytes) {
  return (bytes + kChunkBytes - 1) / kChunkBytes;
}

// Calls work(i) for i in [0, count) from `threads` threads.
void in_parallel(std::uint64_t count, int threads, const std::function<void(std::uint64_t)>& work) {
  std::atomic<std::uint64_t> next{0};
  const auto run = [&] {
    for (std::uint64_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> team;
  for (int i = 1; i < threads; ++i) team.emplace_back(run);
  run();
  for (std::thread& member : team) member.join();
}

// `drop_behind`, for a file's pages that are only looked at: upstream's mapping of the model is still resident then, and
// the two together would be the peak of the whole load.
std::vector<std::uint64_t> checksums(const std::byte* image, std::uint64_t bytes, int threads, bool drop_behind) {
  std::vector<std::uint64_t> sums(chunk_count(bytes));
  in_parallel(sums.size(), threads, [&](std::uint64_t i) {
    const std::uint64_t at = i * kChunkBytes;
    const std::uint64_t size = std::min(kChunkBytes, bytes - at);
    sums[i] = XXH3_64bits(image + at, size);
    if (drop_behind) drop_pages({image + at, size});
  });
  return sums;
}

void append(std::string& out, const void* data, std::size_t bytes) {
  out.append(static_cast<const char*>(data), bytes);
}

std::string encode_trailer(const std::vector<CachedTensor>& tensors, const std::vector<std::uint64_t>& sums) {
  std::string out;
  for (const CachedTensor& tensor : tensors) {
    const auto name_bytes = static_cast<std::uint32_t>(tensor.name.size());
    const auto type = static_cast<std::uint32_t>(tensor.type);
    append(out, &name_bytes, 4);
    append(out, &type, 4);
    append(out, &tensor.rows, 8);
    append(out, &tensor.columns, 8);
    append(out, &tensor.offset, 8);
    out += tensor.name;
  }
  append(out, sums.data(), sums.size() * 8);
  return out;
}

// False if the trailer is not exactly `count` tensors inside the image and the checksums.
bool decode_trailer(std::string_view in, std::uint64_t count, std::uint64_t image_bytes,
                    std::vector<CachedTensor>& tensors, std::vector<std::uint64_t>& sums) {
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint32_t name_bytes = 0, type = 0;
    CachedTensor tensor;
    if (in.size() < 32) return false;
    std::memcpy(&name_bytes, in.data(), 4);
    std::memcpy(&type, in.data() + 4, 4);
    std::memcpy(&tensor.rows, in.data() + 8, 8);
    std::memcpy(&tensor.columns, in.data() + 16, 8);
    std::memcpy(&tensor.offset, in.data() + 24, 8);
    in.remove_prefix(32);
    const auto known = weight_type_of(type);
    constexpr std::int64_t kMostElements = std::int64_t{1} << 32;
    if (!known || in.size() < name_bytes || tensor.rows < 1 || tensor.rows > kMostElements || tensor.columns < 1 ||
        tensor.columns > kMostElements) {
      return false;
    }
    tensor.type = *known;
    tensor.name = std::string(in.substr(0, name_bytes));
    in.remove_prefix(name_bytes);
    const std::uint64_t bytes = Shape{tensor.type, tensor.rows, tensor.columns}.bytes();
    if (tensor.offset > image_bytes || bytes > image_bytes - tensor.offset) return false;
    tensors.push_back(std::move(tensor));
  }
  sums.resize(chunk_count(image_bytes));
  if (in.size() != sums.size() * 8) return false;
  std::memcpy(sums.data(), in.data(), in.size());
  return true;
}

std::uint64_t header_sum(const Header& header) {
  return XXH3_64bits(&header, offsetof(Header, header_checksum));
}

bool write_at(int fd, const void* data, std::size_t bytes, std::uint64_t offset) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd, from, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    from += n;
    bytes -= static_cast<std::size_t>(n);
    offset += static_cast<std::uint64_t>(n);
  }
  return true;
}

std::string path_for(const std::string& directory, const std::string& key) {
  return fmt::format("{}/{}-layout{}.tiles", directory, key, kLayoutVersion);
}

// Removes what writers that crashed have left, each as large as the model. A living writer holds a lock on its file.
void remove_abandoned(const std::string& directory) {
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator entry(directory, error); !error && entry != end; entry.increment(error)) {
    const std::string path = entry->path().string();
    if (path.find(".tiles.partial-") == std::string::npos) continue;
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
    ::close(fd);
  }
}

Error cannot_write(const std::string& path, int error_number) {
  const bool full = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
  return Error(ErrorCode::kWrite, fmt::format("cannot keep packed tiles in '{}': {}", path,
                                              full ? "no space left" : std::strerror(error_number)));
}

std::int64_t milliseconds(const std::timespec& time) {
  return static_cast<std::int64_t>(time.tv_sec) * 1000 + time.tv_nsec / 1'000'000;
}

// What tells that the files of a model are the same as before.
struct Identity {
  std::string text;
  std::int64_t newest_change = 0;  // in ms
};

Result<Identity> identity_of(const std::vector<std::string>& parts) {
  Identity identity{fmt::format("v{}", kFormatVersion)};
  for (const std::string& part : parts) {
    struct stat info {};
    if (::stat(part.c_str(), &info) != 0) {
      return Error(ErrorCode::kFile, fmt::format("no file at '{}'", part), "Check the path");
    }
    identity.newest_change = std::max({identity.newest_change, milliseconds(info.st_mtim), milliseconds(info.st_ctim)});
    identity.text += fmt::format(" {}:{}:{}:{}.{}:{}.{}", info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec,
                                 info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
  }
  return identity;
}

std::string memo_path(const std::string& directory, const Identity& identity) {
  return fmt::format("{}/{:016x}.identity", directory, XXH3_64bits(identity.text.data(), identity.text.size()));
}

// Empty if there is none, or one of other files.
std::string read_memo(const std::string& path, const Identity& identity) {
  const auto known = read_text_file(path, 4096);
  if (!known.ok()) return {};
  const std::string& text = *known;
  const std::size_t length = identity.text.size();
  if (text.size() != length + 34 || text.compare(0, length, identity.text) != 0) return {};
  return text.substr(length + 1, 32);
}

}  // namespace

Result<std::unique_ptr<CacheImage>> CacheImage::open(const std::string& directory, const std::string& key,
                                                     std::uint64_t image_bytes, int threads) {
  const std::string path = path_for(directory, key);
  KAZEIA_ASSIGN(const std::uint64_t file_bytes, regular_file_size(path));
  std::unique_ptr<CacheImage> image(new CacheImage());
  image->path_ = path;
  image->fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (image->fd_ < 0) return damaged(path, "unreadable");
  Header header{};
  if (::pread(image->fd_, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
      std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) {
    return damaged(path, "not a tile cache file");
  }
  if (header.header_checksum != header_sum(header)) return damaged(path, "damaged in its header");
  if (header.format_version != kFormatVersion || header.layout_version != kLayoutVersion ||
      key.compare(0, sizeof header.key, header.key, sizeof header.key) != 0 || header.image_bytes != image_bytes) {
    return damaged(path, "of another version or model");
  }
  if (file_bytes < kHeaderBytes + image_bytes || header.trailer_bytes != file_bytes - kHeaderBytes - image_bytes ||
      header.tensor_count > kMostTensors) {
    return damaged(path, "truncated");
  }
  image->mapping_bytes_ = file_bytes;
  // Private and writable, so that a tensor that the file does not hold can still be packed into its place.
  void* mapping = mmap(nullptr, file_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, image->fd_, 0);
  if (mapping == MAP_FAILED) return damaged(path, "impossible to map");
  image->mapping_ = static_cast<std::byte*>(mapping);
  image->image_ = image->mapping_ + kHeaderBytes;
  image->image_bytes_ = image_bytes;
  const std::string_view trailer(reinterpret_cast<const char*>(image->image_ + image_bytes), header.trailer_bytes);
  std::vector<std::uint64_t> expected;
  if (XXH3_64bits(trailer.data(), trailer.size()) != header.trailer_checksum ||
      !decode_trailer(trailer, header.tensor_count, image_bytes, image->tensors_, expected)) {
    return damaged(path, "damaged in its directory");
  }
  if (checksums(image->image_, image_bytes, threads, /*drop_behind=*/true) != expected) return damaged(path, "damaged");
  return image;
}

Result<std::unique_ptr<CacheImage>> CacheImage::create(const std::string& directory, const std::string& key,
                                                       std::uint64_t image_bytes) {
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  remove_abandoned(directory);
  std::unique_ptr<CacheImage> image(new CacheImage());
  image->path_ = path_for(directory, key);
  std::string temporary = image->path_ + ".partial-XXXXXX";
  image->fd_ = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (image->fd_ < 0) return cannot_write(directory, errno);
  image->temporary_ = temporary;
  // Where locks do not work the file looks abandoned to another writer; then commit() fails and nothing else happens.
  (void)::flock(image->fd_, LOCK_EX | LOCK_NB);
  image->mapping_bytes_ = kHeaderBytes + image_bytes;
  // Without this a full disk would be a SIGBUS in the middle of packing.
  const int failed = posix_fallocate(image->fd_, 0, static_cast<off_t>(image->mapping_bytes_));
  if (failed != 0) return cannot_write(directory, failed);
  void* mapping = mmap(nullptr, image->mapping_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, image->fd_, 0);
  if (mapping == MAP_FAILED) return cannot_write(directory, errno);
  image->mapping_ = static_cast<std::byte*>(mapping);
  image->image_ = image->mapping_ + kHeaderBytes;
  image->image_bytes_ = image_bytes;
  return image;
}

CacheImage::~CacheImage() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

bool CacheImage::holds(const CachedTensor& tensor) const {
  return std::find(tensors_.begin(), tensors_.end(), tensor) != tensors_.end();
}

Status CacheImage::commit(int threads) {
  Status status;
  if (!temporary_.empty()) {
    const std::vector<std::uint64_t> sums = checksums(image_, image_bytes_, threads, /*drop_behind=*/false);
    const std::string trailer = encode_trailer(packed_, sums);
    Header header{};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.format_version = kFormatVersion;
    header.layout_version = kLayoutVersion;
    const std::string name = std::filesystem::path(path_).filename().string();
    std::memcpy(header.key, name.data(), std::min(name.size(), sizeof header.key));
    header.image_bytes = image_bytes_;
    header.trailer_bytes = trailer.size();
    header.tensor_count = packed_.size();
    header.trailer_checksum = XXH3_64bits(trailer.data(), trailer.size());
    header.header_checksum = header_sum(header);
    // The header goes last: until it is there, the file is not a tile cache file.
    const bool written = write_at(fd_, trailer.data(), trailer.size(), mapping_bytes_) && ::fsync(fd_) == 0 &&
                         write_at(fd_, &header, sizeof header, 0) && ::fsync(fd_) == 0 && ::fchmod(fd_, 0644) == 0 &&
                         ::rename(temporary_.c_str(), path_.c_str()) == 0;
    if (written) {
      temporary_.clear();
    } else {
      status = cannot_write(path_, errno);
    }
  }
  (void)mprotect(mapping_, mapping_bytes_, PROT_READ);
  return status;
}

Result<std::string> model_hash(const std::vector<std::string>& parts, const std::string& directory, int threads) {
  KAZEIA_ASSIGN(const Identity identity, identity_of(parts));
  const std::string memo = memo_path(directory, identity);
  if (std::string known = read_memo(memo, identity); !known.empty()) return known;
  std::vector<std::uint64_t> sums;
  for (const std::string& part : parts) {
    KAZEIA_ASSIGN(const MappedFile file, MappedFile::open(part));
    const std::span<const std::byte> bytes = file.bytes();
    std::vector<std::uint64_t> chunks(chunk_count(bytes.size()));
    in_parallel(chunks.size(), threads, [&](std::uint64_t i) {
      const std::uint64_t at = i * kChunkBytes;
      const auto chunk = bytes.subspan(at, std::min<std::uint64_t>(kChunkBytes, bytes.size() - at));
      chunks[i] = XXH3_64bits(chunk.data(), chunk.size());
      drop_pages(chunk);  // or the whole file would count as this process's memory
    });
    sums.push_back(bytes.size());
    sums.insert(sums.end(), chunks.begin(), chunks.end());
  }
  const XXH128_hash_t hash = XXH3_128bits(sums.data(), sums.size() * 8);
  const std::string text = fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  // A file that is being written may change again within one tick of the file system's clock and keep its times.
  std::timespec now{};
  std::timespec_get(&now, TIME_UTC);
  if (milliseconds(now) - identity.newest_change < 50) return text;
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  // Only a memo: without it the next start hashes again.
  if (auto writer = AtomicFileWriter::create(memo); writer.ok()) {
    if (writer->write(identity.text + "\n" + text + "\n").ok()) (void)writer->commit().ok();
  }
  return text;
}

std::string remembered_hash(const std::vector<std::string>& parts, const std::string& directory) {
  const Result<Identity> identity = identity_of(parts);
  return identity.ok() ? read_memo(memo_path(directory, *identity), *identity) : std::string();
}

}  // namespace kazeia::tiles
