#include "engine/state_size.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "base/units.h"
#include "engine/backend.h"
#include "llama-ext.h"
#include "llama.h"

namespace kazeia {
namespace {

// An unsigned number of the model's metadata; `otherwise` if it has none by that name.
std::uint64_t metadata_number(const llama_model* model, const std::string& key, std::uint64_t otherwise) {
  char text[32] = {};
  if (llama_model_meta_val_str(model, key.c_str(), text, sizeof text) <= 0) return otherwise;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  return error == std::errc() && *end == '\0' ? value : otherwise;
}

}  // namespace

std::uint64_t generous_state_bytes(const llama_model* model, const llama_context_params& params) {
  char architecture[64] = {};
  llama_model_meta_val_str(model, "general.architecture", architecture, sizeof architecture);
  const std::string prefix = std::string(architecture) + ".";
  const auto layers = static_cast<std::uint64_t>(std::max(0, llama_model_n_layer(model)));
  const auto kv_heads = static_cast<std::uint64_t>(std::max(1, llama_model_n_head_kv(model)));
  const auto heads = static_cast<std::uint64_t>(std::max(1, llama_model_n_head(model)));
  const std::uint64_t head = static_cast<std::uint64_t>(std::max(1, llama_model_n_embd(model))) / heads;
  const std::uint64_t key = metadata_number(model, prefix + "attention.key_length", head);
  const std::uint64_t value = metadata_number(model, prefix + "attention.value_length", head);
  const std::uint64_t kv = layers * kv_heads * (key + value) * sizeof(float) * (params.n_ctx + 512u);
  const std::uint64_t recurrent = layers * (metadata_number(model, prefix + "ssm.inner_size", 0) + 1) *
                                  (metadata_number(model, prefix + "ssm.state_size", 0) + 16) * sizeof(float);
  return kv + recurrent + kGiB;
}

plan::StateSample measure_state(const llama_context* context) {
  plan::StateSample sample;
  sample.context_tokens = llama_n_ctx(context);
  try {
    for (const auto& [type, bytes] : llama_get_memory_breakdown(context)) {
      sample.cache_bytes += bytes.context;
      sample.compute_bytes += bytes.compute;
    }
  } catch (const std::exception&) {
    // Out of memory for a map of three entries: the sizes stay at what was summed so far.
  }
  return sample;
}

Result<plan::StateShape> estimate_state(llama_model* model, const llama_context_params& params) {
  plan::StateSample samples[2];
  const std::uint32_t unit = (params.n_ubatch + 255) / 256 * 256;
  for (std::uint32_t i = 0; i < 2; ++i) {
    llama_context_params probe = params;
    probe.n_ctx = unit * (i + 1);
    const UpstreamErrors errors;
    try {
      const std::unique_ptr<llama_context, decltype(&llama_free)> context(llama_init_from_model(model, probe),
                                                                          &llama_free);
      if (context == nullptr) {
        return Error(ErrorCode::kEngine, fmt::format("cannot create an inference state: {}", errors.reason()));
      }
      samples[i] = measure_state(context.get());
    } catch (const std::exception& exception) {
      return Error(ErrorCode::kEngine, fmt::format("cannot create an inference state: {}", exception.what()));
    }
  }
  return plan::state_shape(samples[0], samples[1]);
}

}  // namespace kazeia
