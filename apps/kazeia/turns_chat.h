// The chat that `kazeia turns` measures.
//
// A person who reads every answer: each turn is followed by the work of an idle time. The answers that stay in the
// conversation are scripted, and not what was generated: so it is with a model that thinks, whose thoughts the next
// prompt does not have. Behind the last turn come one after a restart and one in the middle of the background work.
// What they are compared with is measured when the chat is over, so that the chat has the memory to itself.
#pragma once

#include <cstddef>
#include <string>

#include "base/cancel.h"
#include "base/result.h"
#include "options.h"
#include "session/prefix_cache.h"
#include "turns_report.h"

namespace kazeia::cli {

struct TurnsScript {
  std::size_t turns = 8;           // before the restart, at least one
  std::size_t new_tokens = 700;    // of every message
  std::size_t answer_tokens = 96;  // to generate, and of every scripted answer
  bool thinking = true;
  PrefixCacheOptions cache;

  // Of the whole chat, without a system message that the template may have of its own.
  std::size_t tokens() const;
};

// The session is called so in the folder that it is given.
inline constexpr const char* kTurnsSession = "turns";

// Takes the timeline of `loaded`. `folder` holds no session of that name and may not exist. Lines about what is done go
// to stderr if that is a terminal, warnings always. Errors: kCancelled, those of Session and Timeline, and kTooLarge if
// the context does not hold the script.
Result<TurnsReport> measure_turns(const TurnsScript& script, const ModelFlags& flags, LoadedModel& loaded,
                                  const std::string& folder, const CancelFlag& cancel);

}  // namespace kazeia::cli
