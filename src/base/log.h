// One sink for diagnostics. The engine and upstream's own messages arrive here; an application decides
// what a person sees. Nothing is printed by default except warnings and errors, on stderr.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace kazeia {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

using LogSink = std::function<void(LogLevel, std::string_view message)>;

// Replaces the sink; an empty function restores the default. Threads: call before others log.
void set_log_sink(LogSink sink);
// Messages below this level are dropped before the sink sees them. Default: kWarning.
void set_log_level(LogLevel level);
void log(LogLevel level, std::string_view message);  // any thread

}  // namespace kazeia
