// For tests: upstream's real Hexagon host code on the emulated DSP, and ggml's CPU backend beside it.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emulated_dsp/stats.h"

namespace kazeia::emulated_dsp {

// Frees what ggml hands out.
struct Freed {
  void operator()(ggml_context* context) const { ggml_free(context); }
  void operator()(ggml_backend* backend) const { ggml_backend_free(backend); }
  void operator()(ggml_backend_buffer* buffer) const { ggml_backend_buffer_free(buffer); }
};
using Context = std::unique_ptr<ggml_context, Freed>;
using Backend = std::unique_ptr<ggml_backend, Freed>;
using Buffer = std::unique_ptr<ggml_backend_buffer, Freed>;

// The device of upstream's backend; null with the reason on stderr if it could not be opened. Once per process.
ggml_backend_dev_t hexagon_device();
kazeia_emulated_dsp_counters dsp_counters();

// Where a graph's tensors come from.
struct Workshop {
  ggml_context* weights;  // their buffer is marked as holding weights, as llama.cpp does
  ggml_context* values;   // inputs and results
  bool reference;         // on the CPU: weights in F32, holding exactly what the device's weights mean

  // The name says how an input is filled: "positions", "indices<N>" (each below N), "mask" (causal), "positive",
  // "negative" (both away from 0), "zero", anything else normally distributed.
  ggml_tensor* input(const std::string& name, ggml_type type, std::vector<std::int64_t> ne) const;
  ggml_tensor* weight(ggml_type type, std::vector<std::int64_t> ne) const;
};
// Builds a graph and returns the tensors to compare.
using Build = std::function<std::vector<ggml_tensor*>(const Workshop&)>;

struct Comparison {
  // An op of the graph that upstream's supports_op refuses, else "".
  std::string refused;
  // Largest difference over the largest value of the reference, over all results. Infinities must agree.
  double error = 0;
};
// Computes the same graph on the device and on the CPU, from the same inputs.
Comparison compare(const Build& build);

}  // namespace kazeia::emulated_dsp
