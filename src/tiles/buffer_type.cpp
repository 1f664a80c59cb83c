#include "tiles/buffer_type.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/files.h"
#include "base/log.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu.h"
#include "ggml-cpu/traits.h"
#include "ggml.h"
#include "tiles/attention_operator.h"
#include "tiles/layout.h"
#include "tiles/operators.h"
#include "tiles/pack.h"
#include "tiles/recurrent_copies.h"

namespace kazeia::tiles {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

thread_local int without_tiles_depth = 0;
thread_local Loading* loading = nullptr;
std::atomic<std::uint64_t> resident_bytes{0};

// Anonymous memory, on huge pages where the system offers them; zeroed by the kernel on first touch.
struct Memory {
  std::byte* base = nullptr;
  std::size_t size = 0;
  void* mapping = nullptr;
  std::size_t mapping_size = 0;
  std::unique_ptr<CacheImage> image;  // instead of the anonymous mapping
  // Tensors that arrive in pieces (not from our own loader) wait here until they are whole.
  std::mutex mutex;
  std::unordered_map<const void*, std::vector<std::uint8_t>> partial;

  static Memory* allocate(std::size_t size, bool huge_pages) {
    const std::size_t mapping_size = size + kHugePage;
    void* mapping = mmap(nullptr, mapping_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) return nullptr;
    auto* memory = new Memory;
    memory->mapping = mapping;
    memory->mapping_size = mapping_size;
    const auto address = (reinterpret_cast<std::uintptr_t>(mapping) + kHugePage - 1) / kHugePage * kHugePage;
    memory->base = reinterpret_cast<std::byte*>(address);
    memory->size = size;
#ifdef MADV_HUGEPAGE
    // Not an error where the kernel has none: the same memory on small pages, a few percent slower.
    (void)madvise(memory->base, size, huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#endif
    return memory;
  }
  static Memory* on(std::unique_ptr<CacheImage> cached, std::size_t size) {
    auto* memory = new Memory;
    memory->base = cached->base();
    memory->size = size;
    memory->image = std::move(cached);
    return memory;
  }
  ~Memory() {
    if (mapping != nullptr) munmap(mapping, mapping_size);
  }
};

Memory* memory_of(ggml_backend_buffer_t buffer) {
  return static_cast<Memory*>(buffer->context);
}

Shape shape_of(const ggml_tensor* tensor) {
  return Shape{*weight_type_of(static_cast<std::uint32_t>(tensor->type)), tensor->ne[1], tensor->ne[0]};
}

// From a file mapping: piece by piece, so that at no time more than a piece of the file is resident beside its tiles.
void pack_from_mapping(const Shape& shape, const std::uint8_t* blocks, std::uint8_t* tiles, int threads) {
  constexpr std::size_t kPiece = std::size_t{32} << 20;
  const std::size_t row_block_bytes = 32 * shape.block_row_bytes();
  const auto step = static_cast<std::int64_t>(std::max<std::size_t>(1, kPiece / row_block_bytes));
  for (std::int64_t first = 0; first < shape.row_tiles(); first += step) {
    const std::int64_t first_row = first * 32;
    Shape piece = shape;
    piece.rows = std::min(step * 32, shape.rows - first_row);
    const std::uint8_t* source = blocks + static_cast<std::size_t>(first_row) * shape.block_row_bytes();
    pack(piece, source, tiles + static_cast<std::size_t>(first) * shape.row_tile_bytes(), threads);
    drop_pages({reinterpret_cast<const std::byte*>(source), piece.block_bytes()});
  }
}

// The whole tensor: from the file, or already there.
void place_in(Memory* memory, const ggml_tensor* tensor, const void* data) {
  if (loading != nullptr && memory->image) {
    const Shape shape = shape_of(tensor);
    CachedTensor cached{tensor->name, shape.type, shape.rows, shape.columns,
                        static_cast<std::uint64_t>(static_cast<std::byte*>(tensor->data) - memory->base)};
    if (memory->image->holds(cached)) {
      loading->note_cached(shape.bytes());
      drop_pages({static_cast<const std::byte*>(data), shape.block_bytes()});  // upstream's mapping brought them in
      return;
    }
    memory->image->note(std::move(cached));
  }
  place_tensor(tensor, data);
}

void buffer_free(ggml_backend_buffer_t buffer) {
  Memory* memory = memory_of(buffer);
  resident_bytes -= memory->size;
  delete memory;
}

void* buffer_base(ggml_backend_buffer_t buffer) {
  return memory_of(buffer)->base;
}

void buffer_memset(ggml_backend_buffer_t, ggml_tensor* tensor, std::uint8_t value, std::size_t, std::size_t) {
  std::memset(tensor->data, value, shape_of(tensor).bytes());
}

void buffer_set(ggml_backend_buffer_t buffer, ggml_tensor* tensor, const void* data, std::size_t offset,
                std::size_t size) {
  const std::size_t whole = ggml_nbytes(tensor);
  if (offset == 0 && size == whole) {
    place_in(memory_of(buffer), tensor, data);
    return;
  }
  Memory* memory = memory_of(buffer);
  const std::lock_guard lock(memory->mutex);
  std::vector<std::uint8_t>& blocks = memory->partial[tensor->data];
  if (blocks.empty()) {
    blocks.resize(whole);
    unpack(shape_of(tensor), static_cast<const std::uint8_t*>(tensor->data), blocks.data(), 0, tensor->ne[1]);
  }
  std::memcpy(blocks.data() + offset, data, size);
  pack(shape_of(tensor), blocks.data(), static_cast<std::uint8_t*>(tensor->data), 1);
  if (offset + size == whole) memory->partial.erase(tensor->data);
}

void buffer_get(ggml_backend_buffer_t, const ggml_tensor* tensor, void* data, std::size_t offset, std::size_t size) {
  const Shape shape = shape_of(tensor);
  const std::size_t row_bytes = shape.block_row_bytes();
  const auto first = static_cast<std::int64_t>(offset / row_bytes);
  const auto last = static_cast<std::int64_t>((offset + size + row_bytes - 1) / row_bytes);
  std::vector<std::uint8_t> rows(static_cast<std::size_t>(last - first) * row_bytes);
  unpack(shape, static_cast<const std::uint8_t*>(tensor->data), rows.data(), first, last);
  std::memcpy(data, rows.data() + (offset - static_cast<std::size_t>(first) * row_bytes), size);
}

void buffer_clear(ggml_backend_buffer_t buffer, std::uint8_t value) {
  Memory* memory = memory_of(buffer);
  if (memory->image) return;  // a cache image is written by set_tensor only
  // Giving the pages back is zeroing them, and leaves them out of RSS until they are used.
  if (value == 0 && madvise(memory->base, memory->size, MADV_DONTNEED) == 0) return;
  std::memset(memory->base, value, memory->size);
}

constexpr ggml_backend_buffer_i kBufferInterface = {
    /* free_buffer   */ buffer_free,
    /* get_base      */ buffer_base,
    /* init_tensor   */ nullptr,
    /* memset_tensor */ buffer_memset,
    /* set_tensor    */ buffer_set,
    /* get_tensor    */ buffer_get,
    /* set_tensor_2d */ nullptr,
    /* get_tensor_2d */ nullptr,
    /* cpy_tensor    */ nullptr,
    /* clear         */ buffer_clear,
    /* reset         */ nullptr,
};

const char* type_name(ggml_backend_buffer_type_t) {
  return "CPU_TILES";
}

ggml_backend_buffer_t type_alloc(ggml_backend_buffer_type_t type, std::size_t size) {
  Memory* memory = nullptr;
  if (loading != nullptr) {
    if (auto image = loading->cache_image(size)) memory = Memory::on(std::move(image), size);
  }
  if (memory == nullptr) {
    memory = Memory::allocate(std::max<std::size_t>(size, 1), loading == nullptr || loading->options().huge_pages);
  }
  if (memory == nullptr) {
    log(LogLevel::kInfo, "cannot allocate memory for the weights");  // upstream tells the caller
    return nullptr;
  }
  resident_bytes += memory->size;
  return ggml_backend_buffer_init(type, kBufferInterface, memory, size);
}

std::size_t type_alignment(ggml_backend_buffer_type_t) {
  return kTileAlignment;
}

std::size_t type_alloc_size(ggml_backend_buffer_type_t, const ggml_tensor* tensor) {
  const auto type = weight_type_of(static_cast<std::uint32_t>(tensor->type));
  if (!type || tensor->ne[2] != 1 || tensor->ne[3] != 1) return ggml_nbytes(tensor);
  return Shape{*type, tensor->ne[1], tensor->ne[0]}.bytes();
}

class Traits final : public ggml::cpu::tensor_traits {
 public:
  bool work_size(int threads, const ggml_tensor* op, std::size_t& size) override {
    size = scratch_bytes(threads, op);
    return true;
  }
  bool compute_forward(ggml_compute_params* params, ggml_tensor* op) override {
    compute(params, op);
    return true;
  }
};

class RecurrentCopyTraits final : public ggml::cpu::tensor_traits {
 public:
  bool work_size(int, const ggml_tensor*, std::size_t&) override { return false; }
  bool compute_forward(ggml_compute_params* params, ggml_tensor* op) override { return run_recurrent_copy(params, op); }
};

class AttentionTraits final : public ggml::cpu::tensor_traits {
 public:
  bool work_size(int threads, const ggml_tensor* op, std::size_t& size) override {
    return plan_attention(op, threads, size);
  }
  bool compute_forward(ggml_compute_params* params, ggml_tensor* op) override { return run_attention(params, op); }
};

class ExtraBufferType final : public ggml::cpu::extra_buffer_type {
 public:
  bool supports_op(ggml_backend_dev_t, const ggml_tensor* op) override {
    return without_tiles_depth == 0 && is_ours(op) && supports(op);
  }
  // By buffer type and ggml type, never by tensor->extra: with the NPU present `extra` is the Hexagon backend's.
  ggml::cpu::tensor_traits* get_tensor_traits(const ggml_tensor* op) override {
    static RecurrentCopyTraits copies;
    static AttentionTraits attention;
    if (is_ours(op)) return op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_GET_ROWS ? tile_traits() : nullptr;
    if (is_attention(op)) return &attention;
    return is_recurrent_copy(op) ? &copies : nullptr;
  }

 private:
  static bool is_ours(const ggml_tensor* op) {
    return op->src[0] != nullptr && op->src[0]->buffer != nullptr && op->src[0]->buffer->buft == buffer_type();
  }
};

}  // namespace

ggml_backend_buffer_type_t buffer_type() {
  static ExtraBufferType extra;
  static ggml_backend_buffer_type type = {
      /* iface   */ {type_name, type_alloc, type_alignment, nullptr, type_alloc_size, nullptr},
      /* device  */ ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0),
      /* context */ static_cast<ggml::cpu::extra_buffer_type*>(&extra),
  };
  return &type;
}

void register_buffer_type() {
  static std::once_flag once;
  std::call_once(once, [] {
    auto& types = ggml_backend_cpu_get_extra_buffer_types();
    types.insert(types.begin(), buffer_type());
  });
}

void accept_on_cpu(ggml_backend_buffer_type_t type) {
  register_buffer_type();
  // ggml-cpu copies its list once, when it is first asked what to offer weights to. What is added after that is
  // accepted in graphs only.
  ggml_backend_reg_t reg = ggml_backend_cpu_reg();
  const auto offered = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(reg, "ggml_backend_dev_get_extra_bufts"));
  if (offered != nullptr) (void)offered(ggml_backend_reg_dev_get(reg, 0));
  auto& types = ggml_backend_cpu_get_extra_buffer_types();
  if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
}

ggml::cpu::tensor_traits* tile_traits() {
  static Traits traits;
  return &traits;
}

void place_tensor(const ggml_tensor* tensor, const void* blocks) {
  const Shape shape = shape_of(tensor);
  const auto* source = static_cast<const std::uint8_t*>(blocks);
  auto* tiles = static_cast<std::uint8_t*>(tensor->data);
  if (loading == nullptr) {
    pack(shape, source, tiles, 1);
    return;
  }
  pack_from_mapping(shape, source, tiles, loading->options().threads);
  loading->note_packed(shape.bytes());
}

bool has_tiles(std::uint32_t ggml_type, std::int64_t columns, std::int64_t rows, int dimensions) {
  return dimensions == 2 && columns > 0 && rows > 0 && weight_type_of(ggml_type).has_value();
}

WithoutTiles::WithoutTiles() {
  ++without_tiles_depth;
}
WithoutTiles::~WithoutTiles() {
  --without_tiles_depth;
}

Loading::Loading(LoadOptions options) : options_(std::move(options)) {
  options_.threads = std::max(1, options_.threads);
  loading = this;
}
Loading::~Loading() {
  loading = nullptr;
}

std::unique_ptr<CacheImage> Loading::cache_image(std::uint64_t image_bytes) {
  // Upstream asks for one buffer per model; a second one would need a name of its own.
  if (options_.cache_directory.empty() || !images_.empty() || image_bytes == 0) return nullptr;
  auto found = CacheImage::open(options_.cache_directory, options_.cache_key, image_bytes, options_.threads);
  if (!found.ok()) {
    log(LogLevel::kInfo, found.error().sentence());
    found = CacheImage::create(options_.cache_directory, options_.cache_key, image_bytes);
  }
  if (!found.ok()) {
    trouble_ = found.error();
    return nullptr;
  }
  images_.push_back(found->get());
  return std::move(*found);
}

Status Loading::finish() {
  for (CacheImage* image : images_) {
    Status status = image->commit(options_.threads);
    if (!status.ok()) trouble_ = std::move(status);
  }
  images_.clear();
  return trouble_;
}

std::uint64_t resident_tile_bytes() {
  return resident_bytes.load();
}

}  // namespace kazeia::tiles
