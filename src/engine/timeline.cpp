#include "engine/timeline.h"

#include <algorithm>
#include <exception>
#include <new>
#include <vector>

#include <fmt/format.h>

#include "base/cpu_list.h"
#include "base/machine.h"
#include "base/units.h"
#include "engine/abandoned.h"
#include "engine/backend.h"
#include "engine/npu_phase.h"
#include "engine/snapshot.h"
#include "engine/state_size.h"
#include "engine/workers.h"
#include "llama-ext.h"
#include "llama.h"
#include "plan/memory.h"
#include "plan/threads.h"
#include "tiles/attention_operator.h"

namespace kazeia {
namespace {

// Positions are 32-bit signed in upstream, and it rounds a context up to 256 tokens.
constexpr std::uint32_t kMaxContext = (1u << 31) - 256;
constexpr std::uint32_t kMaxUbatch = 65536;
constexpr int kMaxThreads = 512;  // GGML_MAX_N_THREADS

template <typename Number>
Status check_range(const char* name, Number value, Number low, Number high) {
  if (value >= low && value <= high) return {};
  return Error(ErrorCode::kUsage, fmt::format("{} is {}, must be between {} and {}", name, value, low, high));
}

Status validate(const TimelineOptions& options) {
  KAZEIA_TRY(check_range<std::uint32_t>("context", options.context_tokens, 0, kMaxContext));
  KAZEIA_TRY(check_range("decode threads", options.decode_threads, 0, kMaxThreads));
  KAZEIA_TRY(check_range("prefill threads", options.prefill_threads, 0, kMaxThreads));
  KAZEIA_TRY(check_range<std::uint32_t>("ubatch", options.ubatch_tokens, 1, kMaxUbatch));
  KAZEIA_TRY(check_range("poll", options.poll.value_or(0), 0, 100));
  if (options.kv_type != KvType::kF16 && !options.flash_attention) {
    return Error(ErrorCode::kUsage,
                 fmt::format("a KV cache of {} needs flash attention", kv_type_name(options.kv_type)),
                 "Use f16, or leave flash attention on");
  }
  return {};
}

// Threads of a graph wait for each other by spinning: with fewer cores than threads that is a thousand times slower
// (docs/decisions/0003).
Status check_cores(const std::vector<int>& cores, int threads, const MachineFacts& machine) {
  if (cores.empty()) return {};
  std::vector<int> allowed;
  for (const CoreFacts& core : machine.cores) {
    if (core.allowed) allowed.push_back(core.id);
  }
  for (const int core : cores) {
    if (std::find(allowed.begin(), allowed.end(), core) == allowed.end()) {
      return Error(ErrorCode::kUsage, fmt::format("core {} is not one that this process may use", core),
                   fmt::format("Choose among {}", cpu_list_text(allowed)));
    }
  }
  if (threads <= static_cast<int>(cores.size())) return {};
  return Error(ErrorCode::kUsage, fmt::format("{} threads do not fit on the cores {}", threads, cpu_list_text(cores)),
               "Give as many cores as threads, or fewer threads");
}

ggml_type ggml_type_of(KvType type) {
  switch (type) {
    case KvType::kF16:
      return GGML_TYPE_F16;
    case KvType::kQ8_0:
      return GGML_TYPE_Q8_0;
    case KvType::kQ4_0:
      return GGML_TYPE_Q4_0;
  }
  return GGML_TYPE_F16;
}

Status check_memory(llama_model* model, const llama_context_params& params, std::uint64_t available_bytes) {
  if (available_bytes == 0 || generous_state_bytes(model, params) < available_bytes / 2) return {};
  KAZEIA_ASSIGN(const plan::StateShape shape, estimate_state(model, params));
  const std::uint64_t needed = shape.bytes(params.n_ctx);
  if (plan::fits(needed, available_bytes)) return {};
  const std::uint32_t largest = plan::largest_context(shape, available_bytes, params.n_ctx);
  return Error(ErrorCode::kTooLarge,
               fmt::format("a context of {} tokens needs {} of memory, {} are free", params.n_ctx, format_bytes(needed),
                           format_bytes(available_bytes)),
               largest > 0 ? fmt::format("Use a context of at most {} tokens", largest)
                           : std::string("Close other programs or choose a smaller model"));
}

}  // namespace

Result<std::unique_ptr<Timeline>> Timeline::create(std::shared_ptr<const Model> model, const TimelineOptions& options) {
  std::unique_ptr<Timeline> timeline(new Timeline(std::move(model)));
  KAZEIA_TRY(timeline->open(options));
  return timeline;
}

std::string_view kv_type_name(KvType type) {
  switch (type) {
    case KvType::kF16:
      return "f16";
    case KvType::kQ8_0:
      return "q8_0";
    case KvType::kQ4_0:
      return "q4_0";
  }
  return "unknown";
}

std::optional<KvType> kv_type_of_name(std::string_view name) {
  for (const KvType type : {KvType::kF16, KvType::kQ8_0, KvType::kQ4_0}) {
    if (kv_type_name(type) == name) return type;
  }
  return std::nullopt;
}

std::string_view attention_name(AttentionKernels kernels) {
  return kernels == AttentionKernels::kKazeia ? "kazeia" : "upstream";
}

std::optional<AttentionKernels> attention_of_name(std::string_view name) {
  for (const AttentionKernels kernels : {AttentionKernels::kUpstream, AttentionKernels::kKazeia}) {
    if (attention_name(kernels) == name) return kernels;
  }
  return std::nullopt;
}

Result<llama_context_params> context_parameters(const llama_model& model, Placement placement,
                                                const TimelineOptions& options) {
  KAZEIA_TRY(validate(options));
  const bool asks_machine = options.decode_threads == 0 || options.prefill_threads == 0 || !options.cores.empty();
  const MachineFacts machine = asks_machine ? read_machine() : MachineFacts();
  const int default_threads = asks_machine ? plan::default_threads(machine, options.cores) : 0;
  std::uint32_t context = options.context_tokens;
  if (context == 0) context = static_cast<std::uint32_t>(std::max(0, llama_model_n_ctx_train(&model)));
  if (context == 0 || context > kMaxContext) {
    return Error(ErrorCode::kUsage, "the model does not say for how many tokens it was trained", "Give a context size");
  }
  llama_context_params params = llama_context_default_params();
  params.n_ctx = context;
  params.n_batch = params.n_ubatch = std::min(options.ubatch_tokens, context);
  params.n_seq_max = 1;
  // Only the last token of a prompt is ever read; of an NPU's piece also the first, by its witness.
  params.n_outputs_max = placement == Placement::kNpu ? 2 : 1;
  params.n_threads = options.decode_threads != 0 ? options.decode_threads : default_threads;
  params.n_threads_batch = options.prefill_threads != 0 ? options.prefill_threads : params.n_threads;
  KAZEIA_TRY(check_cores(options.cores, std::max(params.n_threads, params.n_threads_batch), machine));
  params.type_k = params.type_v = ggml_type_of(options.kv_type);
  // Not AUTO: upstream then switches it off as soon as a part of the graph leaves the first device.
  params.flash_attn_type = options.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.no_perf = true;
  return params;
}

Status Timeline::open(const TimelineOptions& options) {
  options_ = options;
  return create_context();
}

Status Timeline::create_context() {
  KAZEIA_ASSIGN(llama_context_params params, context_parameters(*model_->raw(), model_->placement(), options_));
  capacity_ = params.n_ctx;
  ubatch_ = params.n_ubatch;
  decode_threads_ = params.n_threads;
  prefill_threads_ = params.n_threads_batch;

  if (options_.poll && workers_ == nullptr) {
    KAZEIA_ASSIGN(workers_, Workers::create(decode_threads_, prefill_threads_, *options_.poll, options_.cores));
  }
  const std::uint64_t available =
      options_.memory_budget_bytes != 0 ? options_.memory_budget_bytes : read_machine().available_memory_bytes;
  const PlanningForNpu planning(model_->placement());
  {
    const PrivateState in_our_memory(model_->placement());  // the estimate's throw-away states are not the device's
    KAZEIA_TRY(check_memory(model_->raw(), params, available));
  }

  params.abort_callback_data = this;
  params.abort_callback = [](void* self) {
    const CancelFlag* cancel = static_cast<const Timeline*>(self)->active_cancel_;
    return cancel != nullptr && cancel->requested();
  };
  const UpstreamErrors errors;
  std::string reason;
  const auto create = [&] {
    try {
      context_ = llama_init_from_model(model_->raw(), params);
      if (context_ == nullptr) reason = errors.reason();
    } catch (const std::exception& exception) {
      reason = exception.what();
    }
    if (context_ == nullptr || model_->placement() != Placement::kNpu || reserve_for_both()) return;
    reason = errors.reason("no memory for its graphs");
    llama_free(context_);
    context_ = nullptr;
  };
  create();
  if (context_ == nullptr && planning.fall_back_to_private_memory(reason)) create();
  if (context_ == nullptr) {
    return Error(is_about_memory(reason) ? ErrorCode::kTooLarge : ErrorCode::kEngine,
                 fmt::format("cannot create an inference state: {}", reason), "Use a smaller context");
  }
  if (llama_get_memory(context_) == nullptr) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("models of architecture '{}' keep no state between tokens", model_->architecture()),
                 "Choose a chat model");
  }
  planned_width_ = 0;
  if (workers_ != nullptr) workers_->attach(context_);
  return {};
}

Timeline::Timeline(std::shared_ptr<const Model> model) : model_(std::move(model)) {}

Timeline::~Timeline() {
  if (context_ != nullptr) llama_free(context_);
}

Status Timeline::check_room(std::span<const Token> tokens) const {
  if (poisoned_) {
    return Error(ErrorCode::kEngine, "an earlier step failed and left the conversation's state undefined",
                 "Reset the conversation");
  }
  for (const Token token : tokens) {
    if (token < 0 || token >= model_->vocabulary_size()) {
      return Error(ErrorCode::kUsage,
                   fmt::format("token {} is not in the vocabulary of {} tokens", token, model_->vocabulary_size()));
    }
  }
  if (tokens.size() > free_tokens()) {
    return Error(ErrorCode::kTooLarge,
                 fmt::format("{} more tokens do not fit: {} of the context's {} are in use", tokens.size(),
                             token_count(), capacity_),
                 "Shorten the text or use a larger context");
  }
  return {};
}

Error Timeline::poison(const std::string& reason) {
  poisoned_ = true;
  has_logits_ = false;
  return Error(ErrorCode::kEngine, fmt::format("the model could not be run: {}", reason), "Reset the conversation");
}

// Upstream's status: 0, or what kept it from computing, with the reason.
int Timeline::run(const Piece& piece, Processor processor, std::string& reason) {
  std::vector<llama_pos> positions(piece.tokens.size());
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<llama_pos>(tokens_.size() + i);
  std::vector<std::int8_t> outputs(piece.tokens.size(), 0);
  if (piece.first_logits) outputs.front() = 1;
  if (piece.last_logits) outputs.back() = 1;
  llama_batch batch{};
  batch.n_tokens = static_cast<std::int32_t>(piece.tokens.size());
  batch.token = const_cast<Token*>(piece.tokens.data());  // NOLINT: upstream reads only
  batch.pos = positions.data();
  batch.logits = outputs.data();

  const UpstreamErrors errors;
  const OnCpus on_cores(options_.cores);  // this thread computes too, and threads that upstream makes inherit it
  const tiles::AttentionChoice attention(options_.attention == AttentionKernels::kKazeia);
  int status = 0;
  try {
    const NpuGate gate(model_->placement(), processor == Processor::kNpu);
    // Upstream reuses the last graph for one of the same width, wherever it was planned to run.
    if (planned_for_ != processor && planned_width_ == piece.tokens.size()) llama_graph_reserve(context_, 1, 1, 1);
    planned_for_ = processor;
    planned_width_ = piece.tokens.size();
    status = llama_decode(context_, batch);
    if (status == 0) llama_synchronize(context_);
  } catch (const std::bad_alloc&) {
    abandon(context_);  // reset() makes another one
    reason = "out of memory";
    return -1;
  } catch (const std::exception& exception) {
    reason = exception.what();
    return -1;
  }
  if (status != 0) reason = errors.reason(fmt::format("status {}", status));
  return status;
}

// On success or kCancelled the invariant holds; any other error has poisoned.
Status Timeline::decode_batch(std::span<const Token> piece, bool want_logits, const CancelFlag* cancel) {
  has_logits_ = false;
  if (npu_takes(piece.size())) return decode_on_npu(piece, want_logits, cancel);
  return decode_on_cpu(piece, want_logits, cancel);
}

Status Timeline::decode_on_cpu(std::span<const Token> piece, bool want_logits, const CancelFlag* cancel) {
  const bool undo_recurrent = cancel != nullptr && model_->has_recurrent_state();
  RecurrentSnapshot snapshot;
  // Without a snapshot a cancel waits for the end of the piece.
  active_cancel_ = undo_recurrent && !snapshot.take(context_, tokens_.size()) ? nullptr : cancel;
  const bool could_cancel = active_cancel_ != nullptr;
  std::string reason;
  const int status = run({piece, false, want_logits}, Processor::kCpu, reason);
  active_cancel_ = nullptr;
  if (status == 0) {
    tokens_.insert(tokens_.end(), piece.begin(), piece.end());
    has_logits_ = want_logits;
    return {};
  }
  constexpr int kAborted = 2;
  if (status == kAborted && could_cancel) {
    const bool undone = undo_recurrent ? snapshot.restore(context_) : state_ends_at(context_, tokens_.size());
    if (undone) return Error(ErrorCode::kCancelled, "reading the prompt was cancelled");
  }
  return poison(reason);
}

Status Timeline::prefill(std::span<const Token> prompt, const Progress& progress, const CancelFlag* cancel,
                         bool want_logits) {
  if (prompt.empty()) return Error(ErrorCode::kUsage, "the prompt is empty", "Give at least one word");
  KAZEIA_TRY(check_room(prompt));
  for (std::size_t done = 0; done < prompt.size();) {
    if (cancel != nullptr && cancel->requested()) {
      has_logits_ = false;
      return Error(ErrorCode::kCancelled, "reading the prompt was cancelled");
    }
    const std::size_t width = std::min(ubatch_, prompt.size() - done);
    KAZEIA_TRY(decode_batch(prompt.subspan(done, width), want_logits && done + width == prompt.size(), cancel));
    (planned_for_ == Processor::kNpu ? npu_.prefill_tokens : npu_.cpu_prefill_tokens) += width;
    done += width;
    if (progress) progress(done, prompt.size());
  }
  return {};
}

Status Timeline::decode(Token token) {
  const std::span<const Token> piece(&token, 1);
  KAZEIA_TRY(check_room(piece));
  return decode_batch(piece, true, nullptr);
}

Status Timeline::truncate(std::size_t token_count) {
  KAZEIA_TRY(check_room({}));
  if (token_count == 0) {
    reset();
    return {};
  }
  if (token_count > tokens_.size()) {
    return Error(ErrorCode::kUsage, fmt::format("cannot keep {} tokens of {}", token_count, tokens_.size()));
  }
  if (token_count < tokens_.size()) {
    if (model_->has_recurrent_state()) {
      return Error(ErrorCode::kUnsupported,
                   fmt::format("the recurrent state of a '{}' model cannot be cut back from {} to {} tokens",
                               model_->architecture(), tokens_.size(), token_count),
                   "Reset and read the text again");
    }
    llama_memory_t memory = llama_get_memory(context_);
    const auto window = static_cast<std::size_t>(std::max(0, llama_model_n_swa(model_->raw())));
    const auto first = static_cast<std::size_t>(std::max(0, llama_memory_seq_pos_min(memory, 0)));
    const bool covered = window == 0 || first == 0 || token_count > first + window;
    if (!covered || !llama_memory_seq_rm(memory, 0, static_cast<llama_pos>(token_count), -1)) {
      return Error(ErrorCode::kUnsupported,
                   fmt::format("the cache no longer covers the text before token {}", token_count),
                   "Reset and read the text again");
    }
    tokens_.resize(token_count);
  }
  has_logits_ = false;
  return {};
}

void Timeline::reset() {
  // A context that was given up, with a silent device or without memory.
  if (context_ == nullptr && !create_context().ok()) return;
  // The contents are wiped only when they may be damaged; otherwise forgetting the positions is enough.
  llama_memory_clear(llama_get_memory(context_), poisoned_);
  tokens_.clear();
  poisoned_ = false;
  has_logits_ = false;
}

void Timeline::rest() const {
  if (workers_ != nullptr) workers_->rest();
}

std::span<const float> Timeline::logits() const {
  if (!has_logits_) return {};
  const float* row = llama_get_logits_ith(context_, -1);
  if (row == nullptr) return {};
  return {row, static_cast<std::size_t>(model_->vocabulary_size())};
}

std::uint64_t Timeline::state_bytes() const {
  if (context_ == nullptr) return 0;
  const plan::StateSample sample = measure_state(context_);
  return sample.cache_bytes + sample.compute_bytes;
}

}  // namespace kazeia
