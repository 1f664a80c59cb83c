// Splits a reply, while it streams, into what the model thinks, what it says and the tool calls it makes.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace kazeia {

enum class ReplyPart {
  kThinking,  // between the thinking markers
  kAnswer,    // for the reader
  kToolCall,  // from the first tool marker on, markers included: for a parser
};

// The markers of one model's replies, as its chat template defines them (chat/template.h).
struct ReplyMarkers {
  std::string thinking_start;              // "<think>"; empty = the model does not think
  std::vector<std::string> thinking_ends;  // "</think>"
  bool thinking_open = false;              // the prompt has already opened the thought
  std::vector<std::string> tool_starts;    // "<tool_call>"; empty = no tools
};

// A thought can only be the first thing in a reply. White space around a thought belongs to the markers and is
// dropped; an answer without a thought is passed through byte for byte. Text is delivered as soon as it cannot be
// the beginning of a marker any more.
class ReplySplitter {
 public:
  using Sink = std::function<void(ReplyPart part, std::string_view text)>;  // never called with empty text

  explicit ReplySplitter(ReplyMarkers markers, Sink sink = {});

  void push(std::string_view text);
  // The reply is over: what was held back is delivered. A thought that was never closed stays a thought.
  void finish();

  const std::string& thinking() const { return thinking_; }
  const std::string& answer() const { return answer_; }
  const std::string& tool_text() const { return tool_text_; }

 private:
  enum class State { kStart, kThinking, kAfterThinking, kAnswer, kToolCall };

  bool step(bool last);  // false = needs more text
  bool step_start(bool last);
  bool step_thinking(bool last);
  bool step_answer(bool last);
  void emit(ReplyPart part, std::string_view text);
  bool is_tool_start(const std::string& marker) const;

  ReplyMarkers markers_;
  Sink sink_;
  State state_;
  std::string pending_;  // not delivered yet
  std::string thinking_;
  std::string answer_;
  std::string tool_text_;
};

}  // namespace kazeia
