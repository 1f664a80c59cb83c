#include "session/session.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"
#include "engine/backend.h"
#include "session/directory.h"

namespace kazeia {
namespace {

// Room for an answer in a full context: a long one of a thinking model.
constexpr std::size_t kAnswerTokens = 1024;

std::size_t answer_room(const Timeline& timeline, const TurnOptions& options) {
  const std::size_t capacity = timeline.capacity_tokens();
  const std::size_t wanted = options.max_tokens >= 0 ? static_cast<std::size_t>(options.max_tokens) : kAnswerTokens;
  return std::min(wanted, capacity / 4);
}

}  // namespace

Session::Session(std::shared_ptr<const Model> model, std::unique_ptr<Timeline> timeline, const SessionOptions& options)
    : model_(std::move(model)),
      timeline_(std::move(timeline)),
      options_(options),
      cache_(options.cache),
      responder_(Responder::create(model_, [this](Timeline& state, const PromptToRead& prompt, std::size_t& reused) {
        return cache_.read(state, prompt, reused);
      })) {}

Session::~Session() {
  end_idle();
}

Result<std::unique_ptr<Session>> Session::open(std::shared_ptr<const Model> model, std::unique_ptr<Timeline> timeline,
                                               const SessionOptions& options) {
  std::unique_ptr<Session> session(new Session(std::move(model), std::move(timeline), options));
  if (!options.folder.empty()) KAZEIA_TRY(session->attach());
  return session;
}

Status Session::attach() {
  KAZEIA_ASSIGN(MessageLog log, MessageLog::open(SessionDirectory::messages_path(options_.folder)));
  log_.emplace(std::move(log));
  conversation_ = log_->conversation();
  left_out_ = log_->left_out();
  remarks_ = log_->remarks();
  StateOrigin origin;
  KAZEIA_ASSIGN(origin.model_hash, model_->content_hash(options_.memo_folder));
  origin.engine_version = options_.engine_version;
  origin.upstream_version = upstream_version();
  // Without a place for states the messages are still worth keeping.
  const Status attached = cache_.attach(SessionDirectory::state_folder(options_.folder), origin);
  if (!attached.ok()) remarks_.push_back(attached.error().message());
  return {};
}

void Session::store() {
  if (!log_) return;
  const Status stored = log_->store(conversation_, left_out_);
  if (stored.ok()) {
    if (storing_fails_) remarks_.emplace_back("the messages are saved again");
    storing_fails_ = false;
    return;
  }
  if (!storing_fails_) {
    remarks_.push_back(fmt::format("the messages are not saved: {}. The conversation goes on and is saved later",
                                   stored.error().message()));
  }
  storing_fails_ = true;
}

Result<TurnResult> Session::say(std::string text, const TurnOptions& options, const TurnEvents& events) {
  end_idle();
  conversation_.add_user(std::move(text));
  store();
  return reply(options, events);
}

Result<TurnResult> Session::answer_again(const TurnOptions& options, const TurnEvents& events) {
  end_idle();
  const bool unanswered = !conversation_.empty() && conversation_.messages().back().role == Role::kUser;
  Conversation before = conversation_;
  if (!conversation_.drop_last_reply() && !unanswered) {
    return Error(ErrorCode::kUsage, "there is nothing to answer again", "Say something first");
  }
  Result<TurnResult> turn = reply(options, events);
  // Unlike a new message, an old one is not taken back: the answer that was there stays.
  if (took_back_) {
    conversation_ = std::move(before);
    took_back_ = false;
    store();
  }
  return turn;
}

Result<TurnResult> Session::reply(const TurnOptions& options, const TurnEvents& events) {
  took_back_ = false;
  const Stopwatch since_submission;
  std::optional<RenderedPrompt> prompt;
  const auto length = [&](const Conversation& conversation) -> Result<std::size_t> {
    KAZEIA_ASSIGN(prompt, responder_->prompt(conversation, options));
    return prompt->tokens.size();
  };
  Result<TurnResult> turn = [&]() -> Result<TurnResult> {
    KAZEIA_ASSIGN(const Window window, fit_window(conversation_, left_out_, timeline_->capacity_tokens(),
                                                  answer_room(*timeline_, options), length));
    if (window.left_out > left_out_) {
      remarks_.push_back(
          fmt::format("the context of {} tokens is full: the model no longer sees the oldest {} messages (they stay in "
                      "the conversation)",
                      timeline_->capacity_tokens(), window.left_out));
    }
    left_out_ = window.left_out;
    const double render_ms = since_submission.elapsed_ms();
    Result<TurnResult> answer = responder_->answer(*timeline_, *prompt, options, events);
    if (answer.ok()) {
      answer->stats.render_ms = render_ms;
      if (answer->stats.ttft_ms > 0) answer->stats.ttft_ms += render_ms;
    }
    return answer;
  }();
  for (std::string& remark : cache_.take_remarks()) remarks_.push_back(std::move(remark));
  const bool stopped = turn.ok() && turn->stats.stop_reason == StopReason::kCancelled;
  if (!turn.ok() || (stopped && turn->answer.empty())) {
    conversation_.drop_last_exchange();
    took_back_ = true;
  } else {
    conversation_.add(turn->message());
  }
  store();
  return turn;
}

void Session::replace(Conversation conversation) {
  end_idle();
  conversation_ = std::move(conversation);
  left_out_ = 0;
  store();
}

// What every next prompt begins with: two prompts that differ in the next message have it in common. It ends where
// that message begins, because its first characters may melt into the token before them.
Result<Tokens> Session::next_prefix(const TurnOptions& options) const {
  const auto with_next = [&](const char* text) {
    Conversation next = without_oldest(conversation_, left_out_);
    next.add_user(text);
    return responder_->prompt(next, options);
  };
  KAZEIA_ASSIGN(RenderedPrompt first, with_next("0"));
  KAZEIA_ASSIGN(const RenderedPrompt second, with_next("z"));
  const std::size_t limit = std::min(first.tokens.size(), second.tokens.size());
  std::size_t common = 0;
  while (common < limit && first.tokens[common] == second.tokens[common]) ++common;
  const auto& starts = first.message_starts;
  const auto behind = std::upper_bound(starts.begin(), starts.end(), common);
  first.tokens.resize(behind == starts.begin() ? 0 : *std::prev(behind));
  return std::move(first.tokens);
}

Status Session::work_ahead(const TurnOptions& options, const CancelFlag& cancel, const Timeline::Progress& progress) {
  KAZEIA_ASSIGN(const Tokens text, next_prefix(options));
  if (text.size() + answer_room(*timeline_, options) <= timeline_->capacity_tokens()) {
    KAZEIA_TRY(cache_.prepare(*timeline_, text, cancel, progress));
  }
  return cache_.save(*timeline_, cancel);
}

void Session::begin_idle(const TurnOptions& options) {
  if (!options_.idle_work || idle_.joinable()) return;
  stop_idle_.clear();
  idle_ = std::thread([this, options] {
    const Status done = work_ahead(options, stop_idle_, {});
    idle_done_ = done.ok();
    if (!done.ok() && done.error().code() == ErrorCode::kWrite && !saving_fails_) {
      saving_fails_ = true;
      remarks_.push_back(
          fmt::format("the state is not saved: {}. A restart reads the conversation again", done.error().message()));
    }
  });
}

void Session::end_idle() {
  stop_idle_.request();
  if (idle_.joinable()) idle_.join();
  idle_done_ = false;
}

Status Session::finish(const TurnOptions& options, const CancelFlag& cancel, const Timeline::Progress& progress) {
  end_idle();
  KAZEIA_TRY(work_ahead(options, cancel, progress));
  return cache_.flush();
}

SessionCounts Session::counts() {
  SessionCounts counts;
  counts.idle_done = idle_done_;
  end_idle();
  counts.cache = cache_.counts();
  counts.messages = conversation_.messages().size();
  counts.messages_left_out = left_out_;
  return counts;
}

std::vector<std::string> Session::take_remarks() {
  end_idle();
  for (std::string& remark : cache_.take_remarks()) remarks_.push_back(std::move(remark));
  return std::exchange(remarks_, {});
}

}  // namespace kazeia
