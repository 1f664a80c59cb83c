// How `kazeia tune` measures: processes of their own by the bench's protocol, until the time is over, and a record for
// each proof.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/result.h"
#include "bench/moment.h"
#include "bench/search.h"
#include "bench/watched_child.h"
#include "record_origin.h"
#include "tune_plan.h"

namespace kazeia::cli {

class TuneMeasure {
 public:
  // All of them must outlive it. The time begins now.
  TuneMeasure(const TuneArguments& arguments, const ModelFacts& facts, const CancelFlag& cancel);

  // A short process, after which the file is in the page cache, the tile cache filled, the NPU checked and the model's
  // hash remembered where a chat looks for it. Returns the facts that it told. Errors: those of the child, kCancelled.
  Result<std::map<std::string, std::string>> warm_up();

  // As SearchSeams have them. kCancelled: the user stopped, or the time is over.
  Result<bench::Round> measure(const TunePlan& plan, const std::vector<bench::Choices>& configurations,
                               const bench::Work& work);
  double seconds() const { return clock_.elapsed_ms() / 1000; }
  // Appends the record of a proof to the ledger and returns its id.
  Result<std::string> keep(const TunePlan& plan, const bench::Proof& proof) const;

  const std::string& model_hash() const { return model_hash_; }

 private:
  std::vector<std::string> command(std::uint32_t context_tokens, const bench::Choices& choices,
                                   const std::vector<std::string>& words) const;
  bench::MeasuringSeams seams();
  // Not ok if measuring has to end.
  Status ended();
  void tell(const std::string& line) const;

  const TuneArguments& arguments_;
  const ModelFacts& facts_;
  const CancelFlag& cancel_;
  Stopwatch clock_;
  bench::MachineReader reader_;
  double first_temperature_c_ = 0;
  CancelFlag stop_;  // the user's wish, or the end of the time
  std::string model_hash_;
};

// "decode_threads 1, poll 50", or "the defaults"
std::string choices_text(const bench::Choices& choices);

}  // namespace kazeia::cli
