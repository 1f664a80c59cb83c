// A conversation that goes on: its messages, the state they were read into, and what is done for it while nobody waits.
//
// Between two turns, begin_idle() brings the state to what the next prompt will begin with (the answer without its
// thought), keeps a checkpoint there and writes both to the session's folder, on a thread of its own. end_idle() ends
// that: reading within a part of a 64-token piece, writing within a megabyte, and copying a state when it is done;
// every other function does it first. What is read ahead is what would be read anyway, in other pieces: answers are the
// same but for what the width of pieces does to their last bits (docs/decisions/0009, 0018).
//
// With a folder, messages are on the disk before a turn goes on and before it ends. A disk that cannot be written does
// not end the conversation: remarks() says so, and the next change tries again.
//
// Threads: one at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/result.h"
#include "chat/turn.h"
#include "engine/timeline.h"
#include "session/message_log.h"
#include "session/prefix_cache.h"
#include "session/window.h"

namespace kazeia {

struct SessionOptions {
  PrefixCacheOptions cache;
  // Of session/directory.h. Empty: nothing is kept on disk.
  std::string folder;
  // Where the model's hash is remembered; needed with a folder.
  std::string memo_folder;
  std::string engine_version;
  bool idle_work = true;
};

struct SessionCounts {
  PrefixCacheCounts cache;
  std::size_t messages = 0;
  std::size_t messages_left_out = 0;
  bool idle_done = false;  // everything that can be done ahead is done
};

class Session {
 public:
  // `timeline` may already hold something. Errors: kUsage (open elsewhere), kFile (messages of a newer version),
  // kWrite, and those of the model's hash. A state that cannot be used is a remark.
  static Result<std::unique_ptr<Session>> open(std::shared_ptr<const Model> model, std::unique_ptr<Timeline> timeline,
                                               const SessionOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Status can_chat() const { return responder_->can_chat(); }
  const Conversation& conversation() const { return conversation_; }
  const Timeline& timeline() const { return *timeline_; }

  // The user's next message and its answer. An error, or a cancel before the answer began, takes the message back.
  Result<TurnResult> say(std::string text, const TurnOptions& options, const TurnEvents& events = {});
  // Answers the last user message again, or for the first time. kUsage if there is none.
  Result<TurnResult> answer_again(const TurnOptions& options, const TurnEvents& events = {});
  // The conversation becomes this one.
  void replace(Conversation conversation);
  // Adds, replaces or (empty text) removes the system message; the rest stays.
  void set_system(std::string content);
  // kWrite if the last messages are not on the disk, with their number. Ok without a folder.
  Status stored() const;
  // Whether the last turn took its message back.
  bool took_back() const { return took_back_; }

  // `options`: as the next turn will have them.
  void begin_idle(const TurnOptions& options);
  void end_idle();
  // Does now what would be done while idle, and waits until it is on the disk. kCancelled, kWrite.
  Status finish(const TurnOptions& options, const CancelFlag& cancel, const Timeline::Progress& progress = {});

  SessionCounts counts();
  // What a person should know, since the last call, one sentence each.
  std::vector<std::string> take_remarks();

 private:
  Session(std::shared_ptr<const Model> model, std::unique_ptr<Timeline> timeline, const SessionOptions& options);
  Status attach();
  Result<TurnResult> reply(const TurnOptions& options, const TurnEvents& events, const Stopwatch& since_submission,
                           bool new_message);
  Result<Window> window(const TurnOptions& options, std::optional<RenderedPrompt>& prompt) const;
  void store();
  Status work_ahead(const TurnOptions& options, const CancelFlag& cancel, const Timeline::Progress& progress);
  Result<Tokens> next_prefix(const TurnOptions& options) const;

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Timeline> timeline_;
  SessionOptions options_;
  std::optional<MessageLog> log_;  // holds the session's lock: outlives the files that the cache still writes
  PrefixCache cache_;
  std::unique_ptr<Responder> responder_;
  Conversation conversation_;
  std::size_t left_out_ = 0;
  bool window_may_grow_ = false;  // this context may be larger than the one that left messages out
  bool took_back_ = false;
  std::optional<Error> storing_error_;
  bool saving_fails_ = false;
  std::vector<std::string> remarks_;
  CancelFlag stop_idle_;
  std::thread idle_;
  std::atomic<bool> idle_done_ = false;
};

}  // namespace kazeia
