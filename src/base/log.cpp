#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <utility>

namespace kazeia {
namespace {

std::mutex sink_mutex;
LogSink sink;  // guarded by sink_mutex
std::atomic<LogLevel> threshold{LogLevel::kWarning};

}  // namespace

void set_log_sink(LogSink replacement) {
  const std::lock_guard lock(sink_mutex);
  sink = std::move(replacement);
}

void set_log_level(LogLevel level) {
  threshold.store(level);
}

void log(LogLevel level, std::string_view message) {
  if (level < threshold.load()) return;
  while (!message.empty() && message.back() == '\n') message.remove_suffix(1);
  const std::lock_guard lock(sink_mutex);
  if (sink) {
    sink(level, message);
    return;
  }
  std::fprintf(stderr, "kazeia: %.*s\n", static_cast<int>(message.size()), message.data());
}

}  // namespace kazeia
