// `kazeia chat`: a conversation in the terminal, or line by line through a pipe.

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/machine.h"
#include "base/units.h"
#include "chat/turn.h"
#include "options.h"
#include "reply_printer.h"
#include "terminal.h"
#include "verbs.h"

namespace kazeia::cli {
namespace {

constexpr std::string_view kHelp =
    "  /help        this list\n"
    "  /reset       forget the conversation (the system message stays)\n"
    "  /regen       answer the last message again, with another seed\n"
    "  /save FILE   write the conversation to a file\n"
    "  /load FILE   replace the conversation with a saved one\n"
    "  /stats       what the last answer took, how full the context is\n"
    "  /quit        leave (so do Ctrl-D, and Ctrl-C twice)\n"
    "A line that ends with \\ continues on the next one. A message that begins with / is written with //.\n"
    "Ctrl-C stops an answer and keeps the conversation.\n";

struct ChatArguments {
  ModelFlags model;
  SamplingOptions sampling;
  std::string system;
  std::int64_t max_tokens = -1;
  bool no_think = false;
};

class Chat {
 public:
  Chat(const ChatArguments& arguments, LoadedModel loaded, CancelFlag& cancel)
      : loaded_(std::move(loaded)),
        cancel_(cancel),
        responder_(Responder::create(loaded_.model)),
        interactive_(is_terminal(STDIN_FILENO) && is_terminal(STDOUT_FILENO)) {
    options_.sampling = arguments.sampling;
    options_.thinking = !arguments.no_think;
    options_.max_tokens = arguments.max_tokens;
    options_.cancel = &cancel_;
    conversation_.set_system(valid_utf8(arguments.system));
  }

  Status talk();
  NpuUse npu_use() const { return loaded_.timeline->npu_use(); }

 private:
  enum class Next { kContinue, kQuit };

  // A message, with its continuation lines; nullopt at the end of the input or when the user wants to leave.
  std::optional<std::string> read_message();
  Result<Next> handle(const std::string& message);
  Result<Next> command(std::string_view line);
  Status say(std::string text);
  Status regenerate();
  Status reply();
  void load(const std::string& path);
  void save(const std::string& path);
  void show_stats() const;
  void note(std::string_view text) const;
  void report(const Error& error);

  LoadedModel loaded_;
  CancelFlag& cancel_;
  std::unique_ptr<Responder> responder_;
  bool interactive_;
  TurnOptions options_;
  Conversation conversation_;
  std::optional<TurnStats> last_;
  std::optional<Error> first_error_;
  bool left_by_interrupt_ = false;
  LineReader lines_;
  Output output_;
};

void Chat::note(std::string_view text) const {
  fmt::print(stderr, "{}\n", text);
}

void Chat::report(const Error& error) {
  fmt::print(stderr, "kazeia: {}\n", error.sentence());
  if (!first_error_) first_error_ = error;
}

Status Chat::talk() {
  KAZEIA_TRY(responder_->can_chat());
  KAZEIA_TRY(validate(options_.sampling));
  if (interactive_) {
    note(fmt::format("{} loaded in {}, {} tokens of context. /help lists the commands.", loaded_.model->architecture(),
                     format_duration(loaded_.load_ms), loaded_.timeline->capacity_tokens()));
  }
  while (const std::optional<std::string> message = read_message()) {
    KAZEIA_ASSIGN(const Next next, handle(*message));
    if (next == Next::kQuit) break;
  }
  if (left_by_interrupt_) return Error(ErrorCode::kCancelled, "stopped by the user");
  // A person has seen the errors; a script looks at the exit code.
  if (!interactive_ && first_error_) {
    return Error(first_error_->code(), "not every message was answered", "The errors are above");
  }
  return {};
}

std::optional<std::string> Chat::read_message() {
  std::string message;
  bool warned = false;
  bool continued = false;
  for (;;) {
    if (interactive_ && !output_.write(continued ? "... " : "> ").ok()) return std::nullopt;
    std::string line;
    switch (lines_.read(line, cancel_)) {
      case LineReader::Outcome::kLine:
        break;
      case LineReader::Outcome::kEnd:
        if (interactive_) note("");
        if (message.empty()) return std::nullopt;
        return message;
      case LineReader::Outcome::kInterrupted:
        cancel_.clear();
        if (warned || !interactive_) {
          if (interactive_) note("");
          left_by_interrupt_ = true;
          return std::nullopt;
        }
        note("\n(Ctrl-C again leaves; so does /quit)");
        warned = true;
        continued = false;
        message.clear();
        continue;
    }
    warned = false;
    if (!line.empty() && line.back() == '\\') {
      message += line.substr(0, line.size() - 1) + "\n";
      continued = true;
      continue;
    }
    message += line;
    if (message.find_first_not_of(" \t\n") == std::string::npos) {
      message.clear();
      continued = false;
      continue;
    }
    return valid_utf8(message);
  }
}

Result<Chat::Next> Chat::handle(const std::string& message) {
  if (message.starts_with("//")) {
    KAZEIA_TRY(say(message.substr(1)));
    return Next::kContinue;
  }
  if (message.starts_with('/')) return command(message);
  KAZEIA_TRY(say(message));
  return Next::kContinue;
}

Result<Chat::Next> Chat::command(std::string_view line) {
  const std::size_t space = line.find_first_of(" \t");
  const std::string_view name = line.substr(0, space);
  std::string argument;
  if (space != std::string_view::npos) {
    const std::size_t begin = line.find_first_not_of(" \t", space);
    const std::size_t end = line.find_last_not_of(" \t");
    if (begin != std::string_view::npos) argument = line.substr(begin, end - begin + 1);
  }
  if (name == "/quit" || name == "/exit") return Next::kQuit;
  if (name == "/help") {
    note(kHelp.substr(0, kHelp.size() - 1));
  } else if (name == "/reset") {
    conversation_.clear();
    last_.reset();
    note("The conversation is forgotten.");
  } else if (name == "/regen") {
    KAZEIA_TRY(regenerate());
  } else if (name == "/save") {
    save(argument);
  } else if (name == "/load") {
    load(argument);
  } else if (name == "/stats") {
    show_stats();
  } else {
    report(Error(ErrorCode::kUsage, fmt::format("there is no command {}", without_control_characters(name)),
                 "/help lists them; a message that begins with / is written with //"));
  }
  return Next::kContinue;
}

Status Chat::say(std::string text) {
  conversation_.add_user(std::move(text));
  return reply();
}

Status Chat::regenerate() {
  const bool unanswered = !conversation_.empty() && conversation_.messages().back().role == Role::kUser;
  if (!conversation_.drop_last_reply() && !unanswered) {
    report(Error(ErrorCode::kUsage, "there is nothing to answer again", "Say something first"));
    return {};
  }
  ++options_.sampling.seed;
  return reply();
}

// Answers the last message. What goes wrong with one answer is reported and the message taken back, so that the
// conversation stays one that can go on; only a stdout that cannot be written ends it.
Status Chat::reply() {
  ReplyPrinter printer(output_, cancel_);
  Result<TurnResult> turn = [&] {
    ProgressBar bar("reading");
    const TurnEvents events = show_on(bar, printer);
    return responder_->answer(*loaded_.timeline, conversation_, options_, events);
  }();
  KAZEIA_TRY(printer.finish());
  if (!turn.ok()) {
    conversation_.drop_last_exchange();
    report(turn.error());
    return {};
  }
  last_ = turn->stats;
  const bool stopped = turn->stats.stop_reason == StopReason::kCancelled;
  if (stopped && turn->answer.empty()) {
    conversation_.drop_last_exchange();
    note("(stopped before the answer began; the message is taken back)");
  } else {
    conversation_.add(turn->message());
    if (stopped) note("(stopped)");
    if (turn->stats.stop_reason == StopReason::kContextFull)
      note("(the context is full: /reset, or a larger --context)");
    if (turn->stats.stop_reason == StopReason::kMaxTokens) note("(stopped at --max-tokens)");
  }
  if (stopped && !interactive_) {
    // Nobody is at the keyboard to go on: an interrupt ends the program.
    return Error(ErrorCode::kCancelled, "stopped by the user");
  }
  cancel_.clear();
  return {};
}

void Chat::save(const std::string& path) {
  if (path.empty()) return report(Error(ErrorCode::kUsage, "/save needs a file name", "/save talk.json"));
  const Status saved = save_conversation(conversation_, path);
  if (!saved.ok()) return report(saved.error());
  note(fmt::format("{} messages saved to {}", conversation_.messages().size(), path));
}

void Chat::load(const std::string& path) {
  if (path.empty()) return report(Error(ErrorCode::kUsage, "/load needs a file name", "/load talk.json"));
  Result<Conversation> loaded = load_conversation(path);
  if (!loaded.ok()) return report(loaded.error());
  conversation_ = std::move(loaded).value();
  last_.reset();
  note(fmt::format("{} messages loaded from {}", conversation_.messages().size(), path));
}

void Chat::show_stats() const {
  const Timeline& timeline = *loaded_.timeline;
  note(fmt::format("messages     {}", conversation_.messages().size()));
  note(fmt::format("context      {} of {} tokens", timeline.token_count(), timeline.capacity_tokens()));
  if (last_) {
    note(fmt::format("prompt       {} tokens, {} of them reused", last_->prompt_tokens, last_->reused_tokens));
    note(fmt::format("first token  {}", format_duration(last_->ttft_ms)));
    note(fmt::format("prefill      {:.1f} tokens/s", last_->prefill_tps));
    note(fmt::format("decode       {:.1f} tokens/s ({} tokens)", last_->decode_tps, last_->generated_tokens));
  }
  note(fmt::format("threads      {}", timeline.decode_threads()));
  if (loaded_.routed.used != Route::kCpu) note("NPU          " + npu_sentence(timeline.npu_use()));
  note(fmt::format("peak memory  {}", format_bytes(read_process_memory().peak_rss_bytes)));
}

Status chat(const ChatArguments& arguments) {
  KAZEIA_TRY(validate(arguments.sampling));
  // While the model loads, a second Ctrl-C may end the process; later it would lose the conversation.
  CancelFlag& cancel = catch_interrupts(SecondInterrupt::kEndsProcess);
  KAZEIA_ASSIGN(LoadedModel loaded, load_model(arguments.model, cancel, /*quiet=*/false));
  catch_interrupts(SecondInterrupt::kIgnored);
  const RoutedModel routed = loaded.routed;
  Chat session(arguments, std::move(loaded), cancel);
  Status status = session.talk();
  remember_run(routed, session.npu_use(), arguments.model.route);
  return status;
}

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ChatArguments>();
  CLI::App* verb = app.add_subcommand("chat", "Talk with a model in the terminal");
  verb->description(
      "A conversation in the terminal; /help lists its commands. Through a pipe, every line of stdin is a message or "
      "a\n"
      "command and the answers go to stdout; the exit code is then that of the first error.");
  add_model_flags(*verb, arguments->model);
  verb->add_option("--system", arguments->system, "A system message at the start");
  verb->add_option("--max-tokens", arguments->max_tokens, "Most tokens of one answer; -1 = until the context is full")
      ->check(CLI::Range(std::int64_t{-1}, std::int64_t{1} << 31))
      ->capture_default_str();
  add_sampling_flags(*verb, arguments->sampling);
  verb->add_flag("--no-think", arguments->no_think, "Answer without thinking first (models that can choose)");
  verb->callback([arguments, &action] { action = [arguments] { return chat(*arguments); }; });
}

}  // namespace kazeia::cli
