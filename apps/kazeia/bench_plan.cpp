#include "bench_plan.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

namespace kazeia::cli {
namespace {

constexpr std::int64_t kDecodeTokens = 32;
constexpr std::int64_t kBehindDepth = 64;
constexpr std::int64_t kTurnPrompt = 512;  // what a turn of a chat adds to a conversation
constexpr const char* kTurn = "turn:700:64";
// The turn, the short exchange before it, and what a template puts around them.
constexpr std::int64_t kTurnTokens = 1024;
constexpr std::int64_t kTurnReserve = 256;   // for a long system message of the template's own
constexpr std::int64_t kSoakContext = 2048;  // four turns of 128 and 64 tokens
constexpr double kSoakInterval = 30;

const std::vector<std::int64_t> kPrefill{128, 512, 1024, 2048};
const std::vector<std::int64_t> kDepths{0, 1024, 4096, 8192, 16384, 32768};
const std::vector<std::int64_t> kPrefillAt{4096, 16384};

std::string joined(const std::vector<std::int64_t>& values) {
  return values.empty() ? "none" : fmt::format("{}", fmt::join(values, ","));
}

// `defaults` or, if given, exactly what was asked for.
Result<std::vector<std::int64_t>> chosen(const char* what, const std::vector<std::int64_t>& asked,
                                         const std::vector<std::int64_t>& defaults, std::int64_t most,
                                         BenchPlan& plan) {
  std::vector<std::int64_t> values = asked.empty() ? defaults : asked;
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  const auto too_large = std::upper_bound(values.begin(), values.end(), most);
  if (too_large == values.end()) return values;
  if (!asked.empty()) {
    return Error(ErrorCode::kUsage, fmt::format("{} {} does not fit the context", what, *too_large),
                 "Give a larger --context, or leave it out: it is then as large as needed");
  }
  plan.remarks.push_back(fmt::format("not measured, because the context ends before: {} {}", what,
                                     joined(std::vector<std::int64_t>(too_large, values.end()))));
  values.erase(too_large, values.end());
  return values;
}

void plan_soak(const BenchArguments& arguments, BenchPlan& plan) {
  plan.context_tokens = arguments.context_tokens.value_or(kSoakContext);
  const double interval = std::min(kSoakInterval, arguments.soak_seconds / 10);
  plan.steps = {fmt::format("soak:{}:{}", arguments.soak_seconds, interval)};
  plan.settings["soak_seconds"] = fmt::format("{}", arguments.soak_seconds);
}

}  // namespace

Result<BenchPlan> plan_bench(const BenchArguments& arguments, const ModelFacts& facts, int default_threads) {
  BenchPlan plan;
  plan.threads = arguments.threads > 0 ? arguments.threads : default_threads;
  plan.settings = {{"threads", std::to_string(plan.threads)},
                   {"kv", arguments.kv_type},
                   {"tile_cache", arguments.tile_cache.empty() ? "no" : "yes"}};
  if (arguments.soak_seconds > 0) {
    plan_soak(arguments, plan);
    plan.settings["context"] = std::to_string(plan.context_tokens);
    return plan;
  }
  // Without a wish, the context is as large as the figures need, and these end where the model's training ended.
  constexpr std::int64_t kUnlimited = std::int64_t{1} << 31;
  const std::int64_t trained =
      facts.trained_context_tokens > 0
          ? static_cast<std::int64_t>(std::min<std::uint64_t>(facts.trained_context_tokens, kUnlimited))
          : kUnlimited;
  const std::int64_t context = arguments.context_tokens.value_or(static_cast<std::uint32_t>(trained));
  const auto defaults = [&](std::vector<std::int64_t> all, std::vector<std::int64_t> few) {
    return arguments.quick ? std::move(few) : std::move(all);
  };
  const std::int64_t most = arguments.context_tokens ? context : kUnlimited;
  const auto limit = [&](const std::vector<std::int64_t>& asked) { return asked.empty() ? context : most; };
  KAZEIA_ASSIGN(const std::vector<std::int64_t> prefill,
                chosen("--prefill", arguments.prefill, defaults(kPrefill, {512}), limit(arguments.prefill) - 1, plan));
  KAZEIA_ASSIGN(const std::vector<std::int64_t> depths,
                chosen("--depths", arguments.depths, defaults(kDepths, {0, 1024}),
                       limit(arguments.depths) - kDecodeTokens - 1, plan));
  const bool chosen_figures = !arguments.prefill.empty() || !arguments.depths.empty();
  KAZEIA_ASSIGN(const std::vector<std::int64_t> prefill_at,
                chosen("--prefill-at", arguments.prefill_at,
                       chosen_figures ? std::vector<std::int64_t>() : defaults(kPrefillAt, {4096}),
                       limit(arguments.prefill_at) - kTurnPrompt, plan));
  const bool turns = !arguments.no_turns && context >= kTurnTokens;
  if (!arguments.no_turns && !turns) {
    plan.remarks.push_back(fmt::format("turns are not measured: they need a context of {} tokens", kTurnTokens));
  }

  std::int64_t needed = turns ? kTurnTokens + kTurnReserve : 256;
  if (!prefill.empty()) needed = std::max(needed, prefill.back() + kBehindDepth);
  if (!depths.empty()) needed = std::max(needed, depths.back() + kBehindDepth);
  if (!prefill_at.empty()) needed = std::max(needed, prefill_at.back() + kTurnPrompt + kBehindDepth);
  plan.context_tokens = arguments.context_tokens.value_or(static_cast<std::uint32_t>(needed));

  for (const std::int64_t tokens : prefill) plan.plain_steps.push_back(fmt::format("prefill:{}", tokens));
  for (const std::int64_t depth : depths) plan.plain_steps.push_back(fmt::format("decode:{}:{}", depth, kDecodeTokens));
  for (const std::int64_t depth : prefill_at)
    plan.plain_steps.push_back(fmt::format("prefill:{}@{}", kTurnPrompt, depth));
  plan.steps = plan.plain_steps;
  plan.steps.emplace_back("ttft");
  if (turns) plan.steps.emplace_back(kTurn);
  plan.settings["context"] = std::to_string(plan.context_tokens);
  plan.settings["prefill"] = joined(prefill);
  plan.settings["depths"] = joined(depths);
  plan.settings["prefill_at"] = joined(prefill_at);
  plan.settings["decode_tokens"] = std::to_string(kDecodeTokens);
  plan.settings["turns"] = turns ? kTurn : "none";
  return plan;
}

std::optional<double> parse_duration(const std::string& text) {
  const std::size_t digits = text.find_first_not_of("0123456789.");
  const std::string number = text.substr(0, digits);
  const std::string unit = digits == std::string::npos ? "s" : text.substr(digits);
  double seconds = unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  char* after = nullptr;
  seconds *= std::strtod(number.c_str(), &after);
  if (number.empty() || after != number.c_str() + number.size() || seconds <= 0) return std::nullopt;
  return seconds;
}

}  // namespace kazeia::cli
