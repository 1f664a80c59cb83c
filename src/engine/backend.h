// The inference library as a whole: initialised once per process, its messages routed to base/log.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kazeia {

// Safe to call from any thread and any number of times. Upstream's errors are not printed: they are kept for the
// Error that the caller is about to return (see UpstreamErrors). Its warnings go to LogLevel::kInfo, because
// they are written for its developers; everything else to kDebug.
void initialise_backend();

// The backends that upstream was built with and that found their device: "CPU", ...
std::vector<std::string> backend_names();
// "llama.cpp 0.5.0, ggml 0.24.0"
std::string upstream_version();

// Collects what upstream reports as an error on this thread while it is in scope. Scopes may nest; the inner one
// hides the outer.
class UpstreamErrors {
 public:
  UpstreamErrors();
  ~UpstreamErrors();
  UpstreamErrors(const UpstreamErrors&) = delete;
  UpstreamErrors& operator=(const UpstreamErrors&) = delete;

  // The first error (upstream reports the cause first and its consequences after it) on one line, without the name
  // of upstream's function; `otherwise` if there was none.
  std::string reason(std::string_view otherwise = "no reason given") const;

  // For backend.cpp.
  void add(std::string_view text) { text_ += text; }

 private:
  std::string text_;
  UpstreamErrors* outer_;
};

}  // namespace kazeia
