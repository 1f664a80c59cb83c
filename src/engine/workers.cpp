#include "engine/workers.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/cpu_list.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "llama.h"

namespace kazeia {
namespace {

// Upstream ends the process if it cannot start a thread, so that is tried first.
bool can_start(int count) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::vector<std::thread> threads;
  bool all = true;
  try {
    threads.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&] {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return done; });
      });
    }
  } catch (const std::exception&) {
    all = false;
  }
  {
    const std::lock_guard lock(mutex);
    done = true;
  }
  changed.notify_all();
  for (std::thread& thread : threads) thread.join();
  return all;
}

ggml_threadpool* new_pool(int threads, int poll) {
  // No mask: upstream would leave it set on the calling thread. The pool's own threads inherit ours.
  ggml_threadpool_params params = ggml_threadpool_params_default(threads);
  params.poll = static_cast<std::uint32_t>(poll);
  params.paused = true;  // until the first graph
  return ggml_threadpool_new(&params);
}

}  // namespace

Result<std::unique_ptr<Workers>> Workers::create(int decode_threads, int prefill_threads, int poll,
                                                 std::span<const int> cores) {
  const bool shared = decode_threads == prefill_threads;
  const int others = decode_threads - 1 + (shared ? 0 : prefill_threads - 1);
  const OnCpus inherited(cores);
  if (!can_start(others)) {
    return Error(ErrorCode::kEngine, fmt::format("the system gives this process no {} more threads", others),
                 "Use fewer --threads, or raise the limit (ulimit -u)");
  }
  std::unique_ptr<Workers> workers(new Workers());
  workers->decode_ = new_pool(decode_threads, poll);
  if (!shared) workers->prefill_ = new_pool(prefill_threads, poll);
  return workers;
}

Workers::~Workers() {
  ggml_threadpool_free(prefill_);
  ggml_threadpool_free(decode_);
}

void Workers::attach(llama_context* context) const {
  llama_attach_threadpool(context, decode_, prefill_);
}

void Workers::rest() const {
  ggml_threadpool_pause(decode_);
  if (prefill_ != nullptr) ggml_threadpool_pause(prefill_);
}

}  // namespace kazeia
