#include "npu/shared_memory.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <random>
#include <string_view>
#include <unordered_map>

#include "base/log.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu.h"
#include "ggml-cpu/traits.h"
#include "ggml.h"
#include "tiles/buffer_type.h"
#include "tiles/layout.h"
#include "tiles/operators.h"
#include "tiles/pack.h"

namespace kazeia::npu {
namespace {

thread_local WeightLoad* weight_load = nullptr;
std::atomic<std::uint64_t> weight_bytes{0};
std::atomic<std::uint64_t> weight_bytes_out{0};
std::atomic<std::uint64_t> state_bytes{0};
std::atomic<std::uint64_t> records{0};

ggml_backend_buffer_type_t upstream_type = nullptr;
ggml_backend_buffer_i upstream_buffer{};  // the Hexagon backend's own functions, the same for all of its buffers

// Upstream's init_tensor allocates a record per tensor and frees it with the buffer, so a compute buffer would grow
// with every graph that is rebuilt (about 100 KB each). A rebuilt graph reuses the addresses of its predecessor's
// tensors, which are gone by then, and therefore may reuse their records.
using Records = std::unordered_map<const ggml_tensor*, void*>;
std::mutex records_mutex;
std::unordered_map<ggml_backend_buffer_t, Records> state_records;

bool is_tiled(const ggml_tensor* tensor) {
  return tiles::weight_type_of(static_cast<std::uint32_t>(tensor->type)).has_value();
}

tiles::Shape shape_of(const ggml_tensor* tensor) {
  return {*tiles::weight_type_of(static_cast<std::uint32_t>(tensor->type)), tensor->ne[1], tensor->ne[0]};
}

// Any row of tiles of the matrix, and the last one, which may be padded, more often than its share.
std::int64_t chosen_row_tile(const tiles::Shape& shape, std::string_view name) {
  std::minstd_rand random(static_cast<unsigned>(std::hash<std::string_view>{}(name)));
  const auto last = shape.row_tiles() - 1;
  return random() % 4 == 0 ? last : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(last + 1));
}

}  // namespace

// The hooks of the weights type.
struct WeightHooks {
  // Has upstream repack one row of tiles into `out`. This also makes upstream mark the tensor as repacked weights:
  // its record has no other door. `out` must hold row_tile_bytes().
  static void repack_by_upstream(ggml_backend_buffer_t buffer, const ggml_tensor* tensor, const void* blocks,
                                 std::int64_t row_tile, std::uint8_t* out) {
    const std::int64_t first = row_tile * tiles::kTileRows;
    ggml_tensor piece = *tensor;
    piece.ne[1] = std::min<std::int64_t>(tiles::kTileRows, tensor->ne[1] - first);
    piece.nb[2] = piece.nb[1] * static_cast<std::size_t>(piece.ne[1]);
    piece.nb[3] = piece.nb[2];
    piece.data = out;
    const auto* rows = static_cast<const std::uint8_t*>(blocks) + static_cast<std::size_t>(first) * tensor->nb[1];
    upstream_buffer.set_tensor(buffer, &piece, rows, 0, ggml_nbytes(&piece));
  }

  // `piece` is one row of tiles. Types whose scales are rounded are compared by their quants.
  static bool matches_file(const tiles::Shape& piece, const std::uint8_t* row_tile,
                           const std::vector<std::uint8_t>& blocks) {
    if (tiles::layout(piece.type).exact) {
      std::vector<std::uint8_t> rows(blocks.size());
      tiles::unpack(piece, row_tile, rows.data(), 0, piece.rows);
      return rows == blocks;
    }
    const auto tile_bytes = static_cast<std::size_t>(tiles::layout(piece.type).tile_bytes);
    for (std::int64_t row = 0; row < piece.rows; ++row) {
      const std::uint8_t* row_blocks = blocks.data() + static_cast<std::size_t>(row) * piece.block_row_bytes();
      for (std::int64_t column = 0; column < piece.column_tiles(); ++column) {
        std::uint8_t ours[32];
        std::uint8_t theirs[32];
        tiles::tile_row_quants(piece.type, row_tile + static_cast<std::size_t>(column) * tile_bytes,
                               static_cast<int>(row), ours);
        tiles::block_row_quants(piece.type, row_blocks, column, theirs);
        if (std::memcmp(ours, theirs, sizeof ours) != 0) return false;
      }
    }
    return true;
  }

  static void set(ggml_backend_buffer_t buffer, ggml_tensor* tensor, const void* data, std::size_t offset,
                  std::size_t size) {
    const bool whole = offset == 0 && size == ggml_nbytes(tensor);
    if (!whole || !is_tiled(tensor) || tensor->ne[2] != 1 || tensor->ne[3] != 1) {
      upstream_buffer.set_tensor(buffer, tensor, data, offset, size);
      return;
    }
    const tiles::Shape shape = shape_of(tensor);
    const auto* blocks = static_cast<const std::uint8_t*>(data);
    const std::int64_t row_tile = chosen_row_tile(shape, tensor->name);
    std::vector<std::uint8_t> by_upstream(shape.row_tile_bytes());
    repack_by_upstream(buffer, tensor, data, row_tile, by_upstream.data());

    const std::int64_t first = row_tile * tiles::kTileRows;
    const std::int64_t last = std::min(shape.rows, first + tiles::kTileRows);
    // Kept aside, because packing drops the file's pages behind itself.
    std::vector<std::uint8_t> from_file;
    if (weight_load != nullptr) {
      from_file.assign(blocks + static_cast<std::size_t>(first) * shape.block_row_bytes(),
                       blocks + static_cast<std::size_t>(last) * shape.block_row_bytes());
    }
    const Packer packer = weight_load != nullptr ? weight_load->packer_ : tiles::place_tensor;
    packer(tensor, data);

    if (weight_load == nullptr) return;
    const std::uint8_t* ours =
        static_cast<const std::uint8_t*>(tensor->data) + static_cast<std::size_t>(row_tile) * shape.row_tile_bytes();
    tiles::Shape piece = shape;
    piece.rows = last - first;
    TileCheck& check = weight_load->check_;
    ++check.matrices;
    check.tiles += static_cast<std::uint64_t>(shape.column_tiles());
    if (std::memcmp(ours, by_upstream.data(), by_upstream.size()) != 0 || !matches_file(piece, ours, from_file)) {
      check.mismatched.emplace_back(tensor->name);
    }
  }

  static void get(ggml_backend_buffer_t buffer, const ggml_tensor* tensor, void* data, std::size_t offset,
                  std::size_t size) {
    weight_bytes_out += size;
    upstream_buffer.get_tensor(buffer, tensor, data, offset, size);
  }

  static void free(ggml_backend_buffer_t buffer) {
    weight_bytes -= buffer->size;
    upstream_buffer.free_buffer(buffer);
  }
};

namespace {

ggml_status init_state_tensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor) {
  const std::lock_guard lock(records_mutex);
  Records& of_tensor = state_records[buffer];
  const auto found = of_tensor.find(tensor);
  if (found != of_tensor.end()) {
    tensor->extra = found->second;
    return GGML_STATUS_SUCCESS;
  }
  const ggml_status status = upstream_buffer.init_tensor(buffer, tensor);
  if (status == GGML_STATUS_SUCCESS) {
    of_tensor.emplace(tensor, tensor->extra);
    ++records;
  }
  return status;
}

void memset_state_tensor(ggml_backend_buffer_t, ggml_tensor* tensor, std::uint8_t value, std::size_t offset,
                         std::size_t size) {
  std::memset(static_cast<std::byte*>(tensor->data) + offset, value, size);
}

void free_state_buffer(ggml_backend_buffer_t buffer) {
  {
    const std::lock_guard lock(records_mutex);
    const auto found = state_records.find(buffer);
    if (found != state_records.end()) {
      records -= found->second.size();
      state_records.erase(found);
    }
  }
  state_bytes -= buffer->size;
  upstream_buffer.free_buffer(buffer);
}

ggml_backend_buffer_t allocate(ggml_backend_buffer_type_t type, std::size_t size) {
  ggml_backend_buffer_t buffer = upstream_type->iface.alloc_buffer(upstream_type, size);
  if (buffer == nullptr) return nullptr;
  upstream_buffer = buffer->iface;
  buffer->buft = type;
  return buffer;
}

ggml_backend_buffer_t allocate_weights(ggml_backend_buffer_type_t type, std::size_t size) {
  ggml_backend_buffer_t buffer = allocate(type, size);
  if (buffer == nullptr) return nullptr;
  buffer->iface.set_tensor = WeightHooks::set;
  buffer->iface.get_tensor = WeightHooks::get;
  buffer->iface.free_buffer = WeightHooks::free;
  weight_bytes += size;
  return buffer;
}

ggml_backend_buffer_t allocate_state(ggml_backend_buffer_type_t type, std::size_t size) {
  ggml_backend_buffer_t buffer = allocate(type, size);
  if (buffer == nullptr) return nullptr;
  buffer->iface.init_tensor = init_state_tensor;
  buffer->iface.memset_tensor = memset_state_tensor;
  buffer->iface.free_buffer = free_state_buffer;
  state_bytes += size;
  return buffer;
}

// What the CPU may do with the shared weights.
class SharedWeights final : public ggml::cpu::extra_buffer_type {
 public:
  bool supports_op(ggml_backend_dev_t, const ggml_tensor* op) override {
    for (const ggml_tensor* source : op->src) {
      if (source == nullptr || source->buffer == nullptr || source->buffer->buft != weights_type()) continue;
      // Tiles can only be multiplied with, or looked up in; what is not in tiles lies there as the file has it.
      if (is_tiled(source) && (source != op->src[0] || !tiles::supports(op))) return false;
    }
    return true;
  }
  ggml::cpu::tensor_traits* get_tensor_traits(const ggml_tensor* op) override {
    const ggml_tensor* weights = op->src[0];
    if (weights == nullptr || weights->buffer == nullptr || weights->buffer->buft != weights_type()) return nullptr;
    return is_tiled(weights) && tiles::supports(op) ? tiles::tile_traits() : nullptr;
  }
};

const char* weights_name(ggml_backend_buffer_type_t) {
  return "NPU_TILES";
}
const char* state_name(ggml_backend_buffer_type_t) {
  return "NPU_SHARED";
}
bool yes(ggml_backend_buffer_type_t) {
  return true;
}

ggml_backend_buffer_type weights{};
ggml_backend_buffer_type state{};

}  // namespace

void create_shared_types(ggml_backend_dev_t upstream, ggml_backend_dev_t gate) {
  static SharedWeights shared;
  upstream_type = upstream->iface.get_buffer_type(upstream);
  weights.iface = upstream_type->iface;
  weights.iface.get_name = weights_name;
  weights.iface.alloc_buffer = allocate_weights;
  weights.device = gate;
  weights.context = static_cast<ggml::cpu::extra_buffer_type*>(&shared);
  state.iface = upstream_type->iface;
  state.iface.get_name = state_name;
  state.iface.alloc_buffer = allocate_state;
  state.iface.is_host = yes;
  state.device = gate;
  state.context = nullptr;
  tiles::accept_on_cpu(&weights);
}

ggml_backend_buffer_type_t weights_type() {
  return &weights;
}
ggml_backend_buffer_type_t state_type() {
  return &state;
}

WeightLoad::WeightLoad(Packer packer) : packer_(packer != nullptr ? packer : tiles::place_tensor) {
  weight_load = this;
}
WeightLoad::~WeightLoad() {
  weight_load = nullptr;
}

MemoryCounters memory_counters() {
  return {weight_bytes, weight_bytes_out, state_bytes, records};
}

}  // namespace kazeia::npu
