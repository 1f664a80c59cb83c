// `kazeia bench`: what a user feels, measured so that it can be trusted, as a record that can be kept.

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/machine.h"
#include "bench/comparison.h"
#include "bench/ledger.h"
#include "bench/record.h"
#include "bench_plan.h"
#include "bench_report.h"
#include "bench_runs.h"
#include "ledger_report.h"
#include "options.h"
#include "plan/threads.h"
#include "record_origin.h"
#include "terminal.h"
#include "verbs.h"

namespace kazeia::cli {
namespace {

struct Destinations {
  bool json = false;
  std::string record_file;  // "-" = standard output, in the place of the table
  bool add = false;
  std::string ledger = "ledger";
};

Result<BenchRun> run(const Workbench& work) {
  if (work.arguments.soak_seconds > 0) return run_soak(work);
  if (work.arguments.routes) return run_routes(work);
  return work.arguments.baseline.empty() ? run_one(work) : run_baseline(work);
}

Status append_line(const std::string& path, const std::string& line) {
  std::FILE* file = std::fopen(path.c_str(), "ae");
  bool written = file != nullptr && std::fputs(line.c_str(), file) >= 0;
  if (file != nullptr) written = std::fclose(file) == 0 && written;
  if (written) return {};
  return Error(ErrorCode::kWrite, fmt::format("cannot write to '{}': {}", path, std::strerror(errno)),
               "Free some space or give another file");
}

// Empty, or why the record is not worth keeping. A figure that varied too much spoils itself and not the others
// (docs/ledger_format.md, What is a result).
std::string why_not_to_keep(const BenchRun& measured, double most_variation) {
  if (!measured.record.disturbance.empty()) return measured.record.disturbance;
  if (measured.noise.empty() || bench::has_steady_speed(measured.record, most_variation)) return "";
  return "no speed has repeated itself; " + measured.noise;
}

Status add_to_ledger(const BenchRun& measured, const BenchArguments& arguments, const std::string& folder) {
  const bench::Record& record = measured.record;
  const std::string reason = why_not_to_keep(measured, arguments.protocol.most_variation);
  if (!reason.empty() && !arguments.accept_noise) {
    return Error(ErrorCode::kEngine, "the record is not added to the ledger: " + reason,
                 "Close other programs and measure again, or keep it as it is with --accept-noise");
  }
  KAZEIA_TRY(bench::Ledger(folder).append(record));
  fmt::print(stderr, "{}\n", added_text(record));
  return {};
}

Status bench_model(const BenchArguments& arguments, const Destinations& to) {
  KAZEIA_ASSIGN(const ModelFacts facts, read_model_facts(arguments.model));
  KAZEIA_ASSIGN(const BenchPlan plan, plan_bench(arguments, facts, plan::default_threads(read_machine())));
  const CancelFlag& cancel = catch_stops(SecondInterrupt::kEndsProcess);
  Result<BenchRun> measured = run({arguments, facts, plan, cancel});
  // Whichever process noticed it first, to a person it is the same.
  if (cancel.requested()) return Error(ErrorCode::kCancelled, "stopped by the user");
  if (!measured.ok()) return measured.error();
  bench::Record& record = measured->record;
  if (!measured->noise.empty() && arguments.accept_noise) {
    record.note += (record.note.empty() ? "" : "; ") + ("kept with noise: " + measured->noise);
  }
  bench::seal(record);

  const std::string line = bench::to_json(record) + "\n";
  std::string shown = to.record_file == "-" ? line : to.json ? bench_json(record) : bench_text(record);
  if (is_terminal(STDOUT_FILENO)) shown = without_control_characters(shown);
  KAZEIA_TRY(Output().write(shown));
  if (!measured->noise.empty()) fmt::print(stderr, "kazeia: {}.\n", measured->noise);
  if (!to.record_file.empty() && to.record_file != "-") KAZEIA_TRY(append_line(to.record_file, line));
  return to.add ? add_to_ledger(*measured, arguments, to.ledger) : Status();
}

void add_subject_options(CLI::App& verb, BenchArguments& arguments) {
  verb.add_option("MODEL", arguments.model, "The model, a GGUF file (of a split model, the first part)")->required();
  verb.add_option("--context", arguments.context_tokens, "Tokens of context (default: what the figures need)")
      ->check(CLI::Range(256U, (1U << 31) - 256));
  verb.add_option("--threads", arguments.threads, "Default: the physical performance cores")->check(CLI::Range(1, 512));
  verb.add_option("--kv", arguments.kv_type, "Type of the KV cache (default f16)")
      ->check(CLI::IsMember({"f16", "q8_0", "q4_0"}))
      ->type_name("TYPE");
  verb.add_option("--tile-cache", arguments.tile_cache, "Folder with packed weights, as for run and chat")
      ->type_name("DIR");
  add_route_flags(verb, arguments.route);
}

void add_figure_options(CLI::App& verb, BenchArguments& arguments) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  verb.add_option("--prefill", arguments.prefill, "Prompt lengths (default 128,512,1024,2048)")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, kMost))
      ->type_name("TOKENS,...");
  verb.add_option("--depths", arguments.depths, "Depths of decode (default 0,1024,4096,8192,16384,32768)")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{0}, kMost))
      ->type_name("TOKENS,...");
  verb.add_option(
          "--prefill-at", arguments.prefill_at,
          "Depths at which 512 tokens are read, as a turn of a chat does (default 4096,16384; none if --prefill "
          "or --depths is given)")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, kMost))
      ->type_name("TOKENS,...");
  verb.add_flag("--quick", arguments.quick,
                "Prefill 512, decode 0 and 1024, 512 tokens at 4096 only, unless they are given");
  verb.add_flag("--no-turns", arguments.no_turns, "No turn of a chat");
  CLI::Option* baseline = verb.add_option("--baseline", arguments.baseline,
                                          "The same figures of llama.cpp as it ships, alternately, as ratios")
                              ->check(CLI::IsMember({"upstream"}))
                              ->excludes("--kv");
  CLI::Option* routes =
      verb.add_flag("--routes", arguments.routes, "One row for each way to share the work between CPU and NPU")
          ->excludes("--route")
          ->excludes(baseline);
  verb.add_option_function<std::string>(
          "--soak",
          [&arguments](const std::string& text) { arguments.soak_seconds = parse_duration(text).value_or(0); },
          "Chat turns for so long instead: does it get slower, does it grow? 90s, 60m, 2h")
      ->check([](const std::string& text) { return parse_duration(text) ? "" : "'" + text + "' is no duration"; })
      ->type_name("TIME")
      ->excludes(baseline)
      ->excludes(routes);
}

void add_protocol_options(CLI::App& verb, BenchArguments& arguments) {
  bench::ProtocolOptions& protocol = arguments.protocol;
  verb.add_option("--repetitions", protocol.most_repetitions,
                  "Most processes a figure is measured in (default 6); fewer, but 3, once no figure varies too much")
      ->check(CLI::Range(3, 100));
  verb.add_option("--most-variation", protocol.most_variation,
                  "What a figure may vary (standard deviation / mean, default 0.05)")
      ->check(CLI::Range(0.0, 1.0));
  verb.add_option("--cool-down", protocol.most_cool_down_s,
                  "Most seconds to wait for a quiet and cool machine before each process (default 30)")
      ->check(CLI::Range(0.0, 3600.0));
  verb.add_flag("--accept-noise", arguments.accept_noise,
                "Add the record to the ledger even if it was disturbed or nothing repeated itself");
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<BenchArguments>();
  auto to = std::make_shared<Destinations>();
  CLI::App* verb = app.add_subcommand("bench", "Measure what a user feels, as a record that can be kept");
  verb->description(
      "Loading, first token, prefill, decode at depths, a turn of a chat, memory and (where the machine tells) "
      "energy.\n"
      "Every repetition is a process of its own, on a quiet and cool machine, until the figures repeat.\n"
      "Depths over 1024 are made of repeated rows instead of being read, which takes seconds.");
  add_subject_options(*verb, *arguments);
  add_figure_options(*verb, *arguments);
  add_protocol_options(*verb, *arguments);
  verb->add_flag("--json", to->json, "Print the record as JSON");
  verb->add_option("--record", to->record_file, "Append the record to this file, one line; - prints it")
      ->type_name("FILE");
  verb->add_flag("--add", to->add,
                 "Add the record to the ledger; refused if it was disturbed or no speed repeated itself");
  verb->add_option("--ledger", to->ledger, "The ledger's folder (default: ledger)")->type_name("DIR");
  verb->footer("Exit code 7 if --add refuses the record. `kazeia ledger` lists, compares and checks what was added.");
  verb->callback([arguments, to, &action] { action = [arguments, to] { return bench_model(*arguments, *to); }; });
}

}  // namespace kazeia::cli
