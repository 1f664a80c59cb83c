#include "engine/placement.h"

#include "llama.h"

namespace kazeia {

std::string_view placement_name(Placement placement) {
  switch (placement) {
    case Placement::kCpu:
      return "cpu";
  }
  return "unknown";
}

llama_model_params load_parameters(Placement placement) {
  // An empty list. A null pointer would mean every device that happens to be registered.
  static ggml_backend_dev_t no_devices[] = {nullptr};

  llama_model_params params = llama_model_default_params();
  switch (placement) {
    case Placement::kCpu:
      params.devices = no_devices;
      params.n_gpu_layers = 0;
      break;
  }
  return params;
}

}  // namespace kazeia
