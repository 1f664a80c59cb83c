// `kazeia turns`: what a turn of a long chat costs beside what it cannot do without.

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "options.h"
#include "terminal.h"
#include "turns_chat.h"
#include "turns_report.h"
#include "verbs.h"

namespace kazeia::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReserveTokens = 256;  // for a system message of the template's own
constexpr std::size_t kContextStep = 256;    // as upstream rounds contexts

struct TurnsArguments {
  ModelFlags model;
  TurnsScript script;
  std::string folder;  // empty: a temporary one
  bool json = false;
};

// Removed with everything in it.
class TemporaryFolder {
 public:
  static Result<std::unique_ptr<TemporaryFolder>> create() {
    std::error_code problem;
    const fs::path parent = fs::temp_directory_path(problem);
    std::string pattern = (parent / "kazeia-turns-XXXXXX").string();
    if (problem || ::mkdtemp(pattern.data()) == nullptr) {
      return Error(
          ErrorCode::kWrite,
          fmt::format("cannot create a temporary folder: {}", problem ? problem.message() : std::strerror(errno)),
          "Set TMPDIR, or give a --folder");
    }
    return std::unique_ptr<TemporaryFolder>(new TemporaryFolder(std::move(pattern)));
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

Status check_arguments(const TurnsArguments& arguments) {
  if (arguments.model.context_tokens && *arguments.model.context_tokens < arguments.script.tokens()) {
    return Error(ErrorCode::kUsage,
                 fmt::format("the script has {} tokens, a context of {} does not hold them", arguments.script.tokens(),
                             *arguments.model.context_tokens),
                 "Give a larger --context, or fewer or shorter turns");
  }
  std::error_code ignored;
  if (!arguments.folder.empty() && fs::exists(fs::path(arguments.folder) / kTurnsSession, ignored)) {
    return Error(ErrorCode::kUsage, fmt::format("'{}' holds the session of an earlier run", arguments.folder),
                 fmt::format("Remove its folder '{}', or give another --folder", kTurnsSession));
  }
  return {};
}

Status turns(TurnsArguments arguments) {
  KAZEIA_TRY(check_arguments(arguments));
  if (!arguments.model.context_tokens) {
    const std::size_t wanted = arguments.script.tokens() + kReserveTokens;
    arguments.model.context_tokens =
        static_cast<std::uint32_t>((wanted + kContextStep - 1) / kContextStep * kContextStep);
    arguments.model.asked.emplace("context");
  }
  const CancelFlag& cancel = catch_stops(SecondInterrupt::kEndsProcess);
  KAZEIA_ASSIGN(LoadedModel loaded, load_model(arguments.model, cancel, /*quiet=*/arguments.json));
  catch_stops(SecondInterrupt::kIgnored);  // from now on there is a folder to remove
  std::unique_ptr<TemporaryFolder> temporary;
  std::string folder = arguments.folder;
  if (folder.empty()) {
    KAZEIA_ASSIGN(temporary, TemporaryFolder::create());
    folder = temporary->path();
  }
  KAZEIA_ASSIGN(const TurnsReport report, measure_turns(arguments.script, arguments.model, loaded, folder, cancel));
  return Output().write(arguments.json ? turns_json(report) : without_control_characters(turns_text(report)));
}

}  // namespace

void add_turns(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<TurnsArguments>();
  CLI::App* verb = app.add_subcommand("turns", "Measure what a turn of a long chat costs");
  verb->description(
      "A scripted chat: every turn brings a message of plain words, a few generated tokens, a scripted answer in\n"
      "their place, and the work of an idle time. Then a turn after a restart, one in the middle of the background\n"
      "work, and what their first tokens are compared with: one prefill of the tokens that they had to read.");
  add_model_flags(*verb, arguments->model);
  verb->get_option("--context")->description("Tokens of prompt and answer together (default: what the script needs)");
  constexpr std::size_t kMost = 100000;
  verb->add_option("--turns", arguments->script.turns, "Turns before the restart")
      ->check(CLI::Range(std::size_t{2}, std::size_t{1000}))
      ->capture_default_str();
  verb->add_option("--new-tokens", arguments->script.new_tokens, "Tokens of every message")
      ->check(CLI::Range(std::size_t{1}, kMost))
      ->capture_default_str();
  verb->add_option("--answer-tokens", arguments->script.answer_tokens,
                   "Tokens to generate, and of every scripted answer")
      ->check(CLI::Range(std::size_t{1}, kMost))
      ->capture_default_str();
  verb->add_flag("!--no-think", arguments->script.thinking, "Answer without thinking first (models that can choose)");
  verb->add_option("--checkpoint-memory", arguments->script.cache.memory_budget_bytes,
                   "Most memory for states that may be wanted again; 256MB if not given")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->type_name("SIZE");
  verb->add_flag("--checkpoint-f16", arguments->script.cache.half_checkpoints,
                 "Keep recurrent states in half precision: half the bytes, not exact");
  verb->add_option("--folder", arguments->folder,
                   "Where the session is kept, and stays (default: a temporary folder, removed at the end)")
      ->type_name("DIR");
  verb->add_flag("--json", arguments->json, "Print one JSON object");
  verb->callback([arguments, &action] { action = [arguments] { return turns(*arguments); }; });
}

}  // namespace kazeia::cli
