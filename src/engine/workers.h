// The threads that compute a timeline's graphs beside the one that asks for them.
//
// Without these, upstream makes its threads for every graph and joins them behind it. These stay: between two graphs
// they look out for the next one as long as `poll` says, and then sleep until it comes.
#pragma once

#include <memory>
#include <span>

#include "base/result.h"

struct ggml_threadpool;
struct llama_context;

namespace kazeia {

class Workers {
 public:
  // For decode and prefill together if they have equally many threads, else for each its own. `poll`: 0 = sleep at
  // once, 100 = look out for some 13 million pauses of the CPU, part of a second. They stay on `cores` (empty:
  // anywhere). kEngine if the system does not give as many threads.
  static Result<std::unique_ptr<Workers>> create(int decode_threads, int prefill_threads, int poll,
                                                 std::span<const int> cores);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // From now on they compute this context's graphs. It must not compute any after they are gone.
  void attach(llama_context* context) const;
  // They sleep until the next graph. Not while one is computed.
  void rest() const;

 private:
  Workers() = default;
  ggml_threadpool* decode_ = nullptr;
  ggml_threadpool* prefill_ = nullptr;  // null: the same
};

}  // namespace kazeia
