// The NPU's memory as both processors address it.
//
// Two buffer types over the driver's own allocations (DMA buffers, ordinary cached memory to the CPU):
//   weights  quantised matrices in tiles, which both the DSP and the tile kernels read, everything else as in the file
//   state    KV cache, recurrent state, activations, logits: plain host memory
// The buffers are upstream's own Hexagon buffers with our type and our hooks, so its host code works on them unchanged.
// Nothing is ever copied between processors; the counters prove it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ggml-backend.h"

struct ggml_tensor;

namespace kazeia::npu {

// Creates the types; once per process, after the device's session is up and before a model is loaded for it.
// `upstream` is the Hexagon device, `gate` the device that llama.cpp is given in its place.
void create_shared_types(ggml_backend_dev_t upstream, ggml_backend_dev_t gate);
ggml_backend_buffer_type_t weights_type();
ggml_backend_buffer_type_t state_type();

// What the check of one model's tiles found. Of every matrix one row of tiles (chosen by its name; the last one, which
// may be padded, more often than its share) is repacked by upstream's own host code and compared with ours byte for
// byte, and unpacked by our table and compared with the file.
struct TileCheck {
  std::uint64_t matrices = 0;
  std::uint64_t tiles = 0;
  std::vector<std::string> mismatched;  // names of tensors

  bool agrees() const { return mismatched.empty(); }
};

// Packs one whole tensor from the file's blocks. Replaceable, so that a test can show that a wrong layout is noticed.
using Packer = void (*)(const ggml_tensor* tensor, const void* blocks);

// While it lives, weights that this thread loads into the shared buffers are checked and counted.
class [[nodiscard]] WeightLoad {
 public:
  explicit WeightLoad(Packer packer = nullptr);  // nullptr: tiles::place_tensor
  ~WeightLoad();
  WeightLoad(const WeightLoad&) = delete;
  WeightLoad& operator=(const WeightLoad&) = delete;

  const TileCheck& check() const { return check_; }

 private:
  friend struct WeightHooks;
  Packer packer_;
  TileCheck check_;
};

struct MemoryCounters {
  std::uint64_t weight_bytes_resident = 0;  // in shared weight buffers of this process
  std::uint64_t weight_bytes_copied = 0;    // read out of them to run on another processor: must stay 0
  std::uint64_t state_bytes_resident = 0;   // in shared state buffers
  std::uint64_t tensor_records = 0;         // of upstream's per-tensor records that are alive in state buffers
};
MemoryCounters memory_counters();

}  // namespace kazeia::npu
