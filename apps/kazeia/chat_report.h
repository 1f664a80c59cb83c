// What `kazeia chat` says about an answer and about the session: for people and for scripts.
#pragma once

#include <optional>
#include <string>

#include "chat/turn.h"
#include "engine/npu_use.h"
#include "run_settings.h"
#include "session/session.h"

namespace kazeia::cli {

// /stats: several lines without the last line break. `npu`: only if the model was placed there.
std::string stats_text(const Timeline& timeline, const SessionCounts& counts, const std::optional<TurnStats>& last,
                       const ResolvedSettings& settings, const std::optional<NpuUse>& npu);

// --json: one line each, with the line break.
std::string answer_json(const TurnResult& turn, const SessionCounts& counts);
std::string stats_json(const Timeline& timeline, const SessionCounts& counts, const ResolvedSettings& settings);
std::string error_json(const Error& error);

}  // namespace kazeia::cli
