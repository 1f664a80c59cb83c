// One turn of a conversation: prompt, prefill, reply. Both verbs of the command line, and everything else that
// answers, goes through here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "chat/conversation.h"
#include "chat/prefix.h"
#include "chat/template.h"
#include "chat/thinking.h"
#include "chat/tool_calls.h"
#include "engine/generation.h"
#include "engine/sampling.h"
#include "engine/timeline.h"

namespace kazeia {

struct TurnOptions {
  bool thinking = true;
  std::vector<ToolDefinition> tools;
  SamplingOptions sampling;
  std::int64_t max_tokens = -1;  // -1 = until the context is full
  std::vector<std::string> stop_strings;
  const CancelFlag* cancel = nullptr;  // ends prefill and generation; the turn then succeeds with kCancelled
};

// Called on the calling thread; any may be empty.
struct TurnEvents {
  Timeline::Progress on_prefill;  // tokens that had to be read, not the reused ones
  ReplySplitter::Sink on_text;    // streamed parts
};

struct TurnStats {
  std::size_t prompt_tokens = 0;     // the whole prompt
  std::size_t reused_tokens = 0;     // of these, already in the timeline
  std::size_t generated_tokens = 0;  // the end token included
  double render_ms = 0;              // template and tokeniser; whatever came before the prompt was read
  double prefill_ms = 0;
  double ttft_ms = 0;  // from the call to the first generated token; 0 if there was none
  double decode_ms = 0;
  double prefill_tps = 0;  // tokens that had to be read per second
  double decode_tps = 0;   // after the first token; 0 below two tokens
  StopReason stop_reason = StopReason::kEndOfText;
};

struct TurnResult {
  std::string answer;  // without thinking and tool calls
  std::string thinking;
  std::vector<ToolCall> tool_calls;
  TurnStats stats;

  Message message() const;  // as it belongs into the conversation
};

// Immutable, bound to a model; timelines are the caller's and may be used in any order.
class Responder {
 public:
  static std::unique_ptr<Responder> create(std::shared_ptr<const Model> model,
                                           PromptReader reader = read_behind_longest_prefix);
  ~Responder();
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  // kUnsupported if the model has no usable chat template; only complete() works then.
  Status can_chat() const;

  // The assistant's next message; `timeline` belongs to the same model. The conversation is not changed.
  // Errors: kUsage (options), kUnsupported (template), kTooLarge (prompt longer than the context; the timeline is
  // unchanged), kEngine (timeline poisoned; the next turn resets it).
  Result<TurnResult> answer(Timeline& timeline, const Conversation& conversation, const TurnOptions& options,
                            const TurnEvents& events = {}) const;

  // The prompt that answer() would read. Errors: as answer() before it touches the timeline.
  Result<RenderedPrompt> prompt(const Conversation& conversation, const TurnOptions& options) const;
  // answer() for a prompt of prompt(), made with the same options.
  Result<TurnResult> answer(Timeline& timeline, const RenderedPrompt& prompt, const TurnOptions& options,
                            const TurnEvents& events = {}) const;

  // Continues text as it is, without a template. Control tokens spelled in it are control tokens. All that is
  // generated is the answer; `thinking` and `tools` are not used. Errors as answer(); kUsage for empty text.
  Result<TurnResult> complete(Timeline& timeline, std::string_view text, const TurnOptions& options,
                              const TurnEvents& events = {}) const;

 private:
  struct State;
  explicit Responder(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kazeia
