#include "engine/model.h"

#include <algorithm>
#include <exception>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/units.h"
#include "engine/backend.h"
#include "ggml-backend-impl.h"
#include "gguf/loadable.h"
#include "gguf/reader.h"
#include "llama-model.h"
#include "llama.h"
#include "npu/device.h"
#include "npu/gate.h"
#include "npu/shared_memory.h"
#include "plan/memory.h"
#include "plan/threads.h"
#include "tiles/buffer_type.h"
#include "tiles/tile_cache.h"

namespace kazeia {
namespace {

std::string text_entry(const gguf::File& file, std::string_view key) {
  const gguf::Value* value = file.find(key);
  return value == nullptr ? std::string() : std::string(value->as_string().value_or(""));
}

// What upstream can load but this engine cannot serve: it generates text, token by token.
Status check_generates_text(const gguf::File& file, const std::string& architecture) {
  const gguf::Value* causal = file.find(architecture + ".attention.causal");
  if (causal != nullptr && causal->as_bool() == false) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("this is an embedding or diffusion model ('{}'), it does not write text token by token",
                             gguf::printable(architecture)),
                 "Choose a chat model");
  }
  const std::string tokenizer = text_entry(file, "tokenizer.ggml.model");
  if (tokenizer.empty() || tokenizer == "none" || tokenizer == "no_vocab") {
    return Error(ErrorCode::kUnsupported, "the model has no tokenizer", "Choose a file that contains its vocabulary");
  }
  return {};
}

Status check_memory(std::uint64_t weight_bytes, std::uint64_t budget_bytes) {
  const std::uint64_t available = budget_bytes != 0 ? budget_bytes : read_machine().available_memory_bytes;
  if (plan::fits(weight_bytes, available)) return {};
  return Error(
      ErrorCode::kTooLarge,
      fmt::format("the weights need {} of memory, {} are free", format_bytes(weight_bytes), format_bytes(available)),
      "Close other programs, or choose a smaller model or a file with fewer bits per weight");
}

struct LoadProgress {
  const ModelOptions& options;
  int reported_percent = -1;
  bool cancelled = false;
};

bool report_progress(float fraction, void* user_data) {
  LoadProgress& progress = *static_cast<LoadProgress*>(user_data);
  const int percent = std::clamp(static_cast<int>(fraction * 100.0f), 0, 100);
  if (progress.options.on_progress && percent > progress.reported_percent) {
    progress.reported_percent = percent;
    progress.options.on_progress(std::clamp(fraction, 0.0f, 1.0f));
  }
  progress.cancelled = progress.options.cancel != nullptr && progress.options.cancel->requested();
  return !progress.cancelled;
}

Error load_error(const std::string& path, const std::string& architecture, const std::string& reason) {
  if (reason.starts_with("unknown model architecture")) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("'{}' has the architecture '{}', which this engine does not know", path,
                             gguf::printable(architecture)),
                 "Choose a model of a known architecture, for example Qwen3 or Qwen3.5");
  }
  if (is_about_memory(reason)) {
    return Error(ErrorCode::kTooLarge,
                 fmt::format("there is not enough memory to load '{}': {}", path, gguf::printable(reason, 300)),
                 "Close other programs or use a smaller model");
  }
  return Error(ErrorCode::kEngine, fmt::format("cannot load '{}': {}", path, gguf::printable(reason, 300)),
               "Check the file with `kazeia inspect`");
}

Error layout_error(const npu::TileCheck& check) {
  return Error(
      ErrorCode::kEngine,
      fmt::format("the NPU's host code keeps weights in another layout than this engine's kernels read ({} of {} "
                  "matrices, first '{}')",
                  check.mismatched.size(), check.matrices, check.mismatched.front()),
      "Use the CPU, and report the upstream version");
}

// What the NPU does not run of a model that was placed on it.
NpuPlacement describe_placement(const llama_model* model, std::uint64_t checked_matrices) {
  NpuPlacement placement;
  placement.checked_matrices = checked_matrices;
  double all = 0;
  for (const auto& [name, tensor] : llama_internal_get_tensor_map(model)) {
    const bool shared = tensor->buffer != nullptr && tensor->buffer->buft == npu::weights_type();
    if (shared) placement.shared_bytes += ggml_backend_buft_get_alloc_size(npu::weights_type(), tensor);
    if (ggml_n_dims(tensor) < 2 || name == "token_embd.weight" || name == "output.weight") continue;
    const auto multiplications = static_cast<double>(ggml_nelements(tensor));
    all += multiplications;
    if (!shared) placement.refused.push_back({name, ggml_type_name(tensor->type), multiplications});
  }
  for (RefusedTensor& tensor : placement.refused) tensor.share /= all;
  std::sort(placement.refused.begin(), placement.refused.end(),
            [](const RefusedTensor& a, const RefusedTensor& b) { return a.share > b.share; });
  return placement;
}

// The tile cache is a convenience: whatever is wrong with it, the model loads without it.
tiles::LoadOptions tile_load_options(const std::vector<std::string>& parts, const ModelOptions& options) {
  tiles::LoadOptions load;
  load.threads = plan::default_threads(read_machine());
  load.huge_pages = options.huge_pages;
  if (options.tile_cache_directory.empty()) return load;
  const Result<std::string> hash = tiles::model_hash(parts, options.tile_cache_directory, load.threads);
  if (!hash.ok()) {
    log(LogLevel::kWarning, hash.error().sentence());
    return load;
  }
  load.cache_directory = options.tile_cache_directory;
  load.cache_key = *hash;
  return load;
}

}  // namespace

Result<std::shared_ptr<const Model>> Model::load(const std::string& path, const ModelOptions& options) {
  const Stopwatch watch;
  std::uint64_t weight_bytes = 0;
  std::string architecture;
  std::string chat_template;
  std::vector<std::string> parts;
  {
    // The mappings are released before upstream makes its own.
    KAZEIA_ASSIGN(const gguf::ModelFile file, gguf::open_gguf(path));
    const gguf::File& metadata = file.metadata();
    architecture = text_entry(metadata, "general.architecture");
    const Status loadable = gguf::check_loadable(file.parts());
    if (!loadable.ok()) return loadable.error().within(path);
    const Status generates = check_generates_text(metadata, architecture);
    if (!generates.ok()) return generates.error().within(path);
    weight_bytes = file.tensor_bytes();
    chat_template = text_entry(metadata, "tokenizer.chat_template");
    parts = file.paths();
  }
  const Status memory = check_memory(weight_bytes, options.memory_budget_bytes);
  if (!memory.ok()) return memory.error().within(path);

  initialise_backend();
  if (options.placement == Placement::kNpu) {
    const Result<npu::Device*> device = npu::Device::open();
    if (!device.ok()) return device.error();
  }
  LoadProgress progress{options};
  llama_model_params params = load_parameters(options.placement);
  params.progress_callback = report_progress;
  params.progress_callback_user_data = &progress;

  std::vector<const char*> part_names;
  part_names.reserve(parts.size());
  for (const std::string& part : parts) part_names.push_back(part.c_str());

  const UpstreamErrors errors;
  std::shared_ptr<Model> model(new Model());
  const auto load_weights = [&] {
    model->model_ = llama_model_load_from_splits(part_names.data(), part_names.size(), params);
  };
  try {
    if (options.placement == Placement::kUpstream) {
      const tiles::WithoutTiles without_tiles;
      load_weights();
    } else if (options.placement == Placement::kNpu) {
      // No tile cache: the driver's memory cannot be a file.
      const npu::GateScope gate(npu::Device::opened()->gate(), npu::GateState::kLoading);
      const npu::WeightLoad load;
      tiles::Loading loading({.threads = plan::default_threads(read_machine()),
                              .cache_directory = {},
                              .cache_key = {},
                              .huge_pages = options.huge_pages});
      load_weights();
      model->tile_bytes_ = loading.packed_bytes();
      if (!load.check().agrees()) return layout_error(load.check());
      model->npu_placement_.checked_matrices = load.check().matrices;
    } else {
      tiles::Loading loading(tile_load_options(parts, options));
      load_weights();
      model->tile_bytes_ = loading.packed_bytes() + loading.cached_bytes();
      model->cached_tile_bytes_ = loading.cached_bytes();
      const Status kept = model->model_ == nullptr ? Status() : loading.finish();
      if (!kept.ok()) log(LogLevel::kWarning, kept.error().sentence());
    }
  } catch (const std::exception& exception) {
    return load_error(path, architecture, exception.what());
  }
  if (progress.cancelled) return Error(ErrorCode::kCancelled, "loading was cancelled");
  if (model->model_ == nullptr) return load_error(path, architecture, errors.reason());
  if (llama_model_has_encoder(model->model_) || !llama_model_has_decoder(model->model_) ||
      llama_model_is_diffusion(model->model_)) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("'{}' is not a decoder-only text model ('{}')", path, gguf::printable(architecture)),
                 "Choose a chat model");
  }

  if (options.placement == Placement::kNpu) {
    model->npu_placement_ = describe_placement(model->model_, model->npu_placement_.checked_matrices);
  }
  model->path_ = path;
  model->parts_ = std::move(parts);
  model->architecture_ = std::move(architecture);
  model->chat_template_ = std::move(chat_template);
  model->placement_ = options.placement;
  model->load_ms_ = watch.elapsed_ms();
  return std::shared_ptr<const Model>(std::move(model));
}

Model::~Model() {
  if (model_ != nullptr) llama_model_free(model_);
}

std::uint64_t Model::weight_bytes() const {
  return llama_model_size(model_);
}

Result<std::string> Model::content_hash(const std::string& memo_directory) const {
  return tiles::model_hash(parts_, memo_directory, plan::default_threads(read_machine()));
}

std::string Model::remembered_hash(const std::string& path, const std::string& memo_directory) {
  if (path.find("-of-") == std::string::npos) return tiles::remembered_hash({path}, memo_directory);
  const Result<gguf::ModelFile> file = gguf::open_gguf(path);  // which files there are is in the first one
  return file.ok() ? tiles::remembered_hash(file->paths(), memo_directory) : std::string();
}

std::uint32_t Model::trained_context_tokens() const {
  return static_cast<std::uint32_t>(std::max(0, llama_model_n_ctx_train(model_)));
}

bool Model::has_recurrent_state() const {
  return llama_model_is_recurrent(model_) || llama_model_is_hybrid(model_);
}

bool Model::depends_on_context_size() const {
  for (const auto& [name, tensor] : llama_internal_get_tensor_map(model_)) {
    if (name.find("rope_factors_long") != std::string::npos) return true;
  }
  return false;
}

const llama_vocab* Model::vocabulary() const {
  return llama_model_get_vocab(model_);
}

}  // namespace kazeia
