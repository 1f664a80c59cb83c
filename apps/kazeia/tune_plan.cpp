#include "tune_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/cpu_list.h"
#include "bench/steps.h"
#include "plan/settings.h"
#include "plan/threads.h"
#include "run_settings.h"

namespace kazeia::cli {
namespace {

using bench::SearchedSetting;

constexpr std::uint32_t kLeastDepth = 128;
constexpr std::uint32_t kBehind = 64;  // room behind the last figure
constexpr int kDecodeTokens = 32;
constexpr int kFirstDecodeTokens = 8;
constexpr int kPrefillLevels = 2;                   // a first look reads a quarter of the prompt
constexpr const char* kShortPrompt = "prefill_64";  // at the NPU's threshold
constexpr const char* kUnsearched = "context and checkpoint_memory are what the user needs, not what is fast";

// Not all of many: where the speed bends is between these.
std::vector<std::string> thread_counts(int most) {
  std::vector<int> counts;
  if (most <= 4) {
    for (int threads = 1; threads < most; ++threads) counts.push_back(threads);
  } else {
    counts = {most / 4, most / 2, most * 3 / 4, most - 1};
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  }
  std::vector<std::string> texts;
  for (auto threads = counts.rbegin(); threads != counts.rend(); ++threads) texts.push_back(std::to_string(*threads));
  return texts;
}

// The fastest class of cores, the two fastest classes, ... but not all.
std::vector<std::string> clusters(const MachineFacts& machine) {
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<int>, std::greater<>> classes;
  for (const CoreFacts& core : machine.cores) {
    if (core.allowed) classes[{core.capacity, core.max_khz}].push_back(core.id);
  }
  std::vector<std::string> lists;
  std::vector<int> cores;
  std::size_t behind = classes.size();
  for (const auto& [speed, ids] : classes) {
    cores.insert(cores.end(), ids.begin(), ids.end());
    if (--behind == 0) break;
    std::sort(cores.begin(), cores.end());
    if (cores.size() > 1) lists.push_back(cpu_list_text(cores));
  }
  return lists;
}

class Planner {
 public:
  Planner(const TuneArguments& arguments, const TuneFacts& facts) : arguments_(arguments), facts_(facts) {}

  Result<TunePlan> plan();

 private:
  Status choose_depth();
  void add(SearchedSetting setting);
  void leave_out(const std::string& setting, const std::string& reason) {
    if (is_asked(setting)) plan_.left_out.push_back({setting, reason});
  }
  bool is_asked(const std::string& setting) const {
    const auto& only = arguments_.only;
    return only.empty() || std::find(only.begin(), only.end(), setting) != only.end();
  }
  void add_threads();
  void add_cores();
  void add_memory();
  void add_npu();

  const TuneArguments& arguments_;
  const TuneFacts& facts_;
  TunePlan plan_;
};

Status Planner::choose_depth() {
  const std::uint64_t trained = facts_.trained_context_tokens;
  std::uint32_t depth = kLeastDepth;
  const auto context = [](std::uint32_t at) { return 2 * at + at / 2 + kBehind; };
  if (trained > 0 && context(depth) > trained) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("the model was trained with {} tokens of context, too few to measure at", trained),
                 "Its settings can be given as flags (`kazeia run --help`)");
  }
  while (depth * 2 <= arguments_.most_depth && (trained == 0 || context(depth * 2) <= trained)) depth *= 2;
  plan_.depth = depth;
  plan_.context_tokens = context(depth);
  return {};
}

void Planner::add(SearchedSetting setting) {
  if (!is_asked(setting.name)) return;
  setting.instead = value_of(arguments_.model, setting.name);
  std::erase(setting.values, setting.instead);
  if (setting.values.empty()) return leave_out(setting.name, "there is nothing else to try");
  plan_.settings.push_back(std::move(setting));
}

void Planner::add_threads() {
  const int threads = plan::default_threads(facts_.machine);
  if (threads < 2) {
    leave_out("decode_threads", "there is one core");
    leave_out("prefill_threads", "there is one core");
    return;
  }
  add({.name = "decode_threads", .values = thread_counts(threads), .figures = {plan_.decode()}});
  add({.name = "prefill_threads", .values = thread_counts(threads), .figures = {plan_.prefill()}});
}

void Planner::add_cores() {
  const std::vector<std::string> lists = clusters(facts_.machine);
  if (lists.empty()) {
    leave_out("cores", "all cores are alike");
    return;
  }
  add({.name = "cores", .values = lists, .figures = {plan_.decode(), plan_.prefill()}});
}

void Planner::add_memory() {
  // Less than all of the prompt would not show what a wide piece brings.
  std::vector<std::string> widths{"128", "256", "1024"};
  std::erase_if(widths, [&](const std::string& width) { return std::stoul(width) > plan_.depth; });
  add({.name = "ubatch", .values = widths, .figures = {plan_.prefill()}, .first_level = kPrefillLevels});
  if (facts_.machine.huge_pages == "never" || facts_.machine.huge_pages.empty()) {
    leave_out("huge_pages", "this system has none");
  } else {
    add({.name = "huge_pages", .values = {"off"}, .figures = {plan_.decode(), plan_.prefill()}});
  }
}

void Planner::add_npu() {
  for (const char* setting : {"route", "npu_min_width"}) {
    if (!facts_.npu) {
      leave_out(setting, "only if there is an NPU that passes its self-check, which takes the model");
    } else if (!*facts_.npu) {
      leave_out(setting, facts_.npu_note.empty() ? "this machine has no NPU" : facts_.npu_note);
    }
  }
  if (!facts_.npu.value_or(false)) return;
  add({.name = "route",
       .values = {"cpu"},  // npu-only has no check of single tokens
       .figures = {plan_.prefill(), plan_.decode(), plan_.prefill_at()}});
  add({.name = "npu_min_width", .values = {"32", "64", "128"}, .figures = {kShortPrompt}});
}

Result<TunePlan> Planner::plan() {
  for (const std::string& name : arguments_.only) {
    if (plan::find_setting(name) == nullptr) {
      return Error(ErrorCode::kUsage, fmt::format("there is no setting '{}'", name), "`kazeia why` lists them");
    }
    if (name == "context" || name == "checkpoint_memory") {
      return Error(ErrorCode::kUsage, fmt::format("'{}' is not searched: {}", name, kUnsearched),
                   "Leave it out of --only");
    }
  }
  KAZEIA_TRY(choose_depth());
  add_threads();
  add_cores();
  add({.name = "poll", .values = {"0", "50", "100"}, .figures = {plan_.decode(), plan_.prefill()}});
  add({.name = "flash_attention", .values = {"off"}, .figures = {plan_.decode(), plan_.prefill(), plan_.prefill_at()}});
  add({.name = "attention", .values = {"upstream"}, .figures = {plan_.decode(), plan_.prefill_at()}});
  add_memory();
  add_npu();
  add({.name = "kv",
       .values = arguments_.coarser_kv ? std::vector<std::string>{"q8_0", "q4_0"} : std::vector<std::string>{"q8_0"},
       .figures = {plan_.decode(), plan_.prefill_at()},
       .only_shown = !arguments_.coarser_kv});
  leave_out("checkpoint_spacing",
            facts_.recurrent ? "it pays in later turns of a long chat, which these figures do not have (decision 0018)"
                             : "the model has no state that cannot be cut back");
  if (arguments_.only.empty()) {
    plan_.left_out.push_back({"op placement", "the NPU's operations are placed by `kazeia doctor --npu --save`"});
  }
  if (plan_.settings.empty()) {
    const std::string why = plan_.left_out.empty() ? "" : ": " + plan_.left_out.front().reason;
    return Error(ErrorCode::kUsage, "there is nothing to search" + why, "Leave out --only");
  }
  return std::move(plan_);
}

}  // namespace

std::string TunePlan::decode() const {
  return fmt::format("decode_{}", depth);
}

std::string TunePlan::prefill() const {
  return fmt::format("prefill_{}", depth);
}

std::string TunePlan::prefill_at() const {
  return fmt::format("prefill_{}_at_{}", depth / 2, 2 * depth);
}

Result<TunePlan> plan_tune(const TuneArguments& arguments, const TuneFacts& facts) {
  return Planner(arguments, facts).plan();
}

TuneSteps steps_of(const TunePlan& plan, const bench::Work& work) {
  const bool full = work.figures.empty();
  const auto is_asked = [&](const std::string& figure) {
    return full || std::find(work.figures.begin(), work.figures.end(), figure) != work.figures.end();
  };
  // Levels have a quarter, half and all of the tokens.
  const int halvings = full ? 0 : std::max(0, kPrefillLevels - work.level);
  TuneSteps steps;
  const auto add = [&](const std::string& figure, const std::string& word) {
    steps.words.push_back(word);
    steps.figures.emplace_back(bench::parse_step(word)->name, figure);
  };
  const bool npu = std::any_of(plan.settings.begin(), plan.settings.end(),
                               [](const SearchedSetting& setting) { return setting.name == "npu_min_width"; });
  if (npu && is_asked(kShortPrompt)) add(kShortPrompt, "prefill:64");
  if (is_asked(plan.prefill())) add(plan.prefill(), fmt::format("prefill:{}", plan.depth >> halvings));
  if (is_asked(plan.decode())) {
    // The full prompt leaves the state of which decode goes on; a depth just over what is always read costs nothing.
    const bool cheap = !full && plan.depth >= bench::kReadDepth;
    const int tokens = full ? kDecodeTokens : std::min(kDecodeTokens, kFirstDecodeTokens << work.level);
    add(plan.decode(), fmt::format("decode:{}:{}", plan.depth + (cheap ? 1 : 0), tokens));
  }
  if (is_asked(plan.prefill_at())) {
    add(plan.prefill_at(), fmt::format("prefill:{}@{}", (plan.depth / 2) >> halvings, 2 * plan.depth));
  }
  return steps;
}

}  // namespace kazeia::cli
