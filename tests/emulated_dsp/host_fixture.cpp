#include "emulated_dsp/host_fixture.h"

#include <dlfcn.h>
#include <ggml-alloc.h>
#include <ggml-cpu.h>
#include <ggml-hexagon.h>
#include <gtest/gtest.h>

#include <htp-drv.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>

// Upstream's pointer to the entry point whose structs are not public (htp-drv.cpp).
extern int (*remote_system_request_pfn)(system_req_payload* request);

namespace kazeia::emulated_dsp {
namespace {

void* library() {
  // Loaded by its path first: upstream's dlopen("libcdsprpc.so") then finds it by name.
  static void* const handle = dlopen(KAZEIA_EMULATED_DSP, RTLD_NOW | RTLD_LOCAL);
  return handle;
}

ggml_backend_dev_t open_device() {
  if (library() == nullptr || htpdrv_init() != AEE_SUCCESS) {
    std::fprintf(stderr, "the emulated DSP cannot be loaded\n");
    return nullptr;
  }
  remote_system_request_pfn = nullptr;
  ggml_backend_reg_t registered = ggml_backend_hexagon_reg();
  return registered != nullptr ? ggml_backend_reg_dev_get(registered, 0) : nullptr;
}

using Random = std::mt19937_64;

std::vector<float> floats_for(const std::string& name, const ggml_tensor& tensor, Random& random) {
  std::vector<float> values(static_cast<std::size_t>(ggml_nelements(&tensor)));
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = normal(random);
    if (name == "positive") values[i] = std::fabs(values[i]) + 0.1F;
    if (name == "negative") values[i] = -std::fabs(values[i]) - 0.1F;
    if (name == "zero") values[i] = 0;
    if (name == "mask") {
      const auto column = static_cast<std::int64_t>(i) % tensor.ne[0];
      const auto row = static_cast<std::int64_t>(i) / tensor.ne[0] % tensor.ne[1];
      const std::int64_t past = tensor.ne[0] > tensor.ne[1] ? tensor.ne[0] - tensor.ne[1] : 0;
      values[i] = column <= row + past ? 0 : -std::numeric_limits<float>::infinity();
    }
  }
  return values;
}

// Distinct within a run of `limit`, in a scrambled order.
std::int64_t index_for(const std::string& name, std::size_t i) {
  if (name == "positions") return static_cast<std::int64_t>(i % 1000);
  const std::int64_t limit = name.starts_with("indices") ? std::stoll(name.substr(7)) : 2;
  return static_cast<std::int64_t>(i) * 7 % limit;
}

// The tensor's bytes, the same on both sides up to the type of weights.
std::vector<std::uint8_t> bytes_for(const ggml_tensor& tensor, ggml_type meaning, std::uint64_t seed) {
  Random random(seed);
  const std::string name = tensor.name;
  std::vector<std::uint8_t> bytes(ggml_nbytes(&tensor));
  if (tensor.type == GGML_TYPE_I32 || tensor.type == GGML_TYPE_I64) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(ggml_nelements(&tensor)); ++i) {
      const std::int64_t wide = index_for(name, i);
      const auto narrow = static_cast<std::int32_t>(wide);
      if (tensor.type == GGML_TYPE_I64) {
        std::memcpy(bytes.data() + i * sizeof(wide), &wide, sizeof(wide));
      } else {
        std::memcpy(bytes.data() + i * sizeof(narrow), &narrow, sizeof(narrow));
      }
    }
    return bytes;
  }
  std::vector<float> values = floats_for(name, tensor, random);
  const std::int64_t rows = ggml_nrows(&tensor);
  if (meaning != GGML_TYPE_F32) {
    std::vector<std::uint8_t> blocks(ggml_row_size(meaning, tensor.ne[0]) * static_cast<std::size_t>(rows));
    ggml_quantize_chunk(meaning, values.data(), blocks.data(), 0, rows, tensor.ne[0], nullptr);
    if (tensor.type == meaning) return blocks;
    ggml_get_type_traits(meaning)->to_float(blocks.data(), values.data(), ggml_nelements(&tensor));
  }
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

struct Side {
  Context weights;
  Context values;
  Buffer weight_buffer;
  Buffer value_buffer;
  ggml_cgraph* graph = nullptr;
  std::vector<ggml_tensor*> results;
};

Context new_context() {
  ggml_init_params params{};
  params.mem_size = 256 * ggml_tensor_overhead() + ggml_graph_overhead();
  params.no_alloc = true;
  return Context(ggml_init(params));
}

Side built(const Build& build, bool reference) {
  Side side;
  side.weights = new_context();
  side.values = new_context();
  side.results = build({side.weights.get(), side.values.get(), reference});
  side.graph = ggml_new_graph(side.values.get());
  for (ggml_tensor* result : side.results) ggml_build_forward_expand(side.graph, result);
  return side;
}

void fill(ggml_context* context, const std::vector<ggml_type>* meanings) {
  std::uint64_t number = 0;
  for (ggml_tensor* tensor = ggml_get_first_tensor(context); tensor != nullptr;
       tensor = ggml_get_next_tensor(context, tensor)) {
    if (tensor->op != GGML_OP_NONE || tensor->view_src != nullptr) continue;
    const ggml_type own =
        tensor->type == GGML_TYPE_F16 || ggml_is_quantized(tensor->type) ? tensor->type : GGML_TYPE_F32;
    const ggml_type meaning = meanings != nullptr ? (*meanings)[number] : own;
    const auto bytes = bytes_for(*tensor, meaning, 1000 + number++);
    ggml_backend_tensor_set(tensor, bytes.data(), 0, bytes.size());
  }
}

// Types of the weights in their order.
std::vector<ggml_type> weight_types(ggml_context* context) {
  std::vector<ggml_type> types;
  for (ggml_tensor* tensor = ggml_get_first_tensor(context); tensor != nullptr;
       tensor = ggml_get_next_tensor(context, tensor)) {
    types.push_back(tensor->type);
  }
  return types;
}

void allocate(Side& side, ggml_backend_t backend) {
  if (ggml_get_first_tensor(side.weights.get()) != nullptr) {
    side.weight_buffer.reset(ggml_backend_alloc_ctx_tensors(side.weights.get(), backend));
    ggml_backend_buffer_set_usage(side.weight_buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  }
  side.value_buffer.reset(ggml_backend_alloc_ctx_tensors(side.values.get(), backend));
}

std::vector<float> result_of(const ggml_tensor& tensor) {
  std::vector<std::uint8_t> bytes(ggml_nbytes(&tensor));
  ggml_backend_tensor_get(&tensor, bytes.data(), 0, bytes.size());
  std::vector<float> values(static_cast<std::size_t>(ggml_nelements(&tensor)));
  if (tensor.type == GGML_TYPE_I32) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::int32_t integer = 0;
      std::memcpy(&integer, bytes.data() + i * sizeof(integer), sizeof(integer));
      values[i] = static_cast<float>(integer);
    }
  } else if (tensor.type == GGML_TYPE_F32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  } else {
    ggml_get_type_traits(tensor.type)->to_float(bytes.data(), values.data(), ggml_nelements(&tensor));
  }
  return values;
}

double difference(const std::vector<float>& got, const std::vector<float>& wanted) {
  double largest = 0;
  double worst = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (got[i] == wanted[i]) continue;
    if (!std::isfinite(got[i]) || !std::isfinite(wanted[i])) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, std::fabs(double{got[i]} - wanted[i]));
  }
  for (const float value : wanted) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(double{value}));
  }
  return worst == 0 ? 0 : worst / (largest + 1e-9);
}

ggml_tensor* named(ggml_tensor* tensor, const std::string& name) {
  return ggml_set_name(tensor, name.c_str());
}

ggml_tensor* new_tensor(ggml_context* context, ggml_type type, std::vector<std::int64_t> ne) {
  ne.resize(4, 1);
  return ggml_new_tensor(context, type, 4, ne.data());
}

}  // namespace

ggml_backend_dev_t hexagon_device() {
  static ggml_backend_dev_t const device = open_device();
  return device;
}

kazeia_emulated_dsp_counters dsp_counters() {
  kazeia_emulated_dsp_counters counters{};
  reinterpret_cast<kazeia_emulated_dsp_stats_function>(dlsym(library(), "kazeia_emulated_dsp_stats"))(&counters);
  return counters;
}

ggml_tensor* Workshop::input(const std::string& name, ggml_type type, std::vector<std::int64_t> ne) const {
  return named(new_tensor(values, type, std::move(ne)), name);
}

ggml_tensor* Workshop::weight(ggml_type type, std::vector<std::int64_t> ne) const {
  return named(new_tensor(weights, reference ? GGML_TYPE_F32 : type, std::move(ne)), "weight");
}

Comparison compare(const Build& build) {
  Comparison comparison;
  const Backend device(ggml_backend_dev_init(hexagon_device(), nullptr));
  const Backend cpu(ggml_backend_cpu_init());

  Side ours = built(build, false);
  for (int i = 0; i < ggml_graph_n_nodes(ours.graph); ++i) {
    const ggml_tensor* node = ggml_graph_node(ours.graph, i);
    if (!ggml_backend_dev_supports_op(hexagon_device(), node)) comparison.refused = ggml_op_desc(node);
  }
  if (!comparison.refused.empty()) return comparison;
  const std::vector<ggml_type> meanings = weight_types(ours.weights.get());
  allocate(ours, device.get());
  fill(ours.weights.get(), nullptr);
  fill(ours.values.get(), nullptr);
  EXPECT_EQ(ggml_backend_graph_compute(device.get(), ours.graph), GGML_STATUS_SUCCESS);

  Side theirs = built(build, true);
  allocate(theirs, cpu.get());
  fill(theirs.weights.get(), &meanings);
  fill(theirs.values.get(), nullptr);
  EXPECT_EQ(ggml_backend_graph_compute(cpu.get(), theirs.graph), GGML_STATUS_SUCCESS);

  for (std::size_t i = 0; i < ours.results.size(); ++i) {
    comparison.error =
        std::max(comparison.error, difference(result_of(*ours.results[i]), result_of(*theirs.results[i])));
  }
  return comparison;
}

}  // namespace kazeia::emulated_dsp
