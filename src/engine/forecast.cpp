#include "engine/forecast.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/machine.h"
#include "base/units.h"
#include "engine/backend.h"
#include "engine/npu_phase.h"
#include "ggml-backend.h"
#include "gguf/inspection.h"
#include "gguf/loadable.h"
#include "gguf/reader.h"
#include "llama-ext.h"
#include "llama.h"
#include "npu/device.h"
#include "npu/shared_memory.h"
#include "plan/threads.h"

namespace kazeia {
namespace {

// Code and data of the program and of the C++ library as far as a run touches them, thread stacks, the graph's and the
// tokeniser's working memory. Measured as what is left of the peak of `kazeia run` on the mini models when all other
// parts are taken away (docs/decisions/0019).
constexpr std::uint64_t kProgramBytes = 17 * kMiB;
// Pieces of the file that are mapped while they are packed: one per thread.
constexpr std::uint64_t kLoadWindowBytesPerThread = 4 * kMiB;

}  // namespace

struct Forecaster::State {
  Placement placement = Placement::kCpu;
  llama_model* model = nullptr;
  std::uint64_t vocabulary_bytes = 0;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (model != nullptr) llama_model_free(model);
  }
};

Forecaster::Forecaster(std::unique_ptr<State> state) : state_(std::move(state)) {}
Forecaster::~Forecaster() = default;

Result<std::unique_ptr<Forecaster>> Forecaster::open(const std::string& path, Placement placement) {
  std::vector<std::string> parts;
  {
    KAZEIA_ASSIGN(const gguf::ModelFile file, gguf::open_gguf(path));
    const Status loadable = gguf::check_loadable(file.parts());
    if (!loadable.ok()) return loadable.error().within(path);
    parts = file.paths();
  }
  initialise_backend();
  if (placement == Placement::kNpu) {
    const Result<npu::Device*> device = npu::Device::open();
    if (!device.ok()) return device.error();
  }
  auto state = std::make_unique<State>();
  state->placement = placement;
  llama_model_params params = load_parameters(placement);
  params.no_alloc = true;
  params.load_mode = LLAMA_LOAD_MODE_NONE;  // nothing is read: a mapping would be for nothing
  std::vector<const char*> names;
  for (const std::string& part : parts) names.push_back(part.c_str());
  const std::uint64_t before = read_process_memory().rss_bytes;
  const UpstreamErrors errors;
  try {
    state->model = llama_model_load_from_splits(names.data(), names.size(), params);
  } catch (const std::exception& exception) {
    return Error(ErrorCode::kEngine, fmt::format("'{}' cannot be planned: {}", path, exception.what()));
  }
  if (state->model == nullptr) {
    return Error(ErrorCode::kEngine, fmt::format("'{}' cannot be planned: {}", path, errors.reason()));
  }
  const std::uint64_t after = read_process_memory().rss_bytes;
  state->vocabulary_bytes = after > before ? after - before : 0;
  return std::unique_ptr<Forecaster>(new Forecaster(std::move(state)));
}

std::uint32_t Forecaster::trained_context_tokens() const {
  return static_cast<std::uint32_t>(std::max(0, llama_model_n_ctx_train(state_->model)));
}

namespace {

struct Breakdown {
  std::uint64_t weights = 0;
  std::uint64_t cache = 0;
  std::uint64_t compute = 0;
};

Result<Breakdown> simulate(llama_model* model, const llama_context_params& params) {
  const UpstreamErrors errors;
  try {
    const std::unique_ptr<llama_context, decltype(&llama_free)> context(llama_init_from_model(model, params),
                                                                        &llama_free);
    if (context == nullptr) {
      return Error(ErrorCode::kEngine, fmt::format("such a timeline cannot be planned: {}", errors.reason()));
    }
    Breakdown sum;
    for (const auto& [type, bytes] : llama_get_memory_breakdown(context.get())) {
      sum.weights += bytes.model;
      sum.cache += bytes.context;
      sum.compute += bytes.compute;
    }
    return sum;
  } catch (const std::exception& exception) {
    return Error(ErrorCode::kEngine, fmt::format("such a timeline cannot be planned: {}", exception.what()));
  }
}

// Sizes as straight lines over the context: upstream keeps a record per token even of a context that it only simulates,
// so that large ones are not simulated but continued.
struct Line {
  Breakdown low, high;
  std::uint64_t low_tokens = 0, high_tokens = 0;

  Breakdown at(std::uint64_t tokens) const {
    const auto value = [&](std::uint64_t a, std::uint64_t b) {
      const double slope =
          (static_cast<double>(b) - static_cast<double>(a)) / static_cast<double>(high_tokens - low_tokens);
      const double there =
          static_cast<double>(b) + slope * (static_cast<double>(tokens) - static_cast<double>(high_tokens));
      return static_cast<std::uint64_t>(std::clamp(std::round(there), 0.0, 1e18));
    };
    if (tokens == high_tokens) return high;
    return {high.weights, value(low.cache, high.cache), value(low.compute, high.compute)};
  }
};

Result<Line> line_through(llama_model* model, llama_context_params params) {
  constexpr std::uint32_t kMostSimulated = 32768;
  constexpr std::uint32_t kUnit = 256;
  Line line;
  line.high_tokens = params.n_ctx = std::min(params.n_ctx, kMostSimulated);
  KAZEIA_ASSIGN(line.high, simulate(model, params));
  // A ubatch is never wider than its context, and has to be the same for both.
  line.low_tokens = params.n_ctx = std::max(params.n_ctx / 2 / kUnit * kUnit, params.n_ubatch);
  if (line.low_tokens >= line.high_tokens) line.low_tokens = params.n_ctx = 2 * params.n_ctx;
  KAZEIA_ASSIGN(line.low, simulate(model, params));
  return line;
}

}  // namespace

Result<plan::MemoryPlan> Forecaster::forecast(const ForecastRequest& request) const {
  KAZEIA_ASSIGN(const llama_context_params params,
                context_parameters(*state_->model, request.placement, request.timeline));
  const PlanningForNpu planning(state_->placement);
  KAZEIA_ASSIGN(const Line line, line_through(state_->model, params));
  const Breakdown whole = line.at(params.n_ctx);
  const bool has_recurrent = llama_model_is_hybrid(state_->model) || llama_model_is_recurrent(state_->model);
  // The recurrent state is what does not grow with the context.
  const std::uint64_t recurrent = has_recurrent ? line.at(0).cache : 0;
  const int threads = plan::default_threads(read_machine());
  const std::uint64_t vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(state_->model));

  plan::MemoryPlan plan;
  const auto add = [&plan](const char* name, const char* meaning, std::uint64_t bytes, bool evictable = false) {
    if (bytes > 0) plan.parts.push_back({name, meaning, bytes, evictable});
  };
  add("weights", "weights, in tiles where they have that layout", whole.weights, request.tile_cache);
  add("kv_cache", "keys and values of the attention layers, for the whole context", whole.cache - recurrent);
  add("recurrent_state", "of the recurrent layers", recurrent);
  add("recurrent_copy", "so that an interrupted prefill can be undone", recurrent);
  add("compute", "intermediate results of the widest graph", whole.compute);
  add("logits", "of the last token, and the sampler's candidates", vocabulary * (sizeof(float) + 12));
  add("vocabulary", "vocabulary and metadata", state_->vocabulary_bytes);
  add("checkpoints", "states that may be wanted again, at most", request.checkpoint_bytes);
  add("rounding", "huge pages, and what is allocated beside the buffers: 1 % of weights and state",
      (whole.weights + whole.cache + whole.compute) / 100);
  add("load_window", "of the file, while it is packed",
      kLoadWindowBytesPerThread * static_cast<std::uint64_t>(threads));
  add("program", "the program itself", kProgramBytes);
  return plan;
}

plan::PlanSettings settings_of(const ForecastRequest& request) {
  return {.context_tokens = request.timeline.context_tokens,
          .kv_type = std::string(kv_type_name(request.timeline.kv_type)),
          .ubatch_tokens = request.timeline.ubatch_tokens,
          .checkpoint_bytes = request.checkpoint_bytes};
}

ForecastRequest with_settings(ForecastRequest request, const plan::PlanSettings& settings) {
  request.timeline.context_tokens = settings.context_tokens;
  request.timeline.kv_type = kv_type_of_name(settings.kv_type).value_or(KvType::kF16);
  request.timeline.ubatch_tokens = settings.ubatch_tokens;
  request.checkpoint_bytes = settings.checkpoint_bytes;
  return request;
}

namespace {

// More than it can take: every layer attends, tiles are padded, compute buffers as large as for the widest graph.
Result<std::uint64_t> generous_bytes(const std::string& path, const ForecastRequest& request) {
  KAZEIA_ASSIGN(const gguf::ModelFile file, gguf::open_gguf(path));
  const gguf::Inspection model = gguf::inspect(file.parts());
  const std::uint64_t heads =
      model.kv_heads.empty() ? 64 : *std::max_element(model.kv_heads.begin(), model.kv_heads.end());
  const std::uint64_t head = model.key_length.value_or(256) + model.value_length.value_or(256);
  constexpr std::uint64_t kBytesPerValue = 2;
  const auto context = static_cast<double>(request.timeline.context_tokens);
  const double cache = static_cast<double>(model.layers.size() * heads * head * kBytesPerValue) * context;
  const double compute = static_cast<double>(request.timeline.ubatch_tokens) * (context * 4 + 2e6);
  const double weights = static_cast<double>(file.tensor_bytes()) * 1.1;
  constexpr double kRest = 400e6;
  return static_cast<std::uint64_t>(std::min(1e18, weights + cache + compute + kRest)) + request.checkpoint_bytes;
}

}  // namespace

Status check_forecast(const std::string& path, const ForecastRequest& request, std::uint64_t budget_bytes) {
  if (budget_bytes == 0) return {};
  KAZEIA_ASSIGN(const std::uint64_t generous, generous_bytes(path, request));
  if (generous <= budget_bytes) return {};
  KAZEIA_ASSIGN(const std::unique_ptr<Forecaster> forecaster, Forecaster::open(path, request.placement));
  ForecastRequest cut = request;
  const std::uint32_t trained = forecaster->trained_context_tokens();
  if (trained != 0 && request.cut_to_trained)
    cut.timeline.context_tokens = std::min(cut.timeline.context_tokens, trained);
  KAZEIA_ASSIGN(const plan::MemoryPlan plan, forecaster->forecast(cut));
  return plan::check_budget(settings_of(cut), plan, budget_bytes, [&](const plan::PlanSettings& settings) {
    return forecaster->forecast(with_settings(cut, settings));
  });
}

}  // namespace kazeia
