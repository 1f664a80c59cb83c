#include "engine/state_size.h"

#include <exception>
#include <memory>

#include <fmt/format.h>

#include "engine/backend.h"
#include "llama-ext.h"
#include "llama.h"

namespace kazeia {

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
