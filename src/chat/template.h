// From a conversation to the prompt text and tokens that a model was trained on, by the template in its file.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/conversation.h"
#include "chat/thinking.h"
#include "chat/tool_calls.h"
#include "engine/model.h"

namespace kazeia {

struct RenderOptions {
  bool thinking = true;  // off: asks the template for an answer without a thought; ignored by models without one
  std::span<const ToolDefinition> tools;
  bool add_generation_prompt = true;  // ends with the opening of an assistant message
  // Leave opening a thought not to the model but to the prompt, if the template does neither open nor close one:
  // a grammar that starts behind the thought needs to know that there is one.
  bool open_thinking = false;
};

struct RenderedPrompt {
  std::string text;
  Tokens tokens;                              // no marker in a message has become a control token (chat/control_text.h)
  std::vector<std::size_t> message_starts;    // positions in `tokens` where a message of the user or the assistant
                                              // begins, ascending; empty if the template has no control tokens there
  ReplyMarkers markers;                       // how the reply is to be split
  std::vector<std::string> stop_strings;      // besides the model's end tokens
  std::shared_ptr<const ReplyParser> parser;  // null without tools
  std::string tool_grammar;                   // GBNF of the tool calls; empty without tools or if the format has none
};

// Immutable; threads may share it.
class ChatTemplate {
 public:
  // Parses and probes the template, which takes milliseconds: once per model. kUnsupported if the file has none, or
  // one that upstream's engine cannot parse. `jinja_source`: used instead of the file's own, unless empty.
  static Result<std::unique_ptr<ChatTemplate>> create(std::shared_ptr<const Model> model,
                                                      const std::string& jinja_source = {});
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  // kUsage for an empty conversation; kUnsupported if the template refuses it (its own words are in the message).
  Result<RenderedPrompt> render(const Conversation& conversation, const RenderOptions& options) const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kazeia
