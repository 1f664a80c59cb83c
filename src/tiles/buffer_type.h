// The ggml side of the tiles: a buffer type that llama.cpp offers every weight to, packs what has a layout, and
// computes with the tile kernels. Upstream is not patched: its list of extra CPU buffer types is open.
#pragma once

#include <cstddef>
#include <cstdint>

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "ggml-backend.h"
#include "tiles/tile_cache.h"

struct ggml_tensor;
namespace ggml::cpu {
class tensor_traits;
}

namespace kazeia::tiles {

// The buffer type. is_host() is false: raw file blocks must go through set_tensor, which packs them.
ggml_backend_buffer_type_t buffer_type();

// Puts the buffer type in front of ggml-cpu's own extra types. Must come before the first model of the process is
// loaded, because upstream copies the list then; later calls do nothing.
void register_buffer_type();

// True if a weight of this ggml type and shape would be kept in tiles.
bool has_tiles(std::uint32_t ggml_type, std::int64_t columns, std::int64_t rows, int dimensions);

// While one of these lives, models loaded by this thread are not offered the tile type, so that upstream's own
// layouts are used (comparisons, tests). Tensors already in tiles are not affected.
class [[nodiscard]] WithoutTiles {
 public:
  WithoutTiles();
  ~WithoutTiles();
  WithoutTiles(const WithoutTiles&) = delete;
  WithoutTiles& operator=(const WithoutTiles&) = delete;
};

struct LoadOptions {
  int threads = 1;              // that pack each tensor
  std::string cache_directory;  // not empty: packed tiles are kept there (tile_cache.h)
  std::string cache_key;        // hash of the model
  bool huge_pages = true;       // where the system offers them; not for pages of a cache file
};

// The load of one model on this thread, by llama.cpp's mmap load mode: the data that set_tensor is given lies in a
// read-only file mapping that nobody reads again. Its pages are dropped right behind the packer, which is what keeps
// file and tiles from being resident together.
class [[nodiscard]] Loading {
 public:
  explicit Loading(LoadOptions options);
  ~Loading();
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;

  // After the model has been loaded: new cache files get their names. kWrite if one could not be kept, which costs
  // nothing but the next start's packing.
  Status finish();
  std::uint64_t packed_bytes() const { return packed_bytes_; }  // of tiles packed from the file
  std::uint64_t cached_bytes() const { return cached_bytes_; }  // of tiles found in the cache

  // For the buffer type.
  const LoadOptions& options() const { return options_; }
  std::unique_ptr<CacheImage> cache_image(std::uint64_t image_bytes);
  void note_packed(std::uint64_t bytes) { packed_bytes_ += bytes; }
  void note_cached(std::uint64_t bytes) { cached_bytes_ += bytes; }

 private:
  LoadOptions options_;
  std::vector<CacheImage*> images_;  // owned by their buffers, which outlive the load
  Status trouble_;
  std::uint64_t packed_bytes_ = 0;
  std::uint64_t cached_bytes_ = 0;
};

// For buffer types elsewhere that hold tiles too (memory that the CPU shares with another processor).
// Makes ggml-cpu take tensors in buffers of this type; its context must be a ggml::cpu::extra_buffer_type. Weights are
// not offered to it when a model is loaded for the CPU.
void accept_on_cpu(ggml_backend_buffer_type_t type);
// What computes MUL_MAT and GET_ROWS over tiles that supports() (operators.h) accepts.
ggml::cpu::tensor_traits* tile_traits();
// Packs a whole matrix from ggml blocks into tensor->data, as the Loading of this thread says.
void place_tensor(const ggml_tensor* tensor, const void* blocks);

// Bytes of weights in tile buffers of this process.
std::uint64_t resident_tile_bytes();

}  // namespace kazeia::tiles
