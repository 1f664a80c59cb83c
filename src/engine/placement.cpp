#include "engine/placement.h"

#include "ggml-cpu.h"
#include "llama.h"
#include "npu/device.h"
#include "npu/gate.h"

namespace kazeia {

std::string_view placement_name(Placement placement) {
  switch (placement) {
    case Placement::kCpu:
      return "cpu";
    case Placement::kNpu:
      return "npu";
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
    case Placement::kNpu: {
      static ggml_backend_dev_t npu_devices[] = {nullptr, nullptr};
      // The head runs once per prompt, and the table is a lookup; on the NPU a tied table would exist twice.
      static const llama_model_tensor_buft_override on_cpu[] = {
          {R"(^(token_embd|output)\.weight$)", ggml_backend_cpu_buffer_type()}, {nullptr, nullptr}};
      npu_devices[0] = npu::Device::opened()->gate().device();
      params.load_mode = LLAMA_LOAD_MODE_MMAP;
      params.devices = npu_devices;
      params.n_gpu_layers = -1;
      params.tensor_buft_overrides = on_cpu;
      params.no_host = true;  // the device's host memory is for activations
      break;
    }
    case Placement::kUpstream:
      params.devices = no_devices;
      params.n_gpu_layers = 0;
      break;
  }
  return params;
}

}  // namespace kazeia
