// `kazeia run`: one answer, streamed.

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/machine.h"
#include "base/units.h"
#include "chat/turn.h"
#include "options.h"
#include "reply_printer.h"
#include "settings_report.h"
#include "terminal.h"
#include "verbs.h"

namespace kazeia::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kPromptLimitBytes = 16 * kMiB;
constexpr std::uint64_t kGrammarLimitBytes = 4 * kMiB;
// Enough for a long answer with its thinking; bounds a model that never ends its turn.
constexpr std::int64_t kDefaultMaxTokens = 2048;

struct RunArguments {
  ModelFlags model;
  SamplingOptions sampling;
  std::string prompt;
  std::string prompt_file;
  std::string system;
  std::string json_schema;  // text, or @file
  std::string grammar_file;
  std::string tools_file;
  std::vector<std::string> stop_strings;
  std::int64_t max_tokens = kDefaultMaxTokens;
  bool has_prompt = false;
  bool json = false;
  bool no_think = false;
  bool raw = false;
  bool quiet = false;
};

// What is asked, complete before the model is loaded: a wrong flag should not cost a minute of loading.
struct Request {
  std::string prompt;
  TurnOptions turn;
};

struct Reply {
  LoadedModel loaded;
  TurnResult turn;
};

Result<std::string> read_prompt(const RunArguments& arguments, const CancelFlag& cancel) {
  std::string prompt;
  if (arguments.has_prompt) {
    prompt = arguments.prompt;
  } else if (!arguments.prompt_file.empty()) {
    KAZEIA_ASSIGN(prompt, read_text_file(arguments.prompt_file, kPromptLimitBytes));
  } else {
    if (is_terminal(STDIN_FILENO)) fmt::print(stderr, "Type the prompt; Ctrl-D on an empty line ends it.\n");
    KAZEIA_ASSIGN(prompt, read_stdin(kPromptLimitBytes, cancel));
  }
  // The line break that ends a file is not part of what is asked. Raw text stays as it is.
  while (!arguments.raw && !prompt.empty() && (prompt.back() == '\n' || prompt.back() == '\r')) prompt.pop_back();
  if (prompt.empty()) return Error(ErrorCode::kUsage, "the prompt is empty", "Give one with -p, -f or on stdin");
  return valid_utf8(prompt);
}

Result<Request> make_request(const RunArguments& arguments, const CancelFlag& cancel) {
  Request request;
  TurnOptions& turn = request.turn;
  turn.sampling = arguments.sampling;
  turn.thinking = !arguments.no_think;
  turn.max_tokens = arguments.max_tokens;
  turn.cancel = &cancel;
  for (const std::string& stop : arguments.stop_strings) {
    if (stop.empty()) return Error(ErrorCode::kUsage, "--stop is empty", "Give the text that ends the answer");
    turn.stop_strings.push_back(stop);
  }
  if (!arguments.json_schema.empty()) {
    turn.sampling.json_schema = arguments.json_schema;
    if (arguments.json_schema.front() == '@') {
      KAZEIA_ASSIGN(turn.sampling.json_schema, read_text_file(arguments.json_schema.substr(1), kGrammarLimitBytes));
    }
  }
  if (!arguments.grammar_file.empty()) {
    KAZEIA_ASSIGN(turn.sampling.grammar, read_text_file(arguments.grammar_file, kGrammarLimitBytes));
    if (turn.sampling.grammar.empty()) {
      return Error(ErrorCode::kUsage, fmt::format("the grammar in '{}' is empty", arguments.grammar_file));
    }
  }
  KAZEIA_TRY(validate(turn.sampling));
  if (!arguments.tools_file.empty()) {
    KAZEIA_ASSIGN(const std::string tools, read_text_file(arguments.tools_file, kGrammarLimitBytes));
    KAZEIA_ASSIGN(turn.tools, parse_tool_definitions(tools));
  }
  KAZEIA_ASSIGN(request.prompt, read_prompt(arguments, cancel));
  return request;
}

Result<TurnResult> respond(const RunArguments& arguments, const Request& request, const LoadedModel& loaded,
                           const TurnEvents& events) {
  const std::unique_ptr<Responder> responder = Responder::create(loaded.model);
  if (arguments.raw) return responder->complete(*loaded.timeline, request.prompt, request.turn, events);
  Conversation conversation;
  conversation.set_system(valid_utf8(arguments.system));
  conversation.add_user(request.prompt);
  return responder->answer(*loaded.timeline, conversation, request.turn, events);
}

Json tool_call_json(const ToolCall& call) {
  Json arguments = Json::parse(call.arguments, nullptr, /*allow_exceptions=*/false);
  Json object = {{"name", call.name}};
  object["arguments"] = arguments.is_discarded() ? Json(call.arguments) : std::move(arguments);
  if (!call.id.empty()) object["id"] = call.id;
  return object;
}

std::string one_line(const Json& object) {
  return object.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

Json npu_json(const LoadedModel& loaded) {
  const NpuUse use = loaded.timeline->npu_use();
  Json refused = Json::array();
  for (const RefusedTensor& tensor : loaded.model->npu_placement().refused) {
    refused.push_back({{"name", tensor.name}, {"type", tensor.type}, {"prefill_share", tensor.share}});
  }
  Json json = {{"prefill_tokens", use.prefill_tokens},
               {"cpu_prefill_tokens", use.cpu_prefill_tokens},
               {"nodes", use.npu_nodes},
               {"cpu_nodes", use.cpu_nodes},
               {"graphs", use.npu_graphs},
               {"switches", use.switches},
               {"switch_us", use.switch_us_mean},
               {"switch_us_last", use.switch_us_last},
               {"weight_bytes_resident", use.weight_bytes_resident},
               {"weight_bytes_copied", use.weight_bytes_copied},
               {"state_bytes_resident", use.state_bytes_resident},
               {"witnesses", use.witnesses},
               {"witness_ms", use.witness_ms},
               {"checked_matrices", loaded.model->npu_placement().checked_matrices},
               {"refused", std::move(refused)},
               {"failure", use.failure.empty() ? Json(nullptr) : Json(use.failure)}};
  if (loaded.routed.check) {
    const SelfCheck& check = *loaded.routed.check;
    json["self_check"] = {{"passed", check.passed},
                          {"remembered", check.remembered},
                          {"agreement", check.agreement},
                          {"finding", check.finding}};
  }
  return json;
}

Json reply_json(const RunArguments& arguments, const Reply& reply) {
  const TurnStats& stats = reply.turn.stats;
  const Timeline& timeline = *reply.loaded.timeline;
  Json calls = Json::array();
  for (const ToolCall& call : reply.turn.tool_calls) calls.push_back(tool_call_json(call));
  return {{"text", reply.turn.answer},
          {"thinking", reply.turn.thinking},
          {"tool_calls", std::move(calls)},
          {"stop_reason", stop_reason_name(stats.stop_reason)},
          {"prompt_tokens", stats.prompt_tokens},
          {"generated_tokens", stats.generated_tokens},
          {"load_ms", reply.loaded.load_ms},
          {"ttft_ms", stats.ttft_ms},
          {"prefill_ms", stats.prefill_ms},
          {"decode_ms", stats.decode_ms},
          {"prefill_tps", stats.prefill_tps},
          {"decode_tps", stats.decode_tps},
          {"peak_rss_bytes", read_process_memory().peak_rss_bytes},
          {"model", arguments.model.path},
          {"architecture", reply.loaded.model->architecture()},
          {"placement", placement_name(reply.loaded.model->placement())},
          {"route", route_name(reply.loaded.routed.used)},
          {"npu", npu_json(reply.loaded)},
          {"tile_bytes", reply.loaded.model->tile_bytes()},
          {"cached_tile_bytes", reply.loaded.model->cached_tile_bytes()},
          {"threads", timeline.decode_threads()},
          {"settings", settings_json(*reply.loaded.settings)},
          {"context_tokens", timeline.capacity_tokens()},
          {"seed", arguments.sampling.seed},
          {"load_average", read_machine().load_average}};
}

std::string_view why_it_stopped_early(StopReason reason) {
  switch (reason) {
    case StopReason::kMaxTokens:
      return "at --max-tokens";
    case StopReason::kContextFull:
      return "the context is full";
    case StopReason::kCancelled:
      return "by the user";
    default:
      return "";
  }
}

void print_table(const Reply& reply) {
  const TurnStats& stats = reply.turn.stats;
  const auto row = [](std::string_view label, const std::string& value) {
    fmt::print(stderr, "{:<12} {}\n", label, value);
  };
  fmt::print(stderr, "\n");
  row("load", format_duration(reply.loaded.load_ms));
  row("prompt", fmt::format("{} tokens", stats.prompt_tokens));
  row("first token", stats.generated_tokens > 0 ? format_duration(stats.ttft_ms) : "none");
  row("prefill", fmt::format("{:.1f} tokens/s", stats.prefill_tps));
  row("decode", fmt::format("{:.1f} tokens/s ({} tokens)", stats.decode_tps, stats.generated_tokens));
  row("peak memory", format_bytes(read_process_memory().peak_rss_bytes));
  if (reply.loaded.routed.used != Route::kCpu) {
    const NpuUse use = reply.loaded.timeline->npu_use();
    row("NPU", npu_sentence(use));
    row("", fmt::format("{} of weights in its memory, {} copied", format_bytes(use.weight_bytes_resident),
                        format_bytes(use.weight_bytes_copied)));
  }
  const std::string_view early = why_it_stopped_early(stats.stop_reason);
  if (!early.empty()) row("stopped", std::string(early));
}

Status print_text(const RunArguments& arguments, Reply& reply, const Request& request, Output& output,
                  CancelFlag& cancel) {
  ReplyPrinter printer(output, cancel);
  ProgressBar bar("reading");
  const TurnEvents events = show_on(bar, printer);
  Result<TurnResult> turn = respond(arguments, request, reply.loaded, events);
  bar.clear();
  KAZEIA_TRY(printer.finish());
  KAZEIA_ASSIGN(reply.turn, std::move(turn));
  for (const ToolCall& call : reply.turn.tool_calls) KAZEIA_TRY(output.write(one_line(tool_call_json(call))));
  if (!arguments.quiet) print_table(reply);
  return {};
}

Status print_json(const RunArguments& arguments, Reply& reply, const Request& request, Output& output) {
  KAZEIA_ASSIGN(reply.turn, respond(arguments, request, reply.loaded, {}));
  return output.write(one_line(reply_json(arguments, reply)));
}

Status answer(const RunArguments& arguments, Output& output, CancelFlag& cancel) {
  KAZEIA_ASSIGN(const Request request, make_request(arguments, cancel));
  Reply reply;
  KAZEIA_ASSIGN(reply.loaded, load_model(arguments.model, cancel, arguments.quiet || arguments.json));
  Status printed = arguments.json ? print_json(arguments, reply, request, output)
                                  : print_text(arguments, reply, request, output, cancel);
  // Also if the run ended in an error: the device may be why.
  remember_run(reply.loaded.routed, reply.loaded.timeline->npu_use(), arguments.model.route);
  if (!printed.ok()) return printed;
  if (reply.turn.stats.stop_reason == StopReason::kCancelled) {
    return Error(ErrorCode::kCancelled, "stopped before the answer was complete");
  }
  return {};
}

Status run(const RunArguments& arguments) {
  CancelFlag& cancel = catch_interrupts(SecondInterrupt::kEndsProcess);
  Output output;
  Status status = answer(arguments, output, cancel);
  // A stopped answer has been printed as one object already, unless it was stopped before there was one.
  if (arguments.json && !status.ok() && output.bytes_written() == 0) {
    const Error& error = status.error();
    const Json object = {
        {"error", {{"code", error_code_name(error.code())}, {"message", error.message()}, {"next", error.next()}}}};
    Status written = output.write(one_line(object));
    if (!written.ok()) return written;
  }
  return status;
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* verb = app.add_subcommand("run", "Answer one prompt");
  verb->description(
      "Answers one prompt: the answer is streamed to stdout, what it took goes to stderr. Thinking is shown (dimmed)\n"
      "on a terminal only. Ctrl-C stops at the next token.");
  add_model_flags(*verb, arguments->model);
  CLI::Option* prompt = verb->add_option("-p,--prompt", arguments->prompt, "The prompt (default: read from stdin)");
  verb->add_option("-f,--file", arguments->prompt_file, "Read the prompt from a file")->excludes(prompt);
  CLI::Option* system = verb->add_option("--system", arguments->system, "A system message before the prompt");
  verb->add_option("--max-tokens", arguments->max_tokens,
                   "Most tokens to generate, thinking included; -1 = until the context is full")
      ->check(CLI::Range(std::int64_t{-1}, std::int64_t{1} << 31))
      ->capture_default_str();
  verb->add_option("--stop", arguments->stop_strings, "Text that ends the answer (repeatable)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_sampling_flags(*verb, arguments->sampling);
  verb->add_flag("--no-think", arguments->no_think, "Answer without thinking first (models that can choose)");
  CLI::Option* schema = verb->add_option("--json-schema", arguments->json_schema,
                                         "Constrain the answer to a JSON schema: its text, or @file");
  CLI::Option* grammar =
      verb->add_option("--grammar", arguments->grammar_file, "Constrain the answer to the GBNF grammar in this file")
          ->excludes(schema);
  CLI::Option* tools =
      verb->add_option("--tools", arguments->tools_file,
                       "Offer the tools defined in this JSON file; calls are printed, one JSON object a line")
          ->excludes(schema)
          ->excludes(grammar);
  verb->add_flag("--raw", arguments->raw, "Send the prompt as it is, without the model's chat template")
      ->excludes(system)
      ->excludes(tools);
  verb->add_flag("--json", arguments->json, "Print one JSON object with the answer and all figures");
  verb->add_flag("--quiet", arguments->quiet, "No table on stderr");
  verb->callback([arguments, prompt, &action] {
    arguments->has_prompt = prompt->count() > 0;
    action = [arguments] { return run(*arguments); };
  });
}

}  // namespace kazeia::cli
