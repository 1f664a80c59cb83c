// The inference library as a whole: initialised once per process, its messages routed to base/log.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/upstream_errors.h"

namespace kazeia {

// Safe to call from any thread and any number of times. Upstream's errors are not printed: they are kept for the
// Error that the caller is about to return (see UpstreamErrors). Its warnings go to LogLevel::kInfo, because
// they are written for its developers; everything else to kDebug.
void initialise_backend();

// Upstream ends the process where it cannot go on, most often for want of memory for itself. `handler` is told why first,
// on any thread, and ends it in the program's own way; if it returns, or there is none, upstream aborts. For programs,
// before anything else.
void on_upstream_abort(void (*handler)(const char* message));

// The backends that upstream was built with and that found their device: "CPU", ...
std::vector<std::string> backend_names();
// "llama.cpp 0.5.0, ggml 0.24.0"
std::string upstream_version();

}  // namespace kazeia
