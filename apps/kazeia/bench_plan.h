// What `kazeia bench` is asked for, and what it therefore measures. No file is read and nothing is run here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/protocol.h"
#include "engine/route.h"
#include "record_origin.h"

namespace kazeia::cli {

struct BenchArguments {
  std::string model;
  // How the model runs.
  int threads = 0;                              // 0 = the engine's choice
  std::optional<std::uint32_t> context_tokens;  // not given: what the figures need
  std::string kv_type = "f16";
  std::string tile_cache;
  RouteOptions route;
  // What is measured.
  std::vector<std::int64_t> prefill;     // empty: the default
  std::vector<std::int64_t> depths;      // empty: the default
  std::vector<std::int64_t> prefill_at;  // empty: the default; none by default if one of the two above is given
  bool quick = false;
  bool no_turns = false;
  std::string baseline;  // "upstream", or empty
  bool routes = false;
  double soak_seconds = 0;  // 0 = none
  // How it is measured.
  bench::ProtocolOptions protocol;
  bool accept_noise = false;
};

struct BenchPlan {
  int threads = 1;
  std::uint32_t context_tokens = 0;
  std::vector<std::string> plain_steps;  // what both sides of a comparison can do
  std::vector<std::string> steps;        // these and the chat
  std::map<std::string, std::string> settings;
  std::vector<std::string> remarks;  // what is left out and why, one sentence each without its period
};

// kUsage if what was asked for by number does not fit the context that was asked for.
Result<BenchPlan> plan_bench(const BenchArguments& arguments, const ModelFacts& facts, int default_threads);

// "90", "90s", "60m", "1.5h" in seconds; nullopt for anything else and for 0.
std::optional<double> parse_duration(const std::string& text);

}  // namespace kazeia::cli
