// A loaded model: weights and vocabulary, immutable after load() and shared by any number of timelines.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "engine/placement.h"
#include "engine/token.h"

struct llama_model;
struct llama_vocab;

namespace kazeia {

// A matrix that the NPU does not run, and what that costs.
struct RefusedTensor {
  std::string name;
  std::string type;
  double share = 0;  // of the multiplications of a prefill, 0..1
};

// Of a model placed on the NPU.
struct NpuPlacement {
  std::uint64_t shared_bytes = 0;      // weights that both processors address
  std::uint64_t checked_matrices = 0;  // of which one row of tiles was compared with upstream's and with the file
  std::vector<RefusedTensor> refused;  // largest first; the token table and the output head are not among them
};

// For rooms that hold a vocabulary without a Model; otherwise Model::tokenize(), which says what the flags do.
Result<Tokens> tokenize(const llama_vocab* vocabulary, std::string_view text, bool add_special, bool parse_special);

struct ModelOptions {
  Placement placement = Placement::kCpu;
  // Called on the loading thread with 0..1, at most about a hundred times.
  std::function<void(float fraction)> on_progress;
  // When requested, load() stops within one tensor and returns kCancelled.
  const CancelFlag* cancel = nullptr;
  // Not empty: packed tiles are kept in this folder, and a second start of the same model packs nothing.
  std::string tile_cache_directory;
  // For packed tiles, where the system offers them.
  bool huge_pages = true;
  // Weights above it are refused; 0 = the memory that the machine has free.
  std::uint64_t memory_budget_bytes = 0;
};

class Model {
 public:
  // Checks the file with the strict reader (gguf/reader.h) before upstream sees a byte of it, follows
  // split files, loads the weights. Errors: kFile, kUnsupported (unknown architecture), kTooLarge
  // (weights larger than the memory that is free), kCancelled, kEngine. For the NPU also kUnsupported if there is
  // none, and kEngine if its weight layout is not the one that the CPU's kernels read.
  static Result<std::shared_ptr<const Model>> load(const std::string& path, const ModelOptions& options);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const std::string& path() const { return path_; }
  const std::string& architecture() const { return architecture_; }  // "qwen3", "qwen35", ...
  Placement placement() const { return placement_; }
  double load_ms() const { return load_ms_; }
  std::uint64_t weight_bytes() const;
  // Of the file's bytes (all parts of a split one), as 32 hex digits: names the model in files that depend on it. Reads
  // gigabytes; remembered in `memo_directory` for files that do not change. kFile.
  Result<std::string> content_hash(const std::string& memo_directory) const;
  // The same of a model that is not loaded, if it is remembered for its files as they are now; else empty. Cheap.
  static std::string remembered_hash(const std::string& path, const std::string& memo_directory);
  // Bytes of weights that the tile kernels read, and of those the part that came from the tile cache.
  std::uint64_t tile_bytes() const { return tile_bytes_; }
  std::uint64_t cached_tile_bytes() const { return cached_tile_bytes_; }
  const NpuPlacement& npu_placement() const { return npu_placement_; }
  std::uint32_t trained_context_tokens() const;
  // True if some layers keep a recurrent state that cannot be cut back to an earlier token.
  bool has_recurrent_state() const;
  // True if what a token leaves in the KV cache depends on how large the whole context is (LongRoPE's factors).
  bool depends_on_context_size() const;
  // The jinja template in the file, or empty.
  const std::string& chat_template() const { return chat_template_; }

  std::int32_t vocabulary_size() const;
  // `parse_special`: "<|im_end|>" in the text becomes the control token; leave it false for text that a
  // person typed. `add_special`: begin-of-sequence as the model's metadata asks.
  Result<Tokens> tokenize(std::string_view text, bool add_special, bool parse_special) const;
  // The bytes of one token; may be a part of a UTF-8 character. Control tokens give an empty string
  // unless `render_special`.
  std::string piece(Token token, bool render_special = false) const;
  bool ends_generation(Token token) const;

  // For the rooms that may include llama.h. Owned by the model.
  llama_model* raw() const { return model_; }
  const llama_vocab* vocabulary() const;

 private:
  Model() = default;
  llama_model* model_ = nullptr;
  std::string path_;
  std::vector<std::string> parts_;
  std::string architecture_;
  std::string chat_template_;
  Placement placement_ = Placement::kCpu;
  double load_ms_ = 0;
  std::uint64_t tile_bytes_ = 0;
  std::uint64_t cached_tile_bytes_ = 0;
  NpuPlacement npu_placement_;
};

}  // namespace kazeia
