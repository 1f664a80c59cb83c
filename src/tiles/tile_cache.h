// Packed tiles on disk, so that a second start of the same model packs nothing and its weights are pages of a file that
// the system may drop and read again. Format: docs/tile_cache_format.md.
//
// A cache file is the image of one tile buffer plus the list of the tensors in it. It is keyed by the model's hash and
// the layout version and nothing else: the tensors are checked one by one when they are asked for, so a loader that
// arranges them differently gets misses, never wrong weights. Writers write a file of their own and rename it, so any
// number of processes may fill the same folder at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tiles/layout.h"

namespace kazeia::tiles {

struct CachedTensor {
  std::string name;
  WeightType type{};
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::uint64_t offset = 0;  // in the image
  bool operator==(const CachedTensor&) const = default;
};

// The memory of one tile buffer, backed by a cache file.
class CacheImage {
 public:
  // Maps the file for `key` copy-on-write if it is there, whole and right: every byte is checked against its checksum.
  // Errors: kFile, with the reason (missing, damaged, of another size); the caller packs instead.
  static Result<std::unique_ptr<CacheImage>> open(const std::string& directory, const std::string& key,
                                                  std::uint64_t image_bytes, int threads);
  // Room for a new file, allocated on the disk at once so that filling it cannot fail. kWrite: no space, no permission.
  static Result<std::unique_ptr<CacheImage>> create(const std::string& directory, const std::string& key,
                                                    std::uint64_t image_bytes);
  // A file that was not committed disappears.
  ~CacheImage();
  CacheImage(const CacheImage&) = delete;
  CacheImage& operator=(const CacheImage&) = delete;

  std::byte* base() const { return image_; }
  // The image holds exactly this tensor. False for a new file.
  bool holds(const CachedTensor& tensor) const;
  // Notes that the tensor has been packed into the image (of a new file).
  void note(CachedTensor tensor) { packed_.push_back(std::move(tensor)); }
  // New file: checksums, directory and header are written and the file gets its name. Existing file: nothing. The image
  // is read-only afterwards. kWrite if the disk says no; the image stays usable either way.
  Status commit(int threads);

 private:
  CacheImage() = default;
  std::string path_;
  std::string temporary_;  // not empty: a new file
  int fd_ = -1;
  std::byte* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
  std::byte* image_ = nullptr;
  std::uint64_t image_bytes_ = 0;
  std::vector<CachedTensor> tensors_;  // what an existing file holds
  std::vector<CachedTensor> packed_;   // what was packed into a new one
};

// Hash of a model's bytes (all parts of a split file), as 32 hex digits. Reading gigabytes takes a while, so the result
// is remembered in `directory` under the files' identity (device, inode, size, times); a file that was touched is
// hashed again.
Result<std::string> model_hash(const std::vector<std::string>& parts, const std::string& directory, int threads);
// The same if it is remembered, else empty; never reads the model.
std::string remembered_hash(const std::vector<std::string>& parts, const std::string& directory);

}  // namespace kazeia::tiles
