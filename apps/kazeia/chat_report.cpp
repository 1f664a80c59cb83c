#include "chat_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/machine.h"
#include "base/units.h"
#include "options.h"
#include "settings_report.h"

namespace kazeia::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string one_line(const Json& object) {
  return object.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

Json session_json(const SessionCounts& counts) {
  const PrefixCacheCounts& cache = counts.cache;
  return {{"messages", counts.messages},
          {"messages_left_out", counts.messages_left_out},
          {"prompts", cache.prompts},
          {"prompt_tokens", cache.prompt_tokens},
          {"reused_tokens", cache.reused_tokens},
          {"read_tokens", cache.read_tokens},
          {"read_ahead_tokens", cache.read_ahead_tokens},
          {"checkpoints_taken", cache.checkpoints_taken},
          {"checkpoint_hits", cache.checkpoint_hits},
          {"rows_put_back", cache.rows_put_back},
          {"rows_from_disk", cache.rows_from_disk},
          {"restore_ms", cache.restore_ms},
          {"saved_bytes", cache.saved_bytes},
          {"parts_in_memory", cache.store.parts_in_memory},
          {"bytes_in_memory", cache.store.bytes_in_memory},
          {"most_bytes_in_memory", cache.store.most_bytes_in_memory},
          {"memory_budget_bytes", cache.store.memory_budget_bytes},
          {"parts_on_disk", cache.store.parts_on_disk},
          {"bytes_on_disk", cache.store.bytes_on_disk},
          {"parts_dropped", cache.store.dropped},
          {"background_done", counts.idle_done}};
}

}  // namespace

std::string stats_text(const Timeline& timeline, const SessionCounts& counts, const std::optional<TurnStats>& last,
                       const ResolvedSettings& settings, const std::optional<NpuUse>& npu) {
  std::string text;
  const auto row = [&text](std::string_view label, const std::string& value) {
    text += fmt::format("{:<12} {}\n", label, value);
  };
  row("messages", counts.messages_left_out == 0 ? fmt::format("{}", counts.messages)
                                                : fmt::format("{} ({} of them no longer in the context)",
                                                              counts.messages, counts.messages_left_out));
  row("context", fmt::format("{} of {} tokens", timeline.token_count(), timeline.capacity_tokens()));
  if (last) {
    row("prompt", fmt::format("{} tokens, {} of them reused", last->prompt_tokens, last->reused_tokens));
    row("first token", format_duration(last->ttft_ms));
    row("prefill", fmt::format("{:.1f} tokens/s", last->prefill_tps));
    row("decode", fmt::format("{:.1f} tokens/s ({} tokens)", last->decode_tps, last->generated_tokens));
  }
  const PrefixCacheCounts& cache = counts.cache;
  row("all prompts",
      fmt::format("{} tokens, {} reused, {} read", cache.prompt_tokens, cache.reused_tokens, cache.read_tokens));
  row("put back", fmt::format("{} checkpoints, {} tokens of attention ({} from disk), {}", cache.checkpoint_hits,
                              cache.rows_put_back, cache.rows_from_disk, format_duration(cache.restore_ms)));
  row("kept", fmt::format("{} of {} in memory, {} on disk", format_bytes(cache.store.bytes_in_memory),
                          format_bytes(cache.store.memory_budget_bytes), format_bytes(cache.store.bytes_on_disk)));
  row("background", fmt::format("{} tokens read ahead, {} saved, {}", cache.read_ahead_tokens,
                                format_bytes(cache.saved_bytes), counts.idle_done ? "done" : "not done"));
  row("threads", fmt::format("{}", timeline.decode_threads()));
  row("settings", settings_line(settings));
  if (npu) row("NPU", npu_sentence(*npu));
  row("peak memory", format_bytes(read_process_memory().peak_rss_bytes));
  text.pop_back();
  return text;
}

std::string answer_json(const TurnResult& turn, const SessionCounts& counts) {
  const TurnStats& stats = turn.stats;
  return one_line({{"text", turn.answer},
                   {"thinking", turn.thinking},
                   {"stop_reason", stop_reason_name(stats.stop_reason)},
                   {"prompt_tokens", stats.prompt_tokens},
                   {"reused_tokens", stats.reused_tokens},
                   {"read_tokens", stats.prompt_tokens - stats.reused_tokens},
                   {"generated_tokens", stats.generated_tokens},
                   {"ttft_ms", stats.ttft_ms},
                   {"prefill_ms", stats.prefill_ms},
                   {"decode_ms", stats.decode_ms},
                   {"prefill_tps", stats.prefill_tps},
                   {"decode_tps", stats.decode_tps},
                   {"session", session_json(counts)}});
}

std::string stats_json(const Timeline& timeline, const SessionCounts& counts, const ResolvedSettings& settings) {
  return one_line({{"context_tokens", timeline.capacity_tokens()},
                   {"context_used", timeline.token_count()},
                   {"peak_rss_bytes", read_process_memory().peak_rss_bytes},
                   {"settings", settings_json(settings)},
                   {"session", session_json(counts)}});
}

std::string error_json(const Error& error) {
  return one_line({{"error", error.sentence()}, {"code", error.exit_code()}});
}

}  // namespace kazeia::cli
