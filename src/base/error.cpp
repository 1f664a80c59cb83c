#include "base/error.h"

namespace kazeia {

std::string Error::sentence() const {
  std::string out = message_;
  if (!next_.empty()) {
    out += ". ";
    out += next_;
  }
  if (!out.empty() && out.back() != '.') out += '.';
  return out;
}

Error Error::within(std::string_view context) const {
  return Error(code_, std::string(context) + ": " + message_, next_);
}

std::string_view error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kFile:
      return "file";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kTooLarge:
      return "too_large";
    case ErrorCode::kWrite:
      return "write";
    case ErrorCode::kEngine:
      return "engine";
    case ErrorCode::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

}  // namespace kazeia
