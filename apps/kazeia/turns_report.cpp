#include "turns_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/units.h"

namespace kazeia::cli {
namespace {

using Json = nlohmann::ordered_json;

Json turn_json(const TurnFigures& turn) {
  return {{"prompt_tokens", turn.prompt_tokens},
          {"reused_tokens", turn.reused_tokens},
          {"read_tokens", turn.read_tokens()},
          {"ttft_ms", turn.ttft_ms},
          {"idle_ms", turn.idle_ms},
          {"read_ahead_tokens", turn.read_ahead_tokens},
          {"generated_tokens", turn.generated_tokens},
          {"store_ms", turn.store_ms}};
}

Json compared_json(const ComparedTurn& compared) {
  Json json = turn_json(compared.turn);
  json["prefill_alone_ms"] = compared.prefill_alone_ms;
  json["ratio"] = compared.ratio();
  return json;
}

std::string disk_part(const RestartFigures& restart) {
  if (restart.resident_bytes == 0) return "which had left memory";
  return fmt::format("of which {} were still in memory", format_bytes(restart.resident_bytes));
}

std::string interruption(const InterruptedFigures& interrupted) {
  if (interrupted.background_done) return "A message just behind the background work, which was done already";
  return fmt::format("A message {} into the background work, which ended {} later",
                     format_duration(interrupted.compared.turn.idle_ms), format_duration(interrupted.stop_ms));
}

}  // namespace

std::string turns_text(const TurnsReport& report) {
  std::string text =
      fmt::format("{:>4} {:>9} {:>9} {:>9} {:>11} {:>11}\n", "turn", "prompt", "reused", "read", "TTFT ms", "idle ms");
  for (std::size_t i = 0; i < report.turns.size(); ++i) {
    const TurnFigures& turn = report.turns[i];
    text += fmt::format("{:>4} {:>9} {:>9} {:>9} {:>11.1f} {:>11.1f}\n", i + 1, turn.prompt_tokens, turn.reused_tokens,
                        turn.read_tokens(), turn.ttft_ms, turn.idle_ms);
  }
  const TurnFigures& last = report.turns.back();
  text += fmt::format(
      "\nThe last turn's first token came after {}, {:.2f} times what its {} tokens take to read alone ({}).\n",
      format_duration(last.ttft_ms), report.last().ratio(), last.read_tokens(), format_duration(report.last_alone_ms));
  text += fmt::format("On an empty state, without the {} tokens before them, the same tokens take {}.\n",
                      last.reused_tokens, format_duration(report.last_alone_at_depth_0_ms));
  text += fmt::format("Reading that whole prompt again takes {}: the turn was {:.1f} times faster.\n",
                      format_duration(report.full_read_ttft_ms), report.full_read_ratio());
  const RestartFigures& restart = report.restart;
  text += fmt::format(
      "After a restart, with {} of state on disk, {}: first token after {}, {} tokens read, {:.2f} times what they "
      "take alone.\n",
      format_bytes(restart.state_bytes), disk_part(restart), format_duration(restart.compared.turn.ttft_ms),
      restart.compared.turn.read_tokens(), restart.compared.ratio());
  const ComparedTurn& interrupted = report.interrupted.compared;
  text += fmt::format("{}: first token after {}, {} tokens read, {:.2f} times what they take alone.\n",
                      interruption(report.interrupted), format_duration(interrupted.turn.ttft_ms),
                      interrupted.turn.read_tokens(), interrupted.ratio());
  text += fmt::format("Memory: kept states {} at most (budget {}), the whole process {}.\n",
                      format_bytes(report.most_bytes_in_memory), format_bytes(report.memory_budget_bytes),
                      format_bytes(report.peak_rss_bytes));
  if (!report.npu_failure.empty()) text += fmt::format("The NPU failed on the way: {}.\n", report.npu_failure);
  return text;
}

std::string turns_json(const TurnsReport& report) {
  Json turns = Json::array();
  for (const TurnFigures& turn : report.turns) turns.push_back(turn_json(turn));
  Json restart = compared_json(report.restart.compared);
  restart["rows_from_disk"] = report.restart.rows_from_disk;
  restart["state_bytes"] = report.restart.state_bytes;
  restart["state_resident_bytes"] = report.restart.resident_bytes;
  restart["open_ms"] = report.restart.open_ms;
  Json interrupted = compared_json(report.interrupted.compared);
  interrupted["background_done"] = report.interrupted.background_done;
  interrupted["stop_ms"] = report.interrupted.stop_ms;
  interrupted["ratio_with_stop"] = report.interrupted.ratio_with_stop();
  const Json json{{"model", report.model},
                  {"architecture", report.architecture},
                  {"route", report.route},
                  {"npu_failure", report.npu_failure.empty() ? Json(nullptr) : Json(report.npu_failure)},
                  {"threads", report.threads},
                  {"context_tokens", report.context_tokens},
                  {"new_tokens", report.new_tokens},
                  {"answer_tokens", report.answer_tokens},
                  {"thinking", report.thinking},
                  {"turns", turns},
                  {"last_turn_ratio", report.last().ratio()},
                  {"last_turn",
                   {{"ttft_ms", report.turns.back().ttft_ms},
                    {"prefill_alone_ms", report.last_alone_ms},
                    {"prefill_alone_at_depth_0_ms", report.last_alone_at_depth_0_ms}}},
                  {"full_read", {{"ttft_ms", report.full_read_ttft_ms}, {"ratio", report.full_read_ratio()}}},
                  {"restart", restart},
                  {"interrupted", interrupted},
                  {"memory",
                   {{"most_bytes_in_memory", report.most_bytes_in_memory},
                    {"memory_budget_bytes", report.memory_budget_bytes},
                    {"peak_rss_bytes", report.peak_rss_bytes}}},
                  {"load_average", report.load_average}};
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

}  // namespace kazeia::cli
