#include "engine/placement.h"

#include "llama.h"

namespace kazeia {

std::string_view placement_name(Placement placement) {
  switch (placement) {
    case Placement::kCpu:
      return "cpu";
    case Placement::kUpstream:
      return "upstream";
  }
  return "unknown";
}

llama_model_params load_parameters(Placement placement) {
  // An empty list. A null pointer would mean every device that happens to be registered.
  static ggml_backend_dev_t no_devices[] = {nullptr};

  llama_model_params params = llama_model_default_params();
  switch (placement) {
    case Placement::kCpu:
      // Packing reads straight from the file mapping and drops its pages behind itself. Upstream's other modes stage
      // whole tensors or hold a second copy of the file.
      params.load_mode = LLAMA_LOAD_MODE_MMAP;
      params.devices = no_devices;
      params.n_gpu_layers = 0;
      break;
    case Placement::kUpstream:
      params.devices = no_devices;
      params.n_gpu_layers = 0;
      break;
  }
  return params;
}

}  // namespace kazeia
