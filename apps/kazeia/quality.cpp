// `kazeia quality`: does the engine still answer as the mini models were trained to? A check for developers:
// dialogues with one right answer each, greedily, without thinking. A wrong answer means a broken layout, state or
// template long before it shows in a real model's prose.

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/files.h"
#include "base/units.h"
#include "chat/turn.h"
#include "options.h"
#include "terminal.h"
#include "verbs.h"

namespace kazeia::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kLargestFile = 64 * kMiB;
constexpr std::uint32_t kContextTokens = 2048;  // the longest dialogue has about 600 tokens
constexpr std::int64_t kMostAnswerTokens = 64;  // the longest right answer has about 50
constexpr std::size_t kShownMismatches = 12;

struct QualityArguments {
  std::string model;
  std::string dialogues;
  std::size_t limit = 0;  // 0 = all
  std::optional<std::size_t> at_least;
  int threads = 0;
  WeightFlags weights;
  RouteOptions route{.route = Route::kCpu, .remember = false, .profile_file = {}, .self_check = true};
  bool json = false;
};

struct Dialogue {
  Conversation conversation;  // up to the last question
  std::string question;
  std::string expect;
  bool recall = false;  // asks for a fact stated earlier
};

struct Mismatch {
  std::size_t number = 0;  // line of the file
  std::string question;
  std::string expect;
  std::string got;
};

struct Outcome {
  std::size_t asked = 0;
  std::size_t exact = 0;
  std::size_t recall_asked = 0;
  std::size_t recall_exact = 0;
  std::vector<Mismatch> mismatches;  // all of them
  double seconds = 0;
  int threads = 0;
  Route route = Route::kCpu;
  NpuUse npu;
};

std::optional<Role> role_of(const std::string& name) {
  for (const Role role : {Role::kSystem, Role::kUser, Role::kAssistant}) {
    if (role_name(role) == name) return role;
  }
  return std::nullopt;
}

std::optional<Dialogue> parse_dialogue(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  const auto messages = json.is_object() ? json.find("messages") : json.end();
  if (!json.is_object() || messages == json.end() || !messages->is_array() || messages->empty()) return std::nullopt;
  if (!json.contains("expect") || !json["expect"].is_string()) return std::nullopt;
  Dialogue dialogue;
  for (const Json& message : *messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string() ||
        !message.contains("content") || !message["content"].is_string()) {
      return std::nullopt;
    }
    const auto role = role_of(message["role"].get<std::string>());
    if (!role) return std::nullopt;
    dialogue.conversation.add(Message{*role, message["content"].get<std::string>()});
  }
  if (dialogue.conversation.messages().back().role != Role::kUser) return std::nullopt;
  dialogue.question = dialogue.conversation.messages().back().content;
  dialogue.expect = json["expect"].get<std::string>();
  dialogue.recall = json.contains("recall") && json["recall"].is_boolean() && json["recall"].get<bool>();
  return dialogue;
}

Result<std::vector<Dialogue>> read_dialogues(const std::string& path, std::size_t limit) {
  KAZEIA_ASSIGN(const std::string text, read_text_file(path, kLargestFile));
  std::vector<Dialogue> dialogues;
  std::string_view rest = text;
  while (!rest.empty() && (limit == 0 || dialogues.size() < limit)) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    auto dialogue = parse_dialogue(line);
    if (!dialogue) {
      return Error(ErrorCode::kFile, fmt::format("line {} of '{}' is not a dialogue", dialogues.size() + 1, path),
                   "Write the file again with tools/mini_model/make_dialogues.py");
    }
    dialogues.push_back(std::move(*dialogue));
  }
  if (dialogues.empty()) return Error(ErrorCode::kFile, fmt::format("'{}' holds no dialogue", path));
  return dialogues;
}

Result<Outcome> ask_all(const RoutedModel& routed, const std::vector<Dialogue>& dialogues,
                        const QualityArguments& arguments) {
  const std::shared_ptr<const Model>& model = routed.model;
  TimelineOptions timeline_options;
  timeline_options.npu = routed.npu;
  timeline_options.context_tokens = kContextTokens;
  timeline_options.decode_threads = timeline_options.prefill_threads = arguments.threads;
  KAZEIA_ASSIGN(const std::unique_ptr<Timeline> timeline, Timeline::create(model, timeline_options));
  const std::unique_ptr<Responder> responder = Responder::create(model);
  KAZEIA_TRY(responder->can_chat());
  TurnOptions turn_options;
  turn_options.thinking = false;
  turn_options.sampling.temperature = 0;
  turn_options.max_tokens = kMostAnswerTokens;

  CancelFlag& interrupted = catch_interrupts(SecondInterrupt::kEndsProcess);
  turn_options.cancel = &interrupted;
  ProgressBar progress("dialogues");
  const Stopwatch watch;
  Outcome outcome;
  outcome.threads = timeline->decode_threads();
  outcome.route = routed.used;
  for (const Dialogue& dialogue : dialogues) {
    timeline->reset();  // each answer is independent of the one before
    KAZEIA_ASSIGN(const TurnResult turn, responder->answer(*timeline, dialogue.conversation, turn_options));
    if (interrupted.requested()) return Error(ErrorCode::kCancelled, "stopped before all dialogues were asked");
    ++outcome.asked;
    if (dialogue.recall) ++outcome.recall_asked;
    if (turn.answer == dialogue.expect) {
      ++outcome.exact;
      if (dialogue.recall) ++outcome.recall_exact;
    } else {
      outcome.mismatches.push_back({outcome.asked, dialogue.question, dialogue.expect, turn.answer});
    }
    progress.update(static_cast<double>(outcome.asked) / static_cast<double>(dialogues.size()));
  }
  outcome.npu = timeline->npu_use();
  outcome.seconds = watch.elapsed_ms() / 1000;
  return outcome;
}

std::string as_json(const QualityArguments& arguments, const Outcome& outcome) {
  Json json;
  json["model"] = arguments.model;
  json["dialogues"] = arguments.dialogues;
  json["asked"] = outcome.asked;
  json["exact"] = outcome.exact;
  json["recall_asked"] = outcome.recall_asked;
  json["recall_exact"] = outcome.recall_exact;
  json["seconds"] = outcome.seconds;
  json["threads"] = outcome.threads;
  json["route"] = route_name(outcome.route);
  json["npu_prefill_tokens"] = outcome.npu.prefill_tokens;
  json["npu_failure"] = outcome.npu.failure.empty() ? Json(nullptr) : Json(outcome.npu.failure);
  json["mismatches"] = Json::array();
  for (const Mismatch& mismatch : outcome.mismatches) {
    json["mismatches"].push_back({{"line", mismatch.number},
                                  {"question", mismatch.question},
                                  {"expect", mismatch.expect},
                                  {"got", mismatch.got}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string as_text(const QualityArguments& arguments, const Outcome& outcome) {
  std::string text = fmt::format(
      "{}: {} of {} dialogues answered exactly, {} of {} earlier facts recalled ({}, {} thread{})\n",
      std::filesystem::path(arguments.model).filename().string(), outcome.exact, outcome.asked, outcome.recall_exact,
      outcome.recall_asked, format_duration(outcome.seconds * 1000), outcome.threads, outcome.threads == 1 ? "" : "s");
  for (std::size_t i = 0; i < std::min(kShownMismatches, outcome.mismatches.size()); ++i) {
    const Mismatch& mismatch = outcome.mismatches[i];
    text += fmt::format("  line {}: {}\n    expected: {}\n    answered: {}\n", mismatch.number, mismatch.question,
                        mismatch.expect, mismatch.got);
  }
  if (outcome.mismatches.size() > kShownMismatches) {
    text += fmt::format("  and {} more (--json lists them)\n", outcome.mismatches.size() - kShownMismatches);
  }
  return text;
}

Status quality(const QualityArguments& arguments) {
  KAZEIA_ASSIGN(const std::vector<Dialogue> dialogues, read_dialogues(arguments.dialogues, arguments.limit));
  KAZEIA_ASSIGN(const RoutedModel routed, load_on_route(arguments.model, arguments.weights.options(), arguments.route));
  if (!routed.note.empty()) return Error(ErrorCode::kUnsupported, routed.note, "Check another route");
  KAZEIA_ASSIGN(const Outcome outcome, ask_all(routed, dialogues, arguments));
  Output output;
  KAZEIA_TRY(output.write(arguments.json ? as_json(arguments, outcome)
                                         : without_control_characters(as_text(arguments, outcome))));
  if (arguments.at_least && outcome.exact < *arguments.at_least) {
    return Error(ErrorCode::kEngine,
                 fmt::format("{} exact answers are fewer than the {} asked for", outcome.exact, *arguments.at_least),
                 "Something between the file and the answer is broken: a layout, a state or the template");
  }
  return {};
}

}  // namespace

void add_quality(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<QualityArguments>();
  CLI::App* verb = app.add_subcommand("quality", "Check the engine's answers with a mini model (for developers)");
  verb->description(
      "Asks a mini model (models/) dialogues with one right answer each, greedily and without thinking, and counts\n"
      "the exact answers. A check of the engine for its developers, not a measure of a model's quality.");
  verb->add_option("MODEL", arguments->model, "A mini model, a GGUF file")->required();
  verb->add_option("--dialogues", arguments->dialogues, "What to ask: tests/vectors/dialogues.jsonl")->required();
  verb->add_option("--limit", arguments->limit, "Ask the first N only (default: all)");
  verb->add_option("--at-least", arguments->at_least, "Fail (exit code 7) below N exact answers");
  verb->add_option("--threads", arguments->threads, "Default: the physical performance cores")
      ->check(CLI::Range(1, 512));
  add_weight_flags(*verb, arguments->weights);
  add_route_flags(*verb, arguments->route);
  verb->add_flag("--json", arguments->json, "Print one JSON object, with every mismatch");
  verb->callback([arguments, &action] { action = [arguments] { return quality(*arguments); }; });
}

}  // namespace kazeia::cli
