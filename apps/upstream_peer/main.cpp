// The other side of `kazeia versus` and of `kazeia bench --baseline upstream`: llama.cpp's plain API with its own
// defaults, built as upstream ships it (OpenMP included). Loads a model, runs the steps that it is given, prints one
// JSON object a line.
//   kazeia-upstream-peer MODEL THREADS CONTEXT STEP...

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/machine.h"
#include "bench/child.h"
#include "bench/child_line.h"
#include "bench/steps.h"
#include "engine/state_parts.h"
#include "llama.h"

namespace {

int fail(const char* what) {
  std::fprintf(stderr, "kazeia-upstream-peer: %s\n", what);
  return 7;
}

int run(int argc, char** argv) {
  kazeia::bench::end_with_parent();
  if (argc < 5) return fail("usage: MODEL THREADS CONTEXT STEP...");
  std::vector<kazeia::bench::Step> steps;
  for (int i = 4; i < argc; ++i) {
    const auto step = kazeia::bench::parse_step(argv[i]);
    if (!step) return fail("unknown step");
    steps.push_back(*step);
  }
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  const kazeia::Stopwatch load;
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  // Upstream maps the file and reads it when it is used: its loading ends with the first token.
  if (model == nullptr) return fail("cannot load the model");

  llama_context_params params = llama_context_default_params();
  params.n_threads = params.n_threads_batch = std::atoi(argv[2]);
  params.n_ctx = static_cast<std::uint32_t>(std::atoi(argv[3]));
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) return fail("cannot create the context");
  std::int64_t count = 0;
  const auto decode = [&](std::vector<std::int32_t> tokens) {
    // Upstream's own loop (llama-bench, server) feeds at most n_batch tokens a call and waits for the result.
    for (std::size_t at = 0; at < tokens.size(); at += 512) {
      const auto size = static_cast<std::int32_t>(std::min<std::size_t>(512, tokens.size() - at));
      if (llama_decode(context, llama_batch_get_one(tokens.data() + at, size)) != 0) return false;
      count += size;
    }
    llama_synchronize(context);
    return llama_get_logits_ith(context, -1) != nullptr;
  };
  if (!decode(kazeia::bench::tokens_between(0, 16))) return fail("decoding failed");
  kazeia::bench::tell_sample("first_token_ms", load.elapsed_ms());

  const auto deepen = [&](std::int64_t depth) {
    const std::vector<std::int32_t> tokens = kazeia::bench::tokens_between(0, depth);
    const kazeia::Status status = kazeia::repeat_attention_rows(context, tokens, static_cast<std::size_t>(count));
    if (status.ok()) count = depth;
    if (status.ok()) return kazeia::bench::Deepened::kDone;
    return status.error().code() == kazeia::ErrorCode::kUnsupported ? kazeia::bench::Deepened::kUnsupported
                                                                    : kazeia::bench::Deepened::kFailed;
  };
  const kazeia::bench::Subject subject{[&] {
                                         llama_memory_clear(llama_get_memory(context), true);
                                         count = 0;
                                       },
                                       [&] { return count; }, decode,
                                       [&](std::int32_t token) { return decode({token}); }, deepen};
  kazeia::bench::StepRunner runner(subject);
  if (!runner.run(steps, kazeia::bench::tell_sample, kazeia::bench::tell_begin)) return fail("decoding failed");
  if (!runner.depth_made().empty()) kazeia::bench::tell_fact("depth", runner.depth_made());
  kazeia::bench::tell_sample("peak_rss_bytes", static_cast<double>(kazeia::read_process_memory().peak_rss_bytes));
  llama_free(context);
  llama_model_free(model);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    return fail(error.what());
  }
}
