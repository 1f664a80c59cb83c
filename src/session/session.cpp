#include "session/session.h"

#include <algorithm>
#include <exception>
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
  if (storing_error_) store();
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
  window_may_grow_ = left_out_ > 0;
  remarks_ = log_->remarks();
  StateOrigin origin;
  KAZEIA_ASSIGN(origin.model_hash, model_->content_hash(options_.memo_folder));
  origin.engine_version = options_.engine_version;
  // States that are not what others of the same model would be.
  if (model_->depends_on_context_size()) {
    origin.engine_version += fmt::format(", context {}", timeline_->capacity_tokens());
  }
  if (options_.cache.half_checkpoints) origin.engine_version += ", from half checkpoints";
  origin.upstream_version = upstream_version();
  // Without a place for states the messages are still worth keeping.
  const Status attached = cache_.attach(SessionDirectory::state_folder(options_.folder), origin);
  if (!attached.ok()) remarks_.push_back(attached.error().message());
  return {};
}

void Session::store() {
  if (!log_) return;
  Status stored = log_->store(conversation_, left_out_);
  if (!stored.ok() && stored.error().code() == ErrorCode::kWrite) {
    cache_.remove_files();  // they only save time
    stored = log_->store(conversation_, left_out_);
  }
  if (stored.ok()) {
    if (storing_error_) remarks_.emplace_back("the messages are saved again");
    storing_error_.reset();
    return;
  }
  if (!storing_error_) {
    remarks_.push_back(fmt::format("the messages are not saved: {}. The conversation goes on and is saved later",
                                   stored.error().message()));
  }
  storing_error_ = stored.error();
}

Status Session::stored() const {
  if (!storing_error_) return {};
  const auto& kept = log_->conversation().messages();
  const auto& all = conversation_.messages();
  const std::size_t both = std::min(kept.size(), all.size());
  const auto end = kept.begin() + static_cast<std::ptrdiff_t>(both);
  const auto common = static_cast<std::size_t>(std::mismatch(kept.begin(), end, all.begin()).first - kept.begin());
  return Error(ErrorCode::kWrite,
               fmt::format("the last {} messages are not saved: {}", all.size() - common, storing_error_->message()),
               "Free some space");
}

Result<TurnResult> Session::say(std::string text, const TurnOptions& options, const TurnEvents& events) {
  const Stopwatch since_submission;  // a person waits for the background work to end, and for the disk
  end_idle();
  idle_done_ = false;
  conversation_.add_user(std::move(text));
  store();
  return reply(options, events, since_submission, /*new_message=*/true);
}

Result<TurnResult> Session::answer_again(const TurnOptions& options, const TurnEvents& events) {
  const Stopwatch since_submission;
  end_idle();
  const bool unanswered = !conversation_.empty() && conversation_.messages().back().role == Role::kUser;
  Conversation before = conversation_;
  if (!conversation_.drop_last_reply() && !unanswered) {
    return Error(ErrorCode::kUsage, "there is nothing to answer again", "Say something first");
  }
  Result<TurnResult> turn = reply(options, events, since_submission, /*new_message=*/false);
  if (!turn.ok() || (turn->stats.stop_reason == StopReason::kCancelled && turn->answer.empty())) {
    conversation_ = std::move(before);  // the answer that was there stays; the log never heard of it
  } else {
    store();
  }
  return turn;
}

// The messages that fit, and the prompt that they make.
Result<Window> Session::window(const TurnOptions& options, std::optional<RenderedPrompt>& prompt) const {
  const auto length = [&](const Conversation& conversation) -> Result<std::size_t> {
    KAZEIA_ASSIGN(prompt, responder_->prompt(conversation, options));
    return prompt->tokens.size();
  };
  const std::size_t room = answer_room(*timeline_, options);
  if (window_may_grow_) {
    KAZEIA_ASSIGN(const std::size_t everything, length(conversation_));
    if (everything + room <= timeline_->capacity_tokens()) return Window{0, everything};
  }
  return fit_window(conversation_, left_out_, timeline_->capacity_tokens(), room, length);
}

Result<TurnResult> Session::reply(const TurnOptions& options, const TurnEvents& events,
                                  const Stopwatch& since_submission, bool new_message) {
  took_back_ = false;
  const std::size_t left_out_before = left_out_;
  Result<TurnResult> turn = [&]() -> Result<TurnResult> {
    std::optional<RenderedPrompt> prompt;
    KAZEIA_ASSIGN(const Window fits, window(options, prompt));
    left_out_ = fits.left_out;
    const double before_ms = since_submission.elapsed_ms();
    Result<TurnResult> answer = responder_->answer(*timeline_, *prompt, options, events);
    if (answer.ok()) {
      answer->stats.render_ms = before_ms;
      if (answer->stats.ttft_ms > 0) answer->stats.ttft_ms += before_ms;
    }
    return answer;
  }();
  for (std::string& remark : cache_.take_remarks()) remarks_.push_back(std::move(remark));
  const bool stopped = turn.ok() && turn->stats.stop_reason == StopReason::kCancelled;
  if (!turn.ok() || (stopped && turn->answer.empty())) {
    left_out_ = left_out_before;
    if (!new_message) return turn;
    conversation_.drop_last_exchange();
    took_back_ = true;
    store();
    return turn;
  }
  window_may_grow_ = false;
  if (left_out_ > left_out_before) {
    remarks_.push_back(fmt::format(
        "the context of {} tokens is full: the model no longer sees the oldest {} messages (they stay in the "
        "conversation)",
        timeline_->capacity_tokens(), left_out_));
  }
  conversation_.add(turn->message());
  if (new_message) store();
  return turn;
}

void Session::replace(Conversation conversation) {
  end_idle();
  conversation_ = std::move(conversation);
  left_out_ = 0;
  store();
}

void Session::set_system(std::string content) {
  end_idle();
  Conversation changed = conversation_;
  changed.set_system(std::move(content));
  if (changed == conversation_) return;
  conversation_ = std::move(changed);
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
  try {
    // A template may refuse such a conversation (two messages of the user in a row); what is there is saved all the
    // same.
    if (const Result<Tokens> text = next_prefix(options); text.ok()) {
      if (text->size() + answer_room(*timeline_, options) <= timeline_->capacity_tokens()) {
        const Status prepared = cache_.prepare(*timeline_, *text, cancel, progress);
        timeline_->rest();
        if (!prepared.ok()) return prepared;
      }
    }
    return cache_.save(*timeline_, cancel);
  } catch (const std::exception& exception) {
    return Error(ErrorCode::kEngine, fmt::format("the background work failed: {}", exception.what()));
  }
}

void Session::begin_idle(const TurnOptions& options) {
  if (!options_.idle_work || idle_.joinable()) return;
  stop_idle_.clear();
  idle_done_ = false;
  try {
    idle_ = std::thread([this, options] {
      const Status done = work_ahead(options, stop_idle_, {});
      idle_done_ = done.ok();
      if (!done.ok() && done.error().code() == ErrorCode::kWrite && !saving_fails_) {
        saving_fails_ = true;
        remarks_.push_back(
            fmt::format("the state is not saved: {}. A restart reads the conversation again", done.error().message()));
      }
    });
  } catch (const std::exception&) {
    // No thread to be had: the next turn reads it.
  }
}

void Session::end_idle() {
  stop_idle_.request();
  if (idle_.joinable()) idle_.join();
}

Status Session::finish(const TurnOptions& options, const CancelFlag& cancel, const Timeline::Progress& progress) {
  end_idle();
  if (storing_error_) store();
  idle_done_ = false;
  KAZEIA_TRY(work_ahead(options, cancel, progress));
  KAZEIA_TRY(cache_.flush(&cancel));
  idle_done_ = true;
  return {};
}

SessionCounts Session::counts() {
  end_idle();
  SessionCounts counts;
  counts.idle_done = idle_done_;
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
