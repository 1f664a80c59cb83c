// What `kazeia tune` is asked for, and what it therefore searches on this machine. Nothing is run here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/machine.h"
#include "base/result.h"
#include "bench/search.h"
#include "options.h"

namespace kazeia::cli {

struct TuneArguments {
  ModelFlags model;  // the defaults, with what is fixed: path, tile cache, NPU profile
  double minutes = 10;
  std::vector<std::string> only;  // settings; empty: all
  bool coarser_kv = false;
  std::uint32_t most_depth = 1024;  // tokens before the decode that is measured
  double cool_down_s = 30;
  bool accept_noise = false;
  std::string ledger = "ledger";
  bool json = false;
};

// What the plan depends on besides.
struct TuneFacts {
  MachineFacts machine;
  std::uint64_t trained_context_tokens = 0;  // 0 = the file does not say
  bool recurrent = false;                    // a state that cannot be cut back
  // Whether the NPU is there and computes what the CPU computes; not known before the model is loaded.
  std::optional<bool> npu;
  std::string npu_note;  // why not
};

struct LeftOut {
  std::string setting;  // or a value of it: "ubatch 1024"
  std::string reason;   // one phrase
};

struct TunePlan {
  std::uint32_t depth = 0;           // of decode_<depth>; the other figures follow
  std::uint32_t context_tokens = 0;  // for all of them
  std::vector<bench::SearchedSetting> settings;
  std::vector<LeftOut> left_out;

  std::string decode() const;  // the figures' names
  std::string prefill() const;
  std::string prefill_at() const;  // what a turn of a chat reads
};

// kUsage for a name in `only` that is no setting or that nothing is searched of; kUnsupported for a model with too
// little context.
Result<TunePlan> plan_tune(const TuneArguments& arguments, const TuneFacts& facts);

// The steps of a measured process: short ones of some figures, or all in full. A figure's name, by that of its step.
struct TuneSteps {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> figures;  // step's name, figure
};
TuneSteps steps_of(const TunePlan& plan, const bench::Work& work);

}  // namespace kazeia::cli
