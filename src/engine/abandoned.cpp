#include "engine/abandoned.h"

#include <exception>
#include <mutex>
#include <vector>

namespace kazeia {

void abandon(llama_context*& context) noexcept {
  // Reachable, so that a leak checker knows that it is meant.
  static std::mutex mutex;
  static auto* contexts = new std::vector<llama_context*>();
  try {
    const std::lock_guard lock(mutex);
    contexts->push_back(context);
  } catch (const std::exception&) {
    // Then it is lost, which is as good.
  }
  context = nullptr;
}

}  // namespace kazeia
