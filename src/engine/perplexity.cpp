#include "engine/perplexity.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <memory>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/files.h"
#include "base/machine.h"
#include "engine/backend.h"
#include "engine/model.h"
#include "engine/placement.h"
#include "gguf/value.h"
#include "llama.h"
#include "plan/memory.h"
#include "plan/threads.h"
#include "tiles/buffer_type.h"

namespace kazeia {
namespace {

// Short enough for the mini models and for a quick check; the windows are read independently of each other.
constexpr std::size_t kWindowTokens = 256;
// Positions with less text before them say more about the window's cut than about the model.
constexpr std::size_t kWarmUpTokens = 32;
constexpr std::size_t kShortestWindow = 2 * kWarmUpTokens;
// Rows of logits held at once (upstream aborts beyond its announced number): 64 x 248,000 floats are 64 MB.
constexpr std::size_t kBatchTokens = 64;
constexpr std::size_t kLikeliest = 64;

using ModelHandle = std::unique_ptr<llama_model, decltype(&llama_model_free)>;
using ContextHandle = std::unique_ptr<llama_context, decltype(&llama_free)>;

bool requested(const CancelFlag* cancel) {
  return cancel != nullptr && cancel->requested();
}

Error cancelled() {
  return Error(ErrorCode::kCancelled, "stopped while measuring perplexity");
}

Error upstream_error(const std::string& path, std::string_view what, std::string_view reason) {
  return Error(ErrorCode::kEngine, fmt::format("cannot {} '{}': {}", what, path, gguf::printable(reason, 300)));
}

// Upstream's faster layouts are a second copy in memory that cannot be taken back; file pages can.
bool has_room_for_a_copy(const std::vector<std::string>& parts) {
  std::uint64_t bytes = 0;
  for (const std::string& part : parts) bytes += regular_file_size(part).ok() ? *regular_file_size(part) : 0;
  return plan::fits(2 * bytes, read_machine().available_memory_bytes);
}

Result<ModelHandle> load(const std::vector<std::string>& parts, const PerplexityOptions& options) {
  llama_model_params params = load_parameters(Placement::kUpstream);
  // A 16-bit source may be larger than the memory: mapped, it is read all the same.
  params.load_mode = LLAMA_LOAD_MODE_MMAP;
  params.use_extra_bufts = has_room_for_a_copy(parts);
  params.progress_callback = [](float, void* cancel) { return !requested(static_cast<const CancelFlag*>(cancel)); };
  params.progress_callback_user_data = const_cast<CancelFlag*>(options.cancel);
  std::vector<const char*> names;
  names.reserve(parts.size());
  for (const std::string& part : parts) names.push_back(part.c_str());

  const UpstreamErrors errors;
  const tiles::WithoutTiles without_tiles;
  ModelHandle model(llama_model_load_from_splits(names.data(), names.size(), params), &llama_model_free);
  if (requested(options.cancel)) return cancelled();
  if (model == nullptr) return upstream_error(parts.front(), "load", errors.reason());
  const llama_vocab* vocabulary = llama_model_get_vocab(model.get());
  if (llama_model_has_encoder(model.get()) || !llama_model_has_decoder(model.get()) ||
      llama_model_is_diffusion(model.get()) || llama_vocab_type(vocabulary) == LLAMA_VOCAB_TYPE_NONE) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("'{}' does not write text token by token, so it has no perplexity", parts.front()),
                 "Leave the check out with --no-check");
  }
  return model;
}

Result<ContextHandle> create_context(llama_model* model, const std::string& path, const PerplexityOptions& options) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = kWindowTokens;
  params.n_batch = params.n_ubatch = params.n_outputs_max = kBatchTokens;
  params.n_outputs_max_per_seq = kBatchTokens;
  params.n_threads = params.n_threads_batch =
      options.threads > 0 ? options.threads : plan::default_threads(read_machine());
  params.no_perf = true;
  params.abort_callback = [](void* cancel) { return requested(static_cast<const CancelFlag*>(cancel)); };
  params.abort_callback_data = const_cast<CancelFlag*>(options.cancel);
  const UpstreamErrors errors;
  ContextHandle context(llama_init_from_model(model, params), &llama_free);
  if (context == nullptr) return upstream_error(path, "compute with", errors.reason());
  return context;
}

Result<Tokens> tokens_of(const llama_vocab* vocabulary, std::string_view text) {
  KAZEIA_ASSIGN(Tokens tokens, tokenize(vocabulary, text, /*add_special=*/false, /*parse_special=*/false));
  if (tokens.size() < kShortestWindow) {
    return Error(ErrorCode::kFile, fmt::format("the text has {} tokens, too few to measure perplexity", tokens.size()),
                 fmt::format("Give one of at least {}", kShortestWindow));
  }
  return tokens;
}

// What the text is cut into. Each window starts as a text does, with the token that begins a sequence if the model
// wants one.
std::vector<Tokens> windows_of(const llama_vocab* vocabulary, std::span<const Token> text) {
  std::vector<Tokens> windows;
  while (text.size() >= kShortestWindow || (windows.empty() && !text.empty())) {
    Tokens window;
    if (llama_vocab_get_add_bos(vocabulary)) window.push_back(llama_vocab_bos(vocabulary));
    const auto piece = text.first(std::min(text.size(), kWindowTokens - window.size()));
    window.insert(window.end(), piece.begin(), piece.end());
    windows.push_back(std::move(window));
    text = text.subspan(piece.size());
  }
  return windows;
}

// `most` of them, evenly spread; 0: all.
std::vector<Tokens> thinned(std::vector<Tokens> windows, std::size_t most) {
  if (most == 0 || windows.size() <= most) return windows;
  std::vector<Tokens> chosen;
  chosen.reserve(most);
  for (std::size_t i = 0; i < most; ++i) chosen.push_back(std::move(windows[i * windows.size() / most]));
  return chosen;
}

std::vector<Token> likeliest_of(std::span<const float> logits) {
  const std::size_t count = std::min(kLikeliest, logits.size());
  std::vector<std::pair<float, Token>> heap;  // the smallest of the best in front
  heap.reserve(count);
  const auto order = std::greater<>();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (heap.size() == count && !(logits[i] > heap.front().first)) continue;
    if (heap.size() == count) {
      std::pop_heap(heap.begin(), heap.end(), order);
      heap.pop_back();
    }
    heap.emplace_back(logits[i], static_cast<Token>(i));
    std::push_heap(heap.begin(), heap.end(), order);
  }
  std::sort(heap.begin(), heap.end(), order);
  std::vector<Token> tokens;
  tokens.reserve(count);
  for (const auto& [logit, token] : heap) tokens.push_back(token);
  return tokens;
}

Prediction predict(std::span<const float> logits, Token next, const Prediction* reference) {
  Prediction prediction;
  const auto best = std::max_element(logits.begin(), logits.end());
  const float largest = *best;
  double sum = 0;
  for (const float logit : logits) sum += static_cast<double>(std::exp(logit - largest));
  const float normaliser = largest + static_cast<float>(std::log(sum));
  prediction.token = next;
  prediction.log_probability = logits[static_cast<std::size_t>(next)] - normaliser;
  prediction.first_choice = static_cast<Token>(best - logits.begin());
  prediction.tokens = reference != nullptr ? reference->tokens : likeliest_of(logits);
  prediction.log_probabilities.reserve(prediction.tokens.size());
  for (const Token token : prediction.tokens) {
    prediction.log_probabilities.push_back(logits[static_cast<std::size_t>(token)] - normaliser);
  }
  return prediction;
}

// Reads windows with one context.
class Reader {
 public:
  Reader(llama_context* context, std::size_t vocabulary_size, const Reading* reference)
      : context_(context),
        vocabulary_size_(vocabulary_size),
        reference_(reference),
        batch_(llama_batch_init(kBatchTokens, 0, 1)) {}
  ~Reader() { llama_batch_free(batch_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Upstream's status, 0 if all is well.
  int read(std::span<const Token> window, Reading& reading) {
    llama_memory_clear(llama_get_memory(context_), true);
    for (std::size_t first = 0; first < window.size(); first += kBatchTokens) {
      const std::size_t count = std::min(kBatchTokens, window.size() - first);
      fill(window, first, count);
      const int status = llama_decode(context_, batch_);
      if (status != 0) return status;
      for (std::size_t i = 0; i < count; ++i) {
        if (batch_.logits[i] == 0) continue;
        const float* row = llama_get_logits_ith(context_, static_cast<std::int32_t>(i));
        if (row == nullptr) return -1;
        const std::size_t at = reading.predictions.size();
        const bool known = reference_ != nullptr && at < reference_->predictions.size();
        reading.predictions.push_back(
            predict({row, vocabulary_size_}, window[first + i + 1], known ? &reference_->predictions[at] : nullptr));
      }
    }
    return 0;
  }

 private:
  void fill(std::span<const Token> window, std::size_t first, std::size_t count) {
    batch_.n_tokens = static_cast<std::int32_t>(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t position = first + i;
      batch_.token[i] = window[position];
      batch_.pos[i] = static_cast<llama_pos>(position);
      batch_.n_seq_id[i] = 1;
      batch_.seq_id[i][0] = 0;
      batch_.logits[i] = position >= kWarmUpTokens && position + 1 < window.size() ? 1 : 0;
    }
  }

  llama_context* context_;
  std::size_t vocabulary_size_;
  const Reading* reference_;
  llama_batch batch_;
};

double divergence_at(const Prediction& source, const Prediction& prepared) {
  double divergence = 0;
  double rest_source = 1;
  double rest_prepared = 1;
  for (std::size_t i = 0; i < source.tokens.size(); ++i) {
    const double p = std::exp(static_cast<double>(source.log_probabilities[i]));
    const double q = std::exp(static_cast<double>(prepared.log_probabilities[i]));
    divergence += p * static_cast<double>(source.log_probabilities[i] - prepared.log_probabilities[i]);
    rest_source -= p;
    rest_prepared -= q;
  }
  // Differences of sums of rounded numbers: below this they are rounding alone.
  constexpr double kRounding = 1e-6;
  if (rest_source > kRounding) divergence += rest_source * std::log(rest_source / std::max(rest_prepared, kRounding));
  return divergence;
}

}  // namespace

double Reading::perplexity() const {
  double sum = 0;
  for (const Prediction& prediction : predictions) sum -= static_cast<double>(prediction.log_probability);
  return std::exp(sum / static_cast<double>(predictions.size()));
}

Result<Reading> read_text(const std::vector<std::string>& parts, std::string_view text, const Reading* reference,
                          const PerplexityOptions& options) {
  initialise_backend();
  try {
    KAZEIA_ASSIGN(const ModelHandle model, load(parts, options));
    KAZEIA_ASSIGN(const ContextHandle context, create_context(model.get(), parts.front(), options));
    const llama_vocab* vocabulary = llama_model_get_vocab(model.get());
    KAZEIA_ASSIGN(const Tokens tokens, tokens_of(vocabulary, text));
    const std::vector<Tokens> windows = thinned(windows_of(vocabulary, tokens), options.most_windows);

    Reader reader(context.get(), static_cast<std::size_t>(llama_vocab_n_tokens(vocabulary)), reference);
    Reading reading;
    const UpstreamErrors errors;
    for (std::size_t i = 0; i < windows.size(); ++i) {
      const int status = reader.read(windows[i], reading);
      if (requested(options.cancel)) return cancelled();
      if (status != 0) {
        return upstream_error(parts.front(), "compute with", errors.reason(fmt::format("status {}", status)));
      }
      if (options.on_progress) options.on_progress(static_cast<float>(i + 1) / static_cast<float>(windows.size()));
    }
    return reading;
  } catch (const std::exception& exception) {
    return upstream_error(parts.front(), "compute with", exception.what());
  }
}

Result<Comparison> compare(const Reading& source, const Reading& prepared) {
  const std::size_t positions = source.predictions.size();
  Comparison comparison;
  comparison.positions = positions;
  if (positions == 0 || prepared.predictions.size() != positions) {
    return Error(ErrorCode::kEngine, fmt::format("the source predicted {} tokens of the text and the prepared file {}",
                                                 positions, prepared.predictions.size()));
  }
  std::size_t same = 0;
  for (std::size_t i = 0; i < positions; ++i) {
    const Prediction& ours = source.predictions[i];
    const Prediction& theirs = prepared.predictions[i];
    if (ours.token != theirs.token || ours.tokens != theirs.tokens) {
      return Error(ErrorCode::kEngine, "the source and the prepared file cut the text into different tokens");
    }
    comparison.divergence += divergence_at(ours, theirs);
    same += ours.first_choice == theirs.first_choice ? 1 : 0;
  }
  comparison.divergence /= static_cast<double>(positions);
  comparison.same_choice = static_cast<double>(same) / static_cast<double>(positions);
  comparison.source_perplexity = source.perplexity();
  comparison.prepared_perplexity = prepared.perplexity();
  comparison.ratio = comparison.prepared_perplexity / comparison.source_perplexity;
  if (!std::isfinite(comparison.ratio)) {
    return Error(ErrorCode::kEngine, fmt::format("perplexity is not a number (source {}, prepared {})",
                                                 comparison.source_perplexity, comparison.prepared_perplexity));
  }
  return comparison;
}

}  // namespace kazeia
