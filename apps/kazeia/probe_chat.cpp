#include "probe_chat.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/machine.h"
#include "bench/child_line.h"
#include "bench/statistics.h"
#include "chat/turn.h"
#include "plain_text.h"
#include "session/session.h"

namespace kazeia::cli {
namespace {

constexpr const char* kQuestion = "What is the capital of France?";
constexpr int kQuestions = 3;
constexpr std::int64_t kFirstAnswerTokens = 16;
// A soak is many short conversations, the same for every interval: what grows over an hour is then not their length.
constexpr std::size_t kSoakTurns = 4;
constexpr std::size_t kSoakNewTokens = 128;
constexpr std::int64_t kSoakAnswerTokens = 64;

Result<std::unique_ptr<Session>> open(const std::shared_ptr<const Model>& model, std::unique_ptr<Timeline> timeline,
                                      const PrefixCacheOptions& checkpoints) {
  SessionOptions options;
  options.cache = checkpoints;
  return Session::open(model, std::move(timeline), options);
}

Result<TurnResult> say(Session& session, const std::string& text, const TurnOptions& options) {
  KAZEIA_ASSIGN(TurnResult turn, session.say(text, options));
  if (session.counts().messages_left_out > 0) {
    return Error(ErrorCode::kTooLarge,
                 fmt::format("the turn does not fit into a context of {} tokens", session.timeline().capacity_tokens()),
                 "Give a larger --context");
  }
  return turn;
}

// A conversation that has begun, with what idle time does for it done.
Status begin_conversation(Session& session) {
  TurnOptions options;
  options.max_tokens = kFirstAnswerTokens;
  KAZEIA_TRY(say(session, kQuestion, options));
  return session.finish(options, CancelFlag());
}

Status measure_turn(Session& session, const Model& model, const ChatStep& step) {
  KAZEIA_TRY(begin_conversation(session));
  KAZEIA_ASSIGN(const std::string text, plain_text(model, step.new_tokens, /*seed=*/1));
  TurnOptions options;
  options.max_tokens = static_cast<std::int64_t>(step.answer_tokens);
  bench::tell_begin("turn");
  KAZEIA_ASSIGN(const TurnResult turn, say(session, text, options));
  bench::tell_sample("turn_ttft_ms", turn.stats.ttft_ms);
  if (turn.stats.decode_tps > 0) bench::tell_sample("turn_decode", turn.stats.decode_tps);
  bench::tell_fact("turn_generated_tokens", std::to_string(turn.stats.generated_tokens));
  bench::tell_sample("turn_peak_rss_bytes", static_cast<double>(read_process_memory().peak_rss_bytes));
  return {};
}

// Of one interval.
struct SoakCounts {
  std::vector<double> ttft_ms;
  double decoded_tokens = 0;
  double decode_ms = 0;

  void add(const TurnStats& stats) {
    ttft_ms.push_back(stats.ttft_ms);
    if (stats.decode_tps <= 0) return;
    decoded_tokens += stats.decode_tps * stats.decode_ms / 1000;
    decode_ms += stats.decode_ms;
  }
  void tell() const {
    if (decode_ms <= 0) return;
    bench::tell_sample("soak_ttft_ms", bench::median(ttft_ms));
    bench::tell_sample("soak_rss_bytes", static_cast<double>(read_process_memory().rss_bytes));
    bench::tell_sample("soak_decode", decoded_tokens * 1000 / decode_ms);
  }
};

Status soak(Session& session, const Model& model, const ChatStep& step) {
  TurnOptions options;
  options.max_tokens = kSoakAnswerTokens;
  SoakCounts counts;
  std::uint32_t said = 0;
  double next_report_ms = step.interval_seconds * 1000;
  const Stopwatch watch;
  while (watch.elapsed_ms() < step.seconds * 1000) {
    session.replace(Conversation());
    // Whole conversations only: the later turns of one are slower than the first.
    for (std::size_t turns = 0; turns < kSoakTurns; ++turns) {
      KAZEIA_ASSIGN(const std::string text, plain_text(model, kSoakNewTokens, ++said));
      KAZEIA_ASSIGN(const TurnResult turn, say(session, text, options));
      counts.add(turn.stats);
      KAZEIA_TRY(session.finish(options, CancelFlag()));
    }
    if (watch.elapsed_ms() < next_report_ms) continue;
    counts.tell();
    counts = SoakCounts();
    while (next_report_ms <= watch.elapsed_ms()) next_report_ms += step.interval_seconds * 1000;
  }
  counts.tell();
  return {};
}

std::optional<double> number(std::string_view text) {
  // Whole numbers and decimals; from_chars for the latter is missing in Android's C++ library.
  if (text.empty() || text.find_first_not_of("0123456789.") != std::string_view::npos) return std::nullopt;
  const std::string terminated(text);
  char* after = nullptr;
  const double value = std::strtod(terminated.c_str(), &after);
  if (after != terminated.c_str() + terminated.size() || value <= 0) return std::nullopt;
  return value;
}

}  // namespace

std::optional<ChatStep> parse_chat_step(std::string_view word) {
  if (word == "ttft") return ChatStep{};
  const std::size_t first = word.find(':');
  const std::size_t second = first == std::string_view::npos ? first : word.find(':', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const std::string_view kind = word.substr(0, first);
  const auto a = number(word.substr(first + 1, second - first - 1));
  const auto b = number(word.substr(second + 1));
  if (!a || !b) return std::nullopt;
  ChatStep step;
  if (kind == "turn") {
    step.kind = ChatStep::Kind::kTurn;
    step.new_tokens = static_cast<std::size_t>(*a);
    step.answer_tokens = static_cast<std::size_t>(*b);
    return step;
  }
  if (kind != "soak") return std::nullopt;
  step.kind = ChatStep::Kind::kSoak;
  step.seconds = *a;
  step.interval_seconds = *b;
  return step;
}

Status measure_first_token(const std::shared_ptr<const Model>& model, Timeline& timeline) {
  const std::unique_ptr<Responder> responder = Responder::create(model);
  if (const Status can = responder->can_chat(); !can.ok()) {
    bench::tell_fact("no_chat", can.error().message());
    return {};
  }
  Conversation conversation;
  conversation.add_user(kQuestion);
  TurnOptions options;
  options.max_tokens = 1;
  // The first one pays for what only the first one does; the middle one of a few is what every other message feels.
  std::array<double, kQuestions> times{};
  bench::tell_begin("ttft_ms");
  for (double& time : times) {
    timeline.reset();
    KAZEIA_ASSIGN(const TurnResult turn, responder->answer(timeline, conversation, options));
    time = turn.stats.ttft_ms;
  }
  bench::tell_sample("ttft_ms", bench::median(times));
  timeline.reset();
  return {};
}

Status measure_chat(const std::shared_ptr<const Model>& model, std::unique_ptr<Timeline> timeline,
                    const PrefixCacheOptions& checkpoints, std::span<const ChatStep> steps, NpuUse& use) {
  timeline->reset();
  KAZEIA_ASSIGN(const std::unique_ptr<Session> session, open(model, std::move(timeline), checkpoints));
  if (const Status can = session->can_chat(); !can.ok()) {
    bench::tell_fact("no_chat", can.error().message());
    return {};
  }
  for (const ChatStep& step : steps) {
    session->replace(Conversation());
    switch (step.kind) {
      case ChatStep::Kind::kFirstToken:
        break;
      case ChatStep::Kind::kTurn:
        KAZEIA_TRY(measure_turn(*session, *model, step));
        break;
      case ChatStep::Kind::kSoak:
        KAZEIA_TRY(soak(*session, *model, step));
        break;
    }
  }
  use = session->timeline().npu_use();
  return {};
}

}  // namespace kazeia::cli
