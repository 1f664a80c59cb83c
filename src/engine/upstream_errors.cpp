#include "engine/upstream_errors.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/log.h"
#include "ggml.h"
#include "llama.h"

namespace kazeia {
namespace {

thread_local UpstreamErrors* current_scope = nullptr;
thread_local bool continues_an_error = false;

void receive(ggml_log_level level, const char* text, void* /*user_data*/) {
  if (text == nullptr) return;
  if (level == GGML_LOG_LEVEL_CONT) {
    if (continues_an_error && current_scope != nullptr) current_scope->add(text);
    return;
  }
  continues_an_error = level == GGML_LOG_LEVEL_ERROR;
  if (continues_an_error && current_scope != nullptr) current_scope->add(text);
  const bool notable = level == GGML_LOG_LEVEL_ERROR || level == GGML_LOG_LEVEL_WARN;
  log(notable ? LogLevel::kInfo : LogLevel::kDebug, text);
}

bool is_identifier(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == ':' || c == '~';
  });
}

void drop_prefix(std::string_view& text, std::string_view prefix) {
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
}

}  // namespace

void receive_upstream_messages() {
  llama_log_set(receive, nullptr);
}

UpstreamErrors::UpstreamErrors() : outer_(current_scope) {
  current_scope = this;
  continues_an_error = false;
}

UpstreamErrors::~UpstreamErrors() {
  current_scope = outer_;
}

std::string UpstreamErrors::reason(std::string_view otherwise) const {
  std::string_view first = text_;
  first = first.substr(0, first.find('\n'));
  const std::size_t colon = first.find(": ");
  if (colon != std::string_view::npos && is_identifier(first.substr(0, colon))) first.remove_prefix(colon + 2);
  drop_prefix(first, "error loading model: ");
  drop_prefix(first, "failed to initialize the context: ");
  while (!first.empty() && (first.back() == '.' || first.back() == ' ')) first.remove_suffix(1);
  return std::string(first.empty() ? otherwise : first);
}

bool is_about_memory(std::string_view reason) {
  constexpr std::array<std::string_view, 4> kSigns{"bad_alloc", "failed to allocate", "unable to allocate",
                                                   "insufficient memory"};
  return std::any_of(kSigns.begin(), kSigns.end(),
                     [&](std::string_view sign) { return reason.find(sign) != std::string_view::npos; });
}

}  // namespace kazeia
