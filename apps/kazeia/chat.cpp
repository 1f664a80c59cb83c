// `kazeia chat`: a conversation in the terminal, or line by line through a pipe.

#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/machine.h"
#include "base/units.h"
#include "chat/turn.h"
#include "chat_report.h"
#include "options.h"
#include "reply_printer.h"
#include "session/directory.h"
#include "session/session.h"
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
  bool json = false;
  std::string session;  // empty: nothing is kept on disk
  std::string sessions_directory;
  bool half_checkpoints = false;
  bool no_read_ahead = false;
};

// "12 messages; the last one: What is the capital of ..."
std::string recap(const Conversation& conversation) {
  constexpr std::size_t kWidth = 60;
  std::string last;
  for (const Message& message : conversation.messages()) {
    if (message.role == Role::kUser) last = message.content;
  }
  last = without_control_characters(last.substr(0, last.find('\n')));
  if (last.size() > kWidth) last = valid_utf8(last.substr(0, kWidth)) + "...";
  return fmt::format("{} messages{}{}", conversation.messages().size(),
                     last.empty() ? "" : "; the last one from you: ", last);
}

class Chat {
 public:
  Chat(const ChatArguments& arguments, LoadedModel& loaded, std::unique_ptr<Session> session, CancelFlag& cancel)
      : arguments_(arguments),
        loaded_(loaded),
        cancel_(cancel),
        session_(std::move(session)),
        interactive_(is_terminal(STDIN_FILENO) && is_terminal(STDOUT_FILENO)) {
    options_.sampling = arguments.sampling;
    options_.thinking = !arguments.no_think;
    options_.max_tokens = arguments.max_tokens;
    options_.cancel = &cancel_;
  }

  Status talk();

 private:
  enum class Next { kContinue, kQuit };
  using Ask = std::function<Result<TurnResult>(const TurnEvents& events)>;

  void greet();
  // A message, with its continuation lines; nullopt at the end of the input or when the user wants to leave.
  std::optional<std::string> read_message();
  Result<Next> handle(const std::string& message);
  Result<Next> command(std::string_view line);
  Status say(const std::string& text);
  Status regenerate();
  Status reply(const Ask& ask);
  Status write_json(const std::string& line);
  void load(const std::string& path);
  void save(const std::string& path);
  Status show_stats();
  Status finish();
  void show_remarks();
  void note(std::string_view text) const;
  void report(const Error& error);

  const ChatArguments& arguments_;
  const LoadedModel& loaded_;
  CancelFlag& cancel_;
  std::unique_ptr<Session> session_;
  bool interactive_;
  TurnOptions options_;
  std::optional<TurnStats> last_;
  std::optional<Error> first_error_;
  bool left_by_interrupt_ = false;
  LineReader lines_;
  Output output_;
};

void Chat::note(std::string_view text) const {
  write_to_stderr(fmt::format("{}\n", text));
}

void Chat::report(const Error& error) {
  write_to_stderr(fmt::format("kazeia: {}\n", error.sentence()));
  if (!first_error_) first_error_ = error;
}

void Chat::show_remarks() {
  for (const std::string& remark : session_->take_remarks()) note(fmt::format("({})", remark));
}

void Chat::greet() {
  if (!arguments_.system.empty()) session_->set_system(valid_utf8(arguments_.system));
  show_remarks();
  const Conversation& conversation = session_->conversation();
  if (interactive_) {
    note(fmt::format("{} loaded in {}, {} tokens of context. /help lists the commands.", loaded_.model->architecture(),
                     format_duration(loaded_.load_ms), session_->timeline().capacity_tokens()));
    if (!conversation.empty() && !arguments_.session.empty()) {
      note(fmt::format("Session '{}' goes on: {}", arguments_.session, recap(conversation)));
    }
  }
  if (!conversation.empty() && conversation.messages().back().role == Role::kUser) {
    note("(the last message has no answer yet: /regen answers it)");
  }
}

Status Chat::talk() {
  KAZEIA_TRY(session_->can_chat());
  KAZEIA_TRY(validate(options_.sampling));
  greet();
  for (;;) {
    // Through a pipe the next line may come at any moment, and "same seed, same text" shall hold; a program that asks
    // for JSON is one that people sit in front of.
    if (interactive_ || arguments_.json) session_->begin_idle(options_);
    const std::optional<std::string> message = read_message();
    session_->end_idle();
    if (!message) break;
    KAZEIA_ASSIGN(const Next next, handle(*message));
    if (next == Next::kQuit) break;
  }
  if (left_by_interrupt_) return Error(ErrorCode::kCancelled, "stopped by the user");
  KAZEIA_TRY(finish());
  // A person has seen the errors; a script looks at the exit code.
  if (!interactive_ && first_error_) {
    return Error(first_error_->code(), "not every message was answered", "The errors are above");
  }
  return {};
}

// What was not done ahead for the next start.
Status Chat::finish() {
  if (arguments_.session.empty() || session_->conversation().empty()) return {};
  cancel_.clear();
  Status finished = [&] {
    ProgressBar bar("saving (Ctrl-C skips it)");
    return session_->finish(options_, cancel_, [&bar](std::size_t done, std::size_t total) {
      bar.update(static_cast<double>(done) / static_cast<double>(total));
    });
  }();
  show_remarks();
  if (!finished.ok() && finished.error().code() == ErrorCode::kCancelled) return session_->stored();
  KAZEIA_TRY(session_->stored());
  // Not an error: nothing is lost but time.
  if (!finished.ok())
    note(fmt::format("(the state is not saved: {}. The next start reads the messages again)",
                     finished.error().message()));
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
    Conversation cleared = session_->conversation();
    cleared.clear();
    session_->replace(std::move(cleared));
    last_.reset();
    note(arguments_.session.empty()
             ? "The conversation is forgotten."
             : fmt::format("The conversation begins anew. (Its file still holds what was said; `kazeia sessions rm {}` "
                           "removes it.)",
                           arguments_.session));
  } else if (name == "/regen") {
    KAZEIA_TRY(regenerate());
  } else if (name == "/save") {
    save(argument);
  } else if (name == "/load") {
    load(argument);
  } else if (name == "/stats") {
    KAZEIA_TRY(show_stats());
  } else {
    report(Error(ErrorCode::kUsage, fmt::format("there is no command {}", without_control_characters(name)),
                 "/help lists them; a message that begins with / is written with //"));
  }
  show_remarks();
  return Next::kContinue;
}

Status Chat::say(const std::string& text) {
  return reply([&](const TurnEvents& events) { return session_->say(text, options_, events); });
}

Status Chat::regenerate() {
  ++options_.sampling.seed;
  return reply([&](const TurnEvents& events) { return session_->answer_again(options_, events); });
}

Status Chat::write_json(const std::string& line) {
  return arguments_.json ? output_.write(line) : Status();
}

// What goes wrong with one answer is reported and the message taken back, so that the conversation stays one that can
// go on; only a stdout that cannot be written ends it.
Status Chat::reply(const Ask& ask) {
  ReplyPrinter printer(output_, cancel_);
  Result<TurnResult> turn = [&] {
    ProgressBar bar("reading");
    return ask(arguments_.json ? TurnEvents{} : show_on(bar, printer));
  }();
  KAZEIA_TRY(printer.finish());
  show_remarks();
  if (!turn.ok()) {
    report(turn.error());
    return write_json(error_json(turn.error()));
  }
  last_ = turn->stats;
  if (arguments_.json) KAZEIA_TRY(write_json(answer_json(*turn, session_->counts())));
  const bool stopped = turn->stats.stop_reason == StopReason::kCancelled;
  if (session_->took_back()) {
    note("(stopped before the answer began; the message is taken back)");
  } else if (stopped) {
    note("(stopped)");
  }
  if (turn->stats.stop_reason == StopReason::kContextFull) note("(the context is full: the answer ends here)");
  if (turn->stats.stop_reason == StopReason::kMaxTokens) note("(stopped at --max-tokens)");
  if (stopped && !interactive_) {
    // Nobody is at the keyboard to go on: an interrupt ends the program.
    return Error(ErrorCode::kCancelled, "stopped by the user");
  }
  cancel_.clear();
  return {};
}

void Chat::save(const std::string& path) {
  if (path.empty()) return report(Error(ErrorCode::kUsage, "/save needs a file name", "/save talk.json"));
  const Status saved = save_conversation(session_->conversation(), path);
  if (!saved.ok()) return report(saved.error());
  note(fmt::format("{} messages saved to {}", session_->conversation().messages().size(), path));
}

void Chat::load(const std::string& path) {
  if (path.empty()) return report(Error(ErrorCode::kUsage, "/load needs a file name", "/load talk.json"));
  Result<Conversation> loaded = load_conversation(path);
  if (!loaded.ok()) return report(loaded.error());
  session_->replace(std::move(loaded).value());
  last_.reset();
  note(fmt::format("{} messages loaded from {}", session_->conversation().messages().size(), path));
}

Status Chat::show_stats() {
  const SessionCounts counts = session_->counts();
  if (arguments_.json) return output_.write(stats_json(session_->timeline(), counts, *loaded_.settings));
  const bool npu = loaded_.routed.used != Route::kCpu;
  note(stats_text(session_->timeline(), counts, last_, *loaded_.settings,
                  npu ? std::optional(session_->timeline().npu_use()) : std::nullopt));
  return {};
}

Result<SessionOptions> session_options(const ChatArguments& arguments) {
  SessionOptions options;
  options.idle_work = !arguments.no_read_ahead;
  options.engine_version = KAZEIA_VERSION;
  if (arguments.session.empty()) return options;
  std::string root = arguments.sessions_directory;
  if (root.empty()) {
    KAZEIA_ASSIGN(root, SessionDirectory::default_root());
  }
  KAZEIA_ASSIGN(options.folder, SessionDirectory(root).create(arguments.session));
  options.memo_folder = root + "/.models";
  return options;
}

Status chat(const ChatArguments& arguments) {
  KAZEIA_TRY(validate(arguments.sampling));
  KAZEIA_ASSIGN(SessionOptions options, session_options(arguments));
  // While the model loads, a second Ctrl-C may end the process; later it would lose the conversation.
  CancelFlag& cancel = catch_interrupts(SecondInterrupt::kEndsProcess);
  KAZEIA_ASSIGN(LoadedModel loaded,
                load_model(arguments.model, cancel, /*quiet=*/arguments.json, KeptStates::kCheckpoints));
  options.cache = loaded.flags.checkpoints();
  options.cache.half_checkpoints = arguments.half_checkpoints;
  KAZEIA_ASSIGN(std::unique_ptr<Session> session, Session::open(loaded.model, std::move(loaded.timeline), options));
  catch_interrupts(SecondInterrupt::kIgnored);
  const Timeline& timeline = session->timeline();
  Chat talk(arguments, loaded, std::move(session), cancel);
  Status status = talk.talk();
  remember_run(loaded.routed, timeline.npu_use(), arguments.model.route);
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
  verb->add_flag("--json", arguments->json, "One line of JSON for every answer and every /stats");
  verb->add_option("--session", arguments->session,
                   "Keep the conversation on disk under this name, and go on with it if it is there");
  verb->add_option("--sessions-dir", arguments->sessions_directory,
                   "Where sessions are kept; default: $KAZEIA_SESSIONS, or kazeia/sessions in $XDG_DATA_HOME")
      ->type_name("DIR");
  add_setting_flag(*verb, arguments->model, "checkpoint_memory",
                   "Most memory for states that may be wanted again; 256MB if not given");
  add_setting_flag(*verb, arguments->model, "checkpoint_spacing",
                   "Tokens between two kept states in a long prompt (default 1024; 0 = at messages only)");
  verb->add_flag("--checkpoint-f16", arguments->half_checkpoints,
                 "Keep recurrent states in half precision: half the bytes, not exact");
  verb->add_flag("--no-read-ahead", arguments->no_read_ahead, "Do nothing in the background between two messages");
  verb->callback([arguments, &action] { action = [arguments] { return chat(*arguments); }; });
}

}  // namespace kazeia::cli
