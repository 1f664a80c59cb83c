// What upstream reports as errors, for the Error that the caller is about to return.
#pragma once

#include <string>
#include <string_view>

namespace kazeia {

// From now on upstream's messages come here and to base/log.h. See initialise_backend().
void receive_upstream_messages();

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

  // For receive_upstream_messages().
  void add(std::string_view text) { text_ += text; }

 private:
  std::string text_;
  UpstreamErrors* outer_;
};

// Whether a reason that upstream gave, or the text of an exception that came through it, is that there was no memory.
bool is_about_memory(std::string_view reason);

}  // namespace kazeia
