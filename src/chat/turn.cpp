#include "chat/turn.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"

namespace kazeia {
namespace {

Error too_long(std::size_t prompt_tokens, const Timeline& timeline) {
  return Error(ErrorCode::kTooLarge,
               fmt::format("the prompt has {} tokens, and the context of {} must hold it and an answer", prompt_tokens,
                           timeline.capacity_tokens()),
               "Use a larger --context, or a shorter prompt or conversation");
}

bool is_constrained(const SamplingOptions& sampling) {
  return !sampling.grammar.empty() || !sampling.json_schema.empty();
}

// Reads the prompt, generates, splits. `prompt.tokens` is not empty.
Result<TurnResult> respond(const std::shared_ptr<const Model>& model, const PromptReader& reader, Timeline& timeline,
                           const RenderedPrompt& prompt, const TurnOptions& options, const TurnEvents& events,
                           const Stopwatch& since_submission) {
  TurnResult result;
  TurnStats& stats = result.stats;
  stats.prompt_tokens = prompt.tokens.size();
  stats.render_ms = since_submission.elapsed_ms();
  if (stats.prompt_tokens >= timeline.capacity_tokens()) return too_long(stats.prompt_tokens, timeline);
  KAZEIA_ASSIGN(const std::unique_ptr<Sampler> sampler, Sampler::create(model, options.sampling));

  const Stopwatch prefill_time;
  const Status read =
      reader(timeline, {prompt.tokens, prompt.message_starts, events.on_prefill, options.cancel}, stats.reused_tokens);
  stats.prefill_ms = prefill_time.elapsed_ms();
  if (!read.ok()) {
    if (read.error().code() != ErrorCode::kCancelled) return read.error();
    stats.stop_reason = StopReason::kCancelled;
    return result;
  }
  const std::size_t fresh = stats.prompt_tokens - stats.reused_tokens;
  if (stats.prefill_ms > 0) stats.prefill_tps = 1000.0 * static_cast<double>(fresh) / stats.prefill_ms;

  GenerationOptions generation;
  generation.max_tokens = options.max_tokens;
  generation.stop_strings = options.stop_strings;
  generation.stop_strings.insert(generation.stop_strings.end(), prompt.stop_strings.begin(), prompt.stop_strings.end());
  generation.cancel = options.cancel;
  if (is_constrained(options.sampling) && prompt.markers.thinking_open) {
    generation.constrain_after = prompt.markers.thinking_ends.front();
  }

  ReplySplitter splitter(prompt.markers, events.on_text);
  const double before_generation_ms = since_submission.elapsed_ms();
  KAZEIA_ASSIGN(const GenerationResult generated,
                generate(timeline, *sampler, generation, [&](std::string_view text) { splitter.push(text); }));
  splitter.finish();
  timeline.rest();

  stats.generated_tokens = generated.tokens.size();
  if (stats.generated_tokens > 0) stats.ttft_ms = before_generation_ms + generated.first_token_ms;
  stats.decode_ms = generated.decode_ms;
  stats.decode_tps = generated.decode_tps();
  stats.stop_reason = generated.reason;
  result.thinking = splitter.thinking();
  result.answer = splitter.answer();
  if (prompt.parser != nullptr && !splitter.tool_text().empty()) {
    const Result<ParsedReply> parsed = prompt.parser->parse(generated.text);
    if (parsed.ok() && !parsed->tool_calls.empty()) {
      result.tool_calls = parsed->tool_calls;
    } else {
      // Not a call after all: the reader gets to see what the model wrote.
      if (events.on_text) events.on_text(ReplyPart::kAnswer, splitter.tool_text());
      result.answer += splitter.tool_text();
    }
  }
  return result;
}

}  // namespace

Message TurnResult::message() const {
  Message message;
  message.role = Role::kAssistant;
  message.content = answer;
  message.thinking = thinking;
  message.tool_calls = tool_calls;
  return message;
}

struct Responder::State {
  std::shared_ptr<const Model> model;
  PromptReader reader;
  Result<std::unique_ptr<ChatTemplate>> chat_template;
};

Responder::Responder(std::unique_ptr<State> state) : state_(std::move(state)) {}
Responder::~Responder() = default;

std::unique_ptr<Responder> Responder::create(std::shared_ptr<const Model> model, PromptReader reader) {
  Result<std::unique_ptr<ChatTemplate>> chat_template = ChatTemplate::create(model);
  return std::unique_ptr<Responder>(
      new Responder(std::make_unique<State>(State{std::move(model), std::move(reader), std::move(chat_template)})));
}

Status Responder::can_chat() const {
  if (!state_->chat_template.ok()) return state_->chat_template.error();
  return {};
}

Result<RenderedPrompt> Responder::prompt(const Conversation& conversation, const TurnOptions& options) const {
  KAZEIA_TRY(can_chat());
  KAZEIA_TRY(validate(options.sampling));
  const bool constrained = is_constrained(options.sampling);
  if (constrained && !options.tools.empty()) {
    return Error(ErrorCode::kUsage, "a grammar or schema and tools exclude each other", "Use one of the two");
  }
  KAZEIA_ASSIGN(RenderedPrompt prompt, (*state_->chat_template)
                                           ->render(conversation, {.thinking = options.thinking,
                                                                   .tools = options.tools,
                                                                   .add_generation_prompt = true,
                                                                   .open_thinking = constrained}));
  if (prompt.tokens.empty()) {
    return Error(ErrorCode::kUnsupported, "the chat template rendered an empty prompt",
                 "Use `kazeia run --raw` to send text as it is");
  }
  return prompt;
}

Result<TurnResult> Responder::answer(Timeline& timeline, const Conversation& conversation, const TurnOptions& options,
                                     const TurnEvents& events) const {
  const Stopwatch since_submission;
  KAZEIA_ASSIGN(const RenderedPrompt rendered, prompt(conversation, options));
  return respond(state_->model, state_->reader, timeline, rendered, options, events, since_submission);
}

Result<TurnResult> Responder::answer(Timeline& timeline, const RenderedPrompt& rendered, const TurnOptions& options,
                                     const TurnEvents& events) const {
  return respond(state_->model, state_->reader, timeline, rendered, options, events, Stopwatch());
}

Result<TurnResult> Responder::complete(Timeline& timeline, std::string_view text, const TurnOptions& options,
                                       const TurnEvents& events) const {
  const Stopwatch since_submission;
  KAZEIA_TRY(validate(options.sampling));
  RenderedPrompt prompt;
  KAZEIA_ASSIGN(prompt.tokens, state_->model->tokenize(text, /*add_special=*/true, /*parse_special=*/true));
  if (prompt.tokens.empty()) return Error(ErrorCode::kUsage, "the prompt is empty", "Give some text");
  return respond(state_->model, state_->reader, timeline, prompt, options, events, since_submission);
}

}  // namespace kazeia
