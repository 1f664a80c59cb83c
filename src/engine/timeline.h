// One inference state (KV cache and recurrent state) that grows token by token.
//
// Invariant: tokens() are exactly the tokens whose effect is in the state, in order. A decode that fails
// breaks it, because upstream cannot roll back a partly applied hybrid batch: the timeline is then poisoned
// and refuses everything but reset().
//
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "engine/model.h"
#include "engine/npu_use.h"
#include "engine/state_parts.h"
#include "engine/token.h"

struct llama_context;
struct llama_context_params;
struct llama_model;

namespace kazeia {

class RecurrentSnapshot;
class Workers;

// Of the KV cache. The coarser ones need flash attention.
enum class KvType { kF16, kQ8_0, kQ4_0 };
std::string_view kv_type_name(KvType type);  // "f16", "q8_0", "q4_0"
std::optional<KvType> kv_type_of_name(std::string_view name);

// Who computes the attention over an f16 cache; over other caches upstream does.
enum class AttentionKernels { kUpstream, kKazeia };
std::string_view attention_name(AttentionKernels kernels);  // "upstream", "kazeia"
std::optional<AttentionKernels> attention_of_name(std::string_view name);

struct TimelineOptions {
  // --- affects behaviour ---
  std::uint32_t context_tokens = 4096;  // capacity; 0 = what the model was trained with
  KvType kv_type = KvType::kF16;        // a coarser one halves or quarters the KV cache, and answers change a little
  // --- affects performance ---
  int decode_threads = 0;             // 0 = plan::default_threads() of `cores`
  int prefill_threads = 0;            // 0 = the same
  std::uint32_t ubatch_tokens = 512;  // widest prefill graph; larger costs compute-buffer memory
  bool flash_attention = true;
  AttentionKernels attention = AttentionKernels::kKazeia;  // without effect if flash_attention is off
  // CPUs that the threads of a graph may use; empty = all. As many as threads, at least: they wait for each other.
  std::vector<int> cores;
  // How long threads look out for the next graph before they sleep, 0 to 100 (engine/workers.h); none = upstream makes
  // and joins its threads for every graph.
  std::optional<int> poll;
  NpuOptions npu;  // for a model placed on the NPU; otherwise without effect
  // --- limits ---
  // A state above it is refused; 0 = the memory that the machine has free.
  std::uint64_t memory_budget_bytes = 0;
};

// How upstream makes a context for such a timeline; without callbacks. kUsage for values out of range. For forecasts.
Result<llama_context_params> context_parameters(const llama_model& model, Placement placement,
                                                const TimelineOptions& options);

class Timeline {
 public:
  // kUsage for values out of range, kTooLarge if the state does not fit the free memory, kEngine (also if the system
  // does not give the threads that `poll` asks for).
  static Result<std::unique_ptr<Timeline>> create(std::shared_ptr<const Model> model, const TimelineOptions& options);
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Reports tokens done so far of the call, after each ubatch.
  using Progress = std::function<void(std::size_t done, std::size_t total)>;

  // Appends a prompt in pieces of at most ubatch_tokens; logits() are then those after its last token.
  // kTooLarge if it does not fit, kUsage if it is empty or contains an id outside the vocabulary (nothing changed);
  // kEngine poisons. kCancelled acts within a piece: the piece is undone, tokens() and the state end at the last
  // whole piece and are valid, logits() are gone. For that a copy of the recurrent state (if the model has one) is
  // held during a call with `cancel`. Progress is called on this thread and must not throw.
  // Without `want_logits` there are none afterwards, which saves reading the output matrix: more of the text follows.
  Status prefill(std::span<const Token> prompt, const Progress& progress = {}, const CancelFlag* cancel = nullptr,
                 bool want_logits = true);
  // Appends one token; cannot be cancelled. Errors as prefill().
  Status decode(Token token);

  // Keeps the first `token_count` tokens; more than there are is kUsage. A recurrent state cannot be cut back: for
  // such models anything but 0 and the current count is kUnsupported and changes nothing, and so is a cut that a
  // sliding-window cache no longer covers. logits() are gone afterwards.
  Status truncate(std::size_t token_count);
  // Back to zero tokens; also the only way out of poisoned().
  void reset();
  // Says that nothing is computed for a while: threads that look out for it (TimelineOptions::poll) sleep until the
  // next graph. Changes nothing else.
  void rest() const;

  // --- Its state, in parts (engine/state_parts.h). Errors: kUsage for ranges, kUnsupported if the cache is of a kind
  // --- that cannot be taken apart, what the sink returned.
  // What the parts consist of; at least one token must be there.
  Result<StateLayout> state_layout() const;
  // The attention rows of tokens [from, to), as AttentionRows has them.
  Status copy_attention(std::size_t from, std::size_t to, const ByteSink& sink) const;
  // The recurrent state after the last token; nothing for a model without one.
  Status copy_recurrent(const ByteSink& sink) const;
  // Makes the state that of `tokens`: the first `kept` of them are here and stay, `rows` (ascending, may overlap) cover
  // the others, `recurrent` is the state after the last one. logits() are gone. The bytes are trusted: a wrong row is a
  // wrong answer. kTooLarge, kUsage: nothing changed; kEngine (upstream refuses): the timeline is reset.
  Status restore(std::span<const Token> tokens, std::size_t kept, std::span<const AttentionRows> rows,
                 std::span<const std::byte> recurrent, const StateLayout& layout);
  // For measuring at a depth: appends `more` without reading them. Their attention rows are copies of the last ones and
  // the recurrent state stays, so what follows takes its time and means nothing. At least one token must be there.
  // logits() are gone. Errors as restore(); kUnsupported and kTooLarge: nothing changed.
  Status append_unread(std::span<const Token> more);

  std::size_t token_count() const { return tokens_.size(); }
  const Tokens& tokens() const { return tokens_; }
  std::size_t capacity_tokens() const { return capacity_; }
  std::size_t free_tokens() const { return capacity_ - tokens_.size(); }
  bool poisoned() const { return poisoned_; }
  // [vocabulary_size] after the last token, or empty if nothing was decoded since the last truncate/reset.
  // Valid until the next call that changes the timeline.
  std::span<const float> logits() const;

  const Model& model() const { return *model_; }
  int decode_threads() const { return decode_threads_; }
  int prefill_threads() const { return prefill_threads_; }
  // Bytes of KV cache, recurrent state and compute buffers.
  std::uint64_t state_bytes() const;

  // What the NPU did for this timeline; all zero without one.
  NpuUse npu_use() const;

  // For the rooms that may include llama.h. Owned by the timeline.
  llama_context* raw() const { return context_; }

 private:
  // One graph: tokens to append, and after which of them logits are wanted.
  struct Piece {
    std::span<const Token> tokens;
    bool first_logits = false;
    bool last_logits = false;
  };
  enum class Processor { kCpu, kNpu };

  explicit Timeline(std::shared_ptr<const Model> model);
  Status open(const TimelineOptions& options);
  Status create_context();
  Status check_room(std::span<const Token> tokens) const;
  Status decode_batch(std::span<const Token> piece, bool want_logits, const CancelFlag* cancel);
  Status decode_on_cpu(std::span<const Token> piece, bool want_logits, const CancelFlag* cancel);
  int run(const Piece& piece, Processor processor, std::string& reason);
  Error poison(const std::string& reason);

  // timeline_npu.cpp
  bool npu_takes(std::size_t width) const;
  Status decode_on_npu(std::span<const Token> piece, bool want_logits, const CancelFlag* cancel);
  Result<std::vector<float>> witness(Token token, const RecurrentSnapshot& before);
  bool undo(const RecurrentSnapshot& before, bool wipe);
  Status move_to_private_memory(bool device_may_still_write);
  Status give_up_npu(const RecurrentSnapshot& before, const std::string& reason, bool no_memory);
  bool reserve_for_both();

  std::shared_ptr<const Model> model_;
  TimelineOptions options_;
  std::unique_ptr<Workers> workers_;  // outlive the context; null without `poll`
  llama_context* context_ = nullptr;
  Tokens tokens_;
  std::size_t capacity_ = 0;
  std::size_t ubatch_ = 0;
  const CancelFlag* active_cancel_ = nullptr;  // read by upstream's abort callback during a decode
  int decode_threads_ = 0;
  int prefill_threads_ = 0;
  bool poisoned_ = false;
  bool has_logits_ = false;
  NpuUse npu_;
  // Of the graph that upstream keeps for reuse.
  std::size_t planned_width_ = 0;
  Processor planned_for_ = Processor::kCpu;
};

}  // namespace kazeia
