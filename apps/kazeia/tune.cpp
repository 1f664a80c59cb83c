// `kazeia tune`: settings that are faster than the defaults for one model on this machine, each with the record that
// proves it, as a profile that later loads use.

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/machine.h"
#include "bench/ledger.h"
#include "bench/search.h"
#include "bench/tuned_profile.h"
#include "bench_runs.h"
#include "engine/forecast.h"
#include "plan/memory_plan.h"
#include "record_origin.h"
#include "run_settings.h"
#include "terminal.h"
#include "tiles/tile_cache.h"
#include "tune_measure.h"
#include "tune_plan.h"
#include "tune_report.h"
#include "verbs.h"

namespace kazeia::cli {
namespace {

struct TuneRequest {
  TuneArguments arguments;
  bool dry_run = false;
  bool show = false;
  bool forget = false;
};

Status print(std::string text) {
  if (is_terminal(STDOUT_FILENO)) text = without_control_characters(text);
  return Output().write(text);
}

// ---- what cannot end well is said before it takes minutes

// What is measured is written down at the end; a file that could be made now can be made then.
Status check_folders(const TuneArguments& arguments, const std::string& machine_id) {
  KAZEIA_TRY(bench::check_tuned_folder(bench::tuned_folder()));
  std::error_code ignored;
  if (!std::filesystem::exists(arguments.ledger, ignored)) return {};
  const auto records = bench::Ledger(arguments.ledger).read(machine_id);
  if (!records.ok()) return records.error();
  if (::access(arguments.ledger.c_str(), W_OK) == 0) return {};
  return Error(ErrorCode::kWrite,
               fmt::format("cannot write to the ledger '{}': {}", arguments.ledger, std::strerror(errno)),
               "Name another folder with --ledger");
}

Status check_memory(const ModelFlags& model, const TunePlan& plan, std::uint64_t budget_bytes) {
  ModelFlags flags = model;
  flags.context_tokens = plan.context_tokens;
  return check_forecast(flags.path,
                        {.placement = Placement::kCpu,
                         .timeline = flags.timeline(),
                         .tile_cache = !flags.weights.tile_cache_directory.empty()},
                        budget_bytes);
}

// What a value takes of the memory is known before it is tried.
Status leave_out_what_does_not_fit(const ModelFlags& model, TunePlan& plan) {
  const std::uint64_t budget_bytes =
      model.budget_bytes.value_or(plan::default_budget_bytes(read_machine().available_memory_bytes));
  KAZEIA_TRY(check_memory(model, plan, budget_bytes));
  for (bench::SearchedSetting& setting : plan.settings) {
    if (setting.name != "ubatch" && setting.name != "kv") continue;
    std::vector<std::string> fitting;
    for (const std::string& value : setting.values) {
      ModelFlags flags = model;
      KAZEIA_TRY(set_value(flags, setting.name, value));
      const Status fits = check_memory(flags, plan, budget_bytes);
      if (fits.ok()) {
        fitting.push_back(value);
      } else if (fits.error().code() == ErrorCode::kTooLarge) {
        plan.left_out.push_back({setting.name + " " + value, fits.error().message()});
      } else {
        return fits.error();
      }
    }
    setting.values = std::move(fitting);
  }
  std::erase_if(plan.settings, [](const bench::SearchedSetting& setting) { return setting.values.empty(); });
  return {};
}

// ---- the verb

Result<bench::SearchResult> searched(const TuneArguments& arguments, const TunePlan& plan, TuneMeasure& measure) {
  bench::SearchOptions options;
  options.seconds = arguments.minutes * 60;
  // Memory that nobody offered is not spent on speed.
  options.rules.most_bytes = static_cast<double>(arguments.model.budget_bytes.value_or(0));
  if (arguments.accept_noise) options.rules.most_variation = 1;
  bench::SearchSeams seams;
  seams.measure = [&](const std::vector<bench::Choices>& configurations, const bench::Work& work) {
    return measure.measure(plan, configurations, work);
  };
  seams.seconds = [&] { return measure.seconds(); };
  seams.keep = [&](const bench::Proof& proof) { return measure.keep(plan, proof); };
  seams.tell = [](const std::string& sentence) { write_to_stderr("            " + sentence + "\n"); };
  return bench::search(plan.settings, options, seams);
}

Status tune_model(const TuneRequest& request) {
  const TuneArguments& arguments = request.arguments;
  KAZEIA_ASSIGN(const ModelFacts model, read_model_facts(arguments.model.path));
  TuneFacts facts;
  facts.machine = read_machine();
  facts.trained_context_tokens = model.trained_context_tokens;
  facts.recurrent = model.recurrent;
  KAZEIA_ASSIGN(TunePlan plan, plan_tune(arguments, facts));
  KAZEIA_TRY(leave_out_what_does_not_fit(arguments.model, plan));
  if (request.dry_run) {
    return print(arguments.json ? plan_json(plan, arguments.minutes) : plan_text(plan, arguments.minutes));
  }
  bench::Record origin = begin_record("tune");
  KAZEIA_TRY(check_folders(arguments, origin.machine.id));

  const CancelFlag& cancel = catch_stops(SecondInterrupt::kEndsProcess);
  TuneMeasure measure(arguments, model, cancel);
  Result<std::map<std::string, std::string>> warm = measure.warm_up();
  if (!warm.ok() && warm.error().code() == ErrorCode::kCancelled && !cancel.requested()) {
    return Error(ErrorCode::kUsage, fmt::format("{:g} minutes are too few to load the model", arguments.minutes),
                 "Give more --minutes");
  }
  if (!warm.ok()) return warm.error();
  facts.npu = (*warm)["route"] != route_name(Route::kCpu);
  facts.npu_note = (*warm)["route_note"];
  KAZEIA_ASSIGN(plan, plan_tune(arguments, facts));
  KAZEIA_TRY(leave_out_what_does_not_fit(arguments.model, plan));
  KAZEIA_ASSIGN(const bench::SearchResult result, searched(arguments, plan, measure));

  const std::string folder = bench::tuned_folder();
  TuneReport report{plan, result, model.identity.file, measure.seconds(), "", ""};
  origin.model.hash = measure.model_hash();
  if (!result.chosen.empty()) {
    KAZEIA_TRY(bench::write_tuned(folder, profile_of(result, origin)));
    report.profile = bench::tuned_path(folder, origin.machine.id, origin.model.hash);
  } else {
    const bench::LoadedTunedProfile older = bench::read_tuned(folder, origin.machine.id, origin.model.hash);
    if (older.profile) report.kept = older.profile->time;
  }
  KAZEIA_TRY(print(arguments.json ? tune_json(report) : tune_text(report)));
  if (!cancel.requested()) return {};
  return Error(ErrorCode::kCancelled, report.profile.empty() ? "stopped by the user; nothing was proven until then"
                                                             : "stopped by the user; what was proven is kept");
}

// ---- what there is

struct TunedFile {
  std::string folder;
  std::string machine_id;
  std::string hash;

  std::string path() const { return bench::tuned_path(folder, machine_id, hash); }
};

Result<TunedFile> tuned_file(const TuneArguments& arguments) {
  KAZEIA_ASSIGN(const ModelFacts model, read_model_facts(arguments.model.path));
  TunedFile file{bench::tuned_folder(), begin_record("tune").machine.id,
                 Model::remembered_hash(arguments.model.path, hash_memo())};
  if (file.hash.empty()) {
    KAZEIA_ASSIGN(file.hash, tiles::model_hash(model.parts, hash_memo(), 1));
  }
  return file;
}

Status show(const TuneArguments& arguments) {
  KAZEIA_ASSIGN(const TunedFile file, tuned_file(arguments));
  const bench::LoadedTunedProfile loaded = bench::read_tuned(file.folder, file.machine_id, file.hash);
  if (!loaded.note.empty()) write_to_stderr(fmt::format("kazeia: {}.\n", loaded.note));
  if (!loaded.profile) {
    return print(arguments.json ? no_profile_json(file.machine_id, file.hash)
                                : "There is no tuned profile for this model on this machine.\n");
  }
  return print(arguments.json ? profile_json(*loaded.profile, file.path())
                              : profile_text(*loaded.profile, file.path()));
}

Status forget(const TuneArguments& arguments) {
  KAZEIA_ASSIGN(const TunedFile file, tuned_file(arguments));
  std::error_code error;
  const bool removed = !file.folder.empty() && std::filesystem::remove(file.path(), error);
  if (error) {
    return Error(ErrorCode::kWrite, fmt::format("cannot remove '{}': {}", file.path(), error.message()),
                 "Check the permissions of its folder");
  }
  return print(removed ? "The tuned profile is removed: the defaults are used again.\n"
                       : "There is no tuned profile for this model on this machine.\n");
}

Status tune(const TuneRequest& request) {
  if (request.show) return show(request.arguments);
  if (request.forget) return forget(request.arguments);
  return tune_model(request);
}

void add_search_options(CLI::App& verb, TuneArguments& arguments) {
  verb.add_option("--minutes", arguments.minutes,
                  "Time it may take (default 10); it ends earlier if it has nothing to do")
      ->check(CLI::Range(0.01, 10'000.0))
      ->type_name("N");
  verb.add_option("--only", arguments.only, "Search these settings only")->delimiter(',')->type_name("SETTING,...");
  verb.add_flag("--coarser-kv", arguments.coarser_kv,
                "May choose a coarser KV cache, which changes answers a little (otherwise it is shown only)");
  verb.add_option("--budget", arguments.model.budget_bytes,
                  "Memory that may be spent on speed (default: a choice that takes more than the defaults is none)")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->type_name("SIZE");
  verb.add_option("--depth", arguments.most_depth,
                  "Tokens of prompt that are measured (default 1024, or less if the model was trained with less)")
      ->check(CLI::Range(128U, 1U << 20))
      ->type_name("TOKENS");
  verb.add_option("--tile-cache", arguments.model.weights.tile_cache_directory,
                  "Folder with packed weights, as for run and chat: every process of the search loads faster")
      ->type_name("DIR");
  verb.add_option("--profile", arguments.model.route.profile_file,
                  "The file that remembers what this machine's NPU can do")
      ->type_name("FILE");
  verb.add_option("--cool-down", arguments.cool_down_s,
                  "Most seconds to wait for a quiet and cool machine before each process (default 30)")
      ->check(CLI::Range(0.0, 3600.0));
  verb.add_flag("--accept-noise", arguments.accept_noise, "Measure beside other programs, and believe noisy figures");
  verb.add_option("--ledger", arguments.ledger, "The ledger's folder, to which every proof is added (default: ledger)")
      ->type_name("DIR");
}

}  // namespace

void add_tune(CLI::App& app, Action& action) {
  auto request = std::make_shared<TuneRequest>();
  CLI::App* verb =
      app.add_subcommand("tune", "Find settings that are faster than the defaults for a model on this machine");
  verb->description(
      "Tries other settings than the defaults in processes of their own: a short look at all of them, longer ones at\n"
      "the better halves, then proofs, alternately with the defaults. A choice is kept only if the 95 % interval of "
      "its\n"
      "gain excludes none, and no other figure nor the memory gets worse. Loads of the model use what was found.\n"
      "Ctrl-C ends it with what is proven so far.");
  verb->add_option("MODEL", request->arguments.model.path, "The model, a GGUF file (of a split model, the first part)")
      ->required();
  add_search_options(*verb, request->arguments);
  CLI::Option* dry_run =
      verb->add_flag("--dry-run", request->dry_run, "Say what would be searched, and measure nothing");
  CLI::Option* show = verb->add_flag("--show", request->show, "Print what was found before")->excludes(dry_run);
  verb->add_flag("--forget", request->forget, "Remove what was found before")->excludes(dry_run)->excludes(show);
  verb->add_flag("--json", request->arguments.json, "Print one JSON object");
  verb->footer("`kazeia why` tells what is in force and where it comes from; --no-profile leaves the choices aside.");
  verb->callback([request, &action] { action = [request] { return tune(*request); }; });
}

}  // namespace kazeia::cli
