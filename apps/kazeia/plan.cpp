// `kazeia plan`: what a model will take of the memory, before anything is allocated.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/machine.h"
#include "base/units.h"
#include "engine/forecast.h"
#include "options.h"
#include "plan/memory_plan.h"
#include "run_settings.h"
#include "terminal.h"
#include "verbs.h"

namespace kazeia::cli {
namespace {

using Json = nlohmann::ordered_json;

struct PlanArguments {
  ModelFlags model;
  bool json = false;
};

Json to_json(const plan::MemoryPlan& memory, std::uint64_t budget, const std::vector<plan::Change>& changes) {
  Json parts = Json::object();
  for (const plan::MemoryPart& part : memory.parts) parts[part.name] = part.bytes;
  Json list = Json::array();
  for (const plan::Change& change : changes)
    list.push_back({{"change", change.text}, {"peak_bytes", change.peak_bytes}});
  return {{"peak_bytes", memory.peak_bytes()},
          {"evictable_bytes", memory.evictable_bytes()},
          {"budget_bytes", budget},
          {"fits", budget == 0 || memory.peak_bytes() <= budget},
          {"parts", std::move(parts)},
          {"changes_that_fit", std::move(list)}};
}

void print_table(const plan::MemoryPlan& memory, std::uint64_t budget, const std::vector<plan::Change>& changes) {
  for (const plan::MemoryPart& part : memory.parts) {
    fmt::print("{:<16} {:>10}  {}{}\n", part.name, format_bytes(part.bytes), part.meaning,
               part.evictable ? " (evictable: pages of a file)" : "");
  }
  fmt::print("{:<16} {:>10}\n", "peak", format_bytes(memory.peak_bytes()));
  if (budget == 0) return;
  const bool fits = memory.peak_bytes() <= budget;
  fmt::print("{:<16} {:>10}  {}\n", "budget", format_bytes(budget), fits ? "it fits" : "it does not fit");
  for (const plan::Change& change : changes) {
    fmt::print("  would fit: {} ({})\n", change.text, format_bytes(change.peak_bytes));
  }
  if (!fits && changes.empty()) fmt::print("  no smaller setting fits: use a smaller model\n");
}

Status plan_memory(const PlanArguments& arguments) {
  ModelFlags flags = arguments.model;
  const ResolvedSettings resolved = resolve_settings(flags);
  if (!resolved.note.empty()) write_to_stderr(fmt::format("kazeia: {}.\n", resolved.note));
  const bool npu = flags.route.route == Route::kNpuPrefill || flags.route.route == Route::kNpuOnly;
  ForecastRequest request{.placement = npu ? Placement::kNpu : Placement::kCpu,
                          .timeline = flags.timeline(),
                          .checkpoint_bytes = flags.checkpoints().memory_budget_bytes,
                          .tile_cache = !flags.weights.tile_cache_directory.empty()};
  KAZEIA_ASSIGN(const std::unique_ptr<Forecaster> forecaster, Forecaster::open(flags.path, request.placement));
  if (!flags.context_tokens && forecaster->trained_context_tokens() != 0) {
    request.timeline.context_tokens = std::min(request.timeline.context_tokens, forecaster->trained_context_tokens());
  }
  KAZEIA_ASSIGN(const plan::MemoryPlan memory, forecaster->forecast(request));
  const std::uint64_t budget =
      flags.budget_bytes.value_or(plan::default_budget_bytes(read_machine().available_memory_bytes));
  std::vector<plan::Change> changes;
  if (budget != 0 && memory.peak_bytes() > budget) {
    const auto again = [&](const plan::PlanSettings& settings) {
      return forecaster->forecast(with_settings(request, settings));
    };
    KAZEIA_ASSIGN(changes, plan::changes_that_fit(settings_of(request), budget, again));
  }
  if (arguments.json) {
    fmt::print("{}\n", to_json(memory, budget, changes).dump(2));
  } else {
    print_table(memory, budget, changes);
  }
  return {};
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* verb = app.add_subcommand("plan", "What a model will take of the memory, part by part; nothing is loaded");
  verb->description(
      "The most memory that a chat with this model takes, part by part, and whether that fits the budget; if not, "
      "what\n"
      "would. Nothing is loaded. Every verb that loads a model refuses what does not fit, with the same arithmetic.");
  add_model_flags(*verb, arguments->model);
  add_setting_flag(*verb, arguments->model, "checkpoint_memory",
                   "Most memory for states that may be wanted again (chat); 256MB if not given, 0 for `run`");
  verb->add_flag("--json", arguments->json, "Print one JSON object");
  verb->callback([arguments, &action] { action = [arguments] { return plan_memory(*arguments); }; });
}

}  // namespace kazeia::cli
