#include "turns_chat.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/machine.h"
#include "base/units.h"
#include "chat/turn.h"
#include "plain_text.h"
#include "session/directory.h"
#include "session/session.h"
#include "terminal.h"

namespace kazeia::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTurnsAfterwards = 2;  // one after a restart, one that interrupts
constexpr std::size_t kAroundExchange = 32;  // the template's tokens around a message and its answer
constexpr double kLeastWaitMs = 50;          // for a thread to begin

Error stopped() {
  return Error(ErrorCode::kCancelled, "stopped by the user");
}

void note(const std::string& line) {
  if (is_terminal(STDERR_FILENO)) fmt::print(stderr, "{}\n", line);
}

Timeline::Progress show_on(ProgressBar& bar) {
  return [&bar](std::size_t done, std::size_t total) {
    bar.update(static_cast<double>(done) / static_cast<double>(total));
  };
}

std::uint64_t resident_bytes(const std::string& path) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file.ok() || file->bytes().empty()) return 0;
  const std::size_t size = file->bytes().size();
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((size + page - 1) / page);
  void* const begin = const_cast<std::byte*>(file->bytes().data());  // NOLINT: nothing is written
  if (::mincore(begin, size, pages.data()) != 0) return size;
  const auto present = std::count_if(pages.begin(), pages.end(), [](unsigned char flags) { return (flags & 1U) != 0; });
  return std::min(size, static_cast<std::size_t>(present) * page);
}

// As if the machine had been busy with other things since: nobody may have these files open. What stays (always, in a
// file system that is memory) is in resident_bytes.
void drop_from_page_cache(const std::string& folder, RestartFigures& figures) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string path = entry.path().string();
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    (void)::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
    if (const auto size = regular_file_size(path); size.ok()) figures.state_bytes += *size;
    figures.resident_bytes += resident_bytes(path);
  }
}

// One prefill of what is behind the first `depth` tokens of a prompt. Those are brought into the timeline before, and
// are what it holds afterwards if its state can be taken apart: the next, longer one does not read them again.
Result<double> prefill_alone(Timeline& timeline, std::span<const Token> prompt, std::size_t depth,
                             const CancelFlag& cancel) {
  ProgressBar bar("measuring");
  const std::span<const Token> before = prompt.first(depth);
  std::size_t reused = 0;
  if (depth == 0) {
    timeline.reset();
  } else {
    KAZEIA_TRY(read_behind_longest_prefix(timeline, {before, {}, show_on(bar), &cancel}, reused));
  }
  std::vector<std::byte> recurrent;
  const bool can_go_back = depth > 0 && timeline.state_layout().ok();
  if (can_go_back) {
    KAZEIA_TRY(timeline.copy_recurrent([&recurrent](std::span<const std::byte> piece) -> Status {
      recurrent.insert(recurrent.end(), piece.begin(), piece.end());
      return {};
    }));
  }
  const Stopwatch watch;
  KAZEIA_TRY(timeline.prefill(prompt.subspan(depth), {}, &cancel));
  const double elapsed_ms = watch.elapsed_ms();
  if (can_go_back) {
    KAZEIA_ASSIGN(const StateLayout layout, timeline.state_layout());
    KAZEIA_TRY(timeline.restore(before, depth, {}, recurrent, layout));
  }
  return elapsed_ms;
}

// What was asked in a turn, to be read again for the comparison.
struct Asked {
  Conversation conversation;  // up to the user's message
  Tokens prompt;
  std::size_t reused = 0;
};

class ScriptedChat {
 public:
  ScriptedChat(const TurnsScript& script, const ModelFlags& flags, LoadedModel& loaded, const std::string& root,
               const CancelFlag& cancel)
      : script_(script),
        flags_(flags),
        loaded_(loaded),
        root_(root),
        cancel_(cancel),
        responder_(Responder::create(loaded.model)) {
    timeline_options_ = loaded.flags.timeline();
    timeline_options_.npu = loaded.routed.npu;
    timeline_options_.context_tokens = static_cast<std::uint32_t>(loaded.timeline->capacity_tokens());
    options_.thinking = script.thinking;
    options_.sampling.temperature = 0;
    options_.max_tokens = static_cast<std::int64_t>(script.answer_tokens);
    options_.cancel = &cancel;
  }

  Result<TurnsReport> run();

 private:
  Status talk();
  Status restart();
  Status interrupt();
  Status compare();

  Status open(std::unique_ptr<Timeline> timeline);
  void close();
  Result<TurnFigures> say(Asked& asked);
  Status put_scripted_answer(TurnFigures& turn);
  Status idle(TurnFigures& turn);
  Status wait(double milliseconds) const;
  std::size_t read_ahead() { return session_->counts().cache.read_ahead_tokens; }
  void show_remarks();

  const TurnsScript& script_;
  const ModelFlags& flags_;
  LoadedModel& loaded_;
  const std::string& root_;
  const CancelFlag& cancel_;
  std::unique_ptr<Responder> responder_;  // to render and to compare; the session has its own
  TimelineOptions timeline_options_;
  TurnOptions options_;
  std::string folder_;
  std::unique_ptr<Session> session_;
  std::uint32_t said_ = 0;  // messages
  Asked last_, restarted_, interrupting_;
  TurnsReport report_;
};

Status ScriptedChat::open(std::unique_ptr<Timeline> timeline) {
  SessionOptions options;
  options.cache = script_.cache;
  options.engine_version = KAZEIA_VERSION;
  options.folder = folder_;
  options.memo_folder = root_ + "/.models";
  KAZEIA_ASSIGN(session_, Session::open(loaded_.model, std::move(timeline), options));
  KAZEIA_TRY(session_->can_chat());
  show_remarks();
  return {};
}

void ScriptedChat::close() {
  const StateStoreCounts store = session_->counts().cache.store;
  report_.most_bytes_in_memory = std::max(report_.most_bytes_in_memory, store.most_bytes_in_memory);
  report_.memory_budget_bytes = store.memory_budget_bytes;
  const NpuUse npu = session_->timeline().npu_use();
  if (report_.npu_failure.empty()) report_.npu_failure = npu.failure;
  remember_run(loaded_.routed, npu, flags_.route);
  session_.reset();
}

void ScriptedChat::show_remarks() {
  for (const std::string& remark : session_->take_remarks()) fmt::print(stderr, "kazeia: warning: {}.\n", remark);
}

Result<TurnFigures> ScriptedChat::say(Asked& asked) {
  KAZEIA_ASSIGN(std::string text, plain_text(*loaded_.model, script_.new_tokens, 2 * said_++));
  ProgressBar bar("reading");
  TurnEvents events;
  events.on_prefill = show_on(bar);
  KAZEIA_ASSIGN(const TurnResult turn, session_->say(std::move(text), options_, events));
  bar.clear();
  if (turn.stats.stop_reason == StopReason::kCancelled) return stopped();
  show_remarks();
  if (session_->counts().messages_left_out > 0) {
    return Error(ErrorCode::kTooLarge,
                 fmt::format("the script does not fit into the context of {} tokens with this model's chat template",
                             session_->timeline().capacity_tokens()),
                 "Give a larger --context, or fewer or shorter turns");
  }
  asked.conversation = session_->conversation();
  asked.conversation.drop_last_reply();
  KAZEIA_ASSIGN(RenderedPrompt prompt, responder_->prompt(asked.conversation, options_));
  asked.prompt = std::move(prompt.tokens);
  asked.reused = turn.stats.reused_tokens;

  TurnFigures figures;
  figures.prompt_tokens = turn.stats.prompt_tokens;
  figures.reused_tokens = turn.stats.reused_tokens;
  figures.generated_tokens = turn.stats.generated_tokens;
  figures.ttft_ms = turn.stats.ttft_ms;
  return figures;
}

Status ScriptedChat::put_scripted_answer(TurnFigures& turn) {
  Conversation scripted;
  for (Message message : session_->conversation().messages()) scripted.add(std::move(message));
  Message answer = scripted.messages().back();
  KAZEIA_ASSIGN(answer.content, plain_text(*loaded_.model, script_.answer_tokens, 2 * said_ + 1));
  scripted.drop_last_reply();
  scripted.add(std::move(answer));
  const Stopwatch watch;
  session_->replace(std::move(scripted));
  turn.store_ms = watch.elapsed_ms();
  return {};
}

Status ScriptedChat::idle(TurnFigures& turn) {
  const std::size_t before = read_ahead();
  ProgressBar bar("idle work");
  const Stopwatch watch;
  KAZEIA_TRY(session_->finish(options_, cancel_, show_on(bar)));
  turn.idle_ms = watch.elapsed_ms();
  turn.read_ahead_tokens = read_ahead() - before;
  show_remarks();
  return {};
}

Status ScriptedChat::wait(double milliseconds) const {
  const Stopwatch watch;
  while (watch.elapsed_ms() < milliseconds) {
    if (cancel_.requested()) return stopped();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return {};
}

Status ScriptedChat::talk() {
  for (std::size_t i = 0; i < script_.turns; ++i) {
    KAZEIA_ASSIGN(TurnFigures turn, say(last_));
    KAZEIA_TRY(put_scripted_answer(turn));
    KAZEIA_TRY(idle(turn));
    report_.turns.push_back(turn);
    note(fmt::format("turn {} of {}: {} tokens, {} of them read, first token after {}; {} of idle work", i + 1,
                     script_.turns, turn.prompt_tokens, turn.read_tokens(), format_duration(turn.ttft_ms),
                     format_duration(turn.idle_ms)));
  }
  return {};
}

// Nothing is done ahead before this turn: what it reuses comes from the disk, in its own time.
Status ScriptedChat::restart() {
  close();
  RestartFigures& figures = report_.restart;
  drop_from_page_cache(SessionDirectory::state_folder(folder_), figures);
  KAZEIA_ASSIGN(std::unique_ptr<Timeline> timeline, Timeline::create(loaded_.model, timeline_options_));
  const Stopwatch watch;
  KAZEIA_TRY(open(std::move(timeline)));
  figures.open_ms = watch.elapsed_ms();
  KAZEIA_ASSIGN(figures.compared.turn, say(restarted_));
  figures.rows_from_disk = session_->counts().cache.rows_from_disk;
  KAZEIA_TRY(put_scripted_answer(figures.compared.turn));
  note(fmt::format("after a restart: first token after {}", format_duration(figures.compared.turn.ttft_ms)));
  return {};
}

Status ScriptedChat::interrupt() {
  InterruptedFigures& figures = report_.interrupted;
  const std::size_t before = read_ahead();
  const Stopwatch since_begin;
  session_->begin_idle(options_);
  KAZEIA_TRY(wait(std::max(kLeastWaitMs, report_.turns.back().idle_ms / 3)));
  const double worked_ms = since_begin.elapsed_ms();
  const Stopwatch stopping;
  const SessionCounts counts = session_->counts();  // as end_idle(), and tells whether there was something to end
  figures.stop_ms = stopping.elapsed_ms();
  figures.background_done = counts.idle_done;
  KAZEIA_ASSIGN(figures.compared.turn, say(interrupting_));
  figures.compared.turn.idle_ms = worked_ms;
  figures.compared.turn.read_ahead_tokens = counts.cache.read_ahead_tokens - before;
  note(fmt::format("in the middle of the background work: first token after {}",
                   format_duration(figures.compared.turn.ttft_ms)));
  return {};
}

// The longest first: what is measured after it finds memory, threads and weights as a turn does.
Status ScriptedChat::compare() {
  KAZEIA_ASSIGN(const std::unique_ptr<Timeline> timeline, Timeline::create(loaded_.model, timeline_options_));
  TurnOptions first_token = options_;
  first_token.max_tokens = 1;
  {
    ProgressBar bar("reading everything");
    TurnEvents events;
    events.on_prefill = show_on(bar);
    KAZEIA_ASSIGN(const TurnResult full, responder_->answer(*timeline, last_.conversation, first_token, events));
    if (full.stats.stop_reason == StopReason::kCancelled) return stopped();
    report_.full_read_ttft_ms = full.stats.ttft_ms;
  }
  note(fmt::format("the whole last prompt read: {}", format_duration(report_.full_read_ttft_ms)));
  const auto alone = [&](const Asked& asked) { return prefill_alone(*timeline, asked.prompt, asked.reused, cancel_); };
  KAZEIA_ASSIGN(report_.last_alone_ms, alone(last_));
  note(fmt::format("the last turn's tokens alone: {}", format_duration(report_.last_alone_ms)));
  KAZEIA_ASSIGN(report_.restart.compared.prefill_alone_ms, alone(restarted_));
  KAZEIA_ASSIGN(report_.interrupted.compared.prefill_alone_ms, alone(interrupting_));
  const std::span<const Token> last_read = std::span<const Token>(last_.prompt).subspan(last_.reused);
  KAZEIA_ASSIGN(report_.last_alone_at_depth_0_ms, prefill_alone(*timeline, last_read, 0, cancel_));
  return {};
}

Result<TurnsReport> ScriptedChat::run() {
  report_.model = fs::path(flags_.path).filename().string();
  report_.architecture = loaded_.model->architecture();
  report_.route = route_name(loaded_.routed.used);
  report_.threads = loaded_.timeline->decode_threads();
  report_.context_tokens = loaded_.timeline->capacity_tokens();
  report_.new_tokens = script_.new_tokens;
  report_.answer_tokens = script_.answer_tokens;
  report_.thinking = options_.thinking;
  report_.load_average = read_machine().load_average;
  KAZEIA_ASSIGN(folder_, SessionDirectory(root_).create(kTurnsSession));
  KAZEIA_TRY(open(std::move(loaded_.timeline)));
  KAZEIA_TRY(talk());
  KAZEIA_TRY(restart());
  KAZEIA_TRY(interrupt());
  report_.peak_rss_bytes = read_process_memory().peak_rss_bytes;
  close();
  KAZEIA_TRY(compare());
  return std::move(report_);
}

}  // namespace

std::size_t TurnsScript::tokens() const {
  return (turns + kTurnsAfterwards) * (new_tokens + answer_tokens + kAroundExchange);
}

Result<TurnsReport> measure_turns(const TurnsScript& script, const ModelFlags& flags, LoadedModel& loaded,
                                  const std::string& folder, const CancelFlag& cancel) {
  Result<TurnsReport> report = ScriptedChat(script, flags, loaded, folder, cancel).run();
  // Wherever it stopped, to a person it is the same.
  if (!report.ok() && report.error().code() == ErrorCode::kCancelled) return stopped();
  return report;
}

}  // namespace kazeia::cli
