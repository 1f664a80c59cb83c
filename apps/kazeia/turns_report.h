// What `kazeia turns` measured, and how it is told: to people and to scripts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kazeia::cli {

struct TurnFigures {
  std::size_t prompt_tokens = 0;  // the whole prompt
  std::size_t reused_tokens = 0;  // of these, not read while somebody waited
  std::size_t generated_tokens = 0;
  double ttft_ms = 0;
  double store_ms = 0;                // one change of the message log; a turn begins with another one, before its TTFT
  double idle_ms = 0;                 // work between this turn and the next
  std::size_t read_ahead_tokens = 0;  // in it

  std::size_t read_tokens() const { return prompt_tokens - reused_tokens; }
};

// A turn beside what it could not do without: one prefill of its read tokens, behind its reused ones.
struct ComparedTurn {
  TurnFigures turn;
  double prefill_alone_ms = 0;

  double ratio() const { return prefill_alone_ms > 0 ? turn.ttft_ms / prefill_alone_ms : 0; }
};

struct RestartFigures {
  ComparedTurn compared;
  double open_ms = 0;  // from an empty timeline to a session that can be talked with; not in the TTFT
  std::size_t rows_from_disk = 0;
  std::uint64_t state_bytes = 0;     // of all state files
  std::uint64_t resident_bytes = 0;  // of these, still in the page cache when the session was opened
};

// In `compared.turn`, idle_ms and read_ahead_tokens are those of the work that the message came in the middle of.
struct InterruptedFigures {
  ComparedTurn compared;
  double stop_ms = 0;            // until the background work had ended; not in the TTFT
  bool background_done = false;  // it had ended by itself before

  double ratio_with_stop() const {
    return compared.prefill_alone_ms > 0 ? (stop_ms + compared.turn.ttft_ms) / compared.prefill_alone_ms : 0;
  }
};

struct TurnsReport {
  std::string model;  // file name
  std::string architecture;
  std::string route;
  std::string npu_failure;  // empty: there was none
  int threads = 0;
  std::size_t context_tokens = 0;
  std::size_t new_tokens = 0;     // of a user's message, asked for
  std::size_t answer_tokens = 0;  // generated in a turn at most, and of the scripted answer
  bool thinking = true;

  std::vector<TurnFigures> turns;  // not empty
  double last_alone_ms = 0;
  double last_alone_at_depth_0_ms = 0;
  double full_read_ttft_ms = 0;  // the last prompt on an empty timeline
  RestartFigures restart;
  InterruptedFigures interrupted;

  std::uint64_t most_bytes_in_memory = 0;  // of kept states
  std::uint64_t memory_budget_bytes = 0;
  std::uint64_t peak_rss_bytes = 0;  // of the chat, before anything was measured to compare
  double load_average = 0;

  ComparedTurn last() const { return {turns.back(), last_alone_ms}; }
  double full_read_ratio() const { return turns.back().ttft_ms > 0 ? full_read_ttft_ms / turns.back().ttft_ms : 0; }
};

// A table of the turns, then a line for each comparison.
std::string turns_text(const TurnsReport& report);
// One object.
std::string turns_json(const TurnsReport& report);

}  // namespace kazeia::cli
