// The runs of `kazeia bench`: one configuration, two sides, one for each route, or a soak. Each fills the figures of a
// record.
#pragma once

#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/result.h"
#include "bench/record.h"
#include "bench_plan.h"

namespace kazeia::cli {

struct BenchRun {
  bench::Record record;  // not sealed yet
  std::string noise;     // "ttft_ms varied by 7.2 %, more than 5 %"; empty: nothing varied more than was allowed
};

// What the runs have in common.
struct Workbench {
  const BenchArguments& arguments;
  const ModelFacts& facts;
  const BenchPlan& plan;
  const CancelFlag& cancel;
};

Result<BenchRun> run_one(const Workbench& work);       // kind "bench"
Result<BenchRun> run_baseline(const Workbench& work);  // kind "baseline"; kFile if the other side is not built
Result<BenchRun> run_routes(const Workbench& work);    // kind "routes"
Result<BenchRun> run_soak(const Workbench& work);      // kind "soak"

// Where a chat remembers the hashes of models, so that a file is read once only.
std::string hash_memo();

// --- For the runs themselves.
// This program as a measured process, without the model and the steps.
std::vector<std::string> probe_command(const Workbench& work, Route route);
// These, at the end of a command of either side.
std::vector<std::string> with_steps(const Workbench& work, std::vector<std::string> command,
                                    const std::vector<std::string>& steps);
// A short process that finds the file in the page cache afterwards, the NPU checked and the tile cache filled; it tells
// the model's hash.
std::vector<std::string> warm_up_command(const Workbench& work, Route route);
// A record with everything but figures and hash. Says on standard error what is left out.
BenchRun begin_run(const Workbench& work, const std::string& kind);

}  // namespace kazeia::cli
