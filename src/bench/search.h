// Finds settings that are better than the defaults, in bounded time, by a way of measuring that is given to it.
//
// 1. Successive halving: every other value of every setting is tried alone beside the defaults, with little work; the
//    better half of them again with twice the work, until few are left. This proves nothing: it finds what is worth
//    proving.
// 2. Proofs: the best value of each setting, the most promising first, against its default with everything else as
//    chosen so far, and, once something is chosen, against the defaults as well: A B C A B C, all figures. It is chosen
//    only if both intervals exclude 1 and no figure is lost (bench/gain.h).
// 3. At the end each choice is proven once more, now with everything else as chosen in the end, and the whole against
// the
//    defaults. What does not hold is given up; if the whole does not win, everything.
//
// So what is chosen was proven at any moment, and the search can be stopped at any moment. A round that would not be
// over in time is not begun: how long one takes is known from those before. The same samples at the same times lead to
// the same choices.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "bench/gain.h"
#include "bench/record.h"

namespace kazeia::bench {

// Values by setting; what is not in it has its default.
using Choices = std::map<std::string, std::string>;

struct SearchedSetting {
  std::string name{};
  std::string instead{};               // the default
  std::vector<std::string> values{};   // the others
  std::vector<std::string> figures{};  // in which a gain is wanted
  int first_level = 0;                 // less work would not show its effect
  // Measured at the end, with a proof, and not chosen.
  bool only_shown = false;
};

// How much is done in one run: level 0, 1, ... each with twice the work of the one before, for the figures that are
// named alone; or a proof, with all figures.
inline constexpr int kProofLevel = 100;
struct Work {
  int level = kProofLevel;
  std::vector<std::string> figures{};  // empty: all
};

// One run of each configuration.
struct Round {
  std::vector<Sample> samples{};  // in the order of the configurations
  std::vector<MachineMoment> moments{};
  std::string disturbance{};  // not empty: it is no evidence
};

// Two configurations that were measured alternately.
struct Proof {
  std::string setting{};  // empty: the whole against the defaults
  std::string value{};
  std::string instead{};
  Choices tuned{};
  Choices without{};
  std::vector<FigureGain> gains{};
  std::vector<MachineMoment> moments{};
  std::string disturbance{};  // of rounds that could not be had undisturbed
  Judged judged{};
  std::string record{};  // what SearchSeams::keep returned

  const FigureGain* gain(const std::string& figure) const;  // null if there is none
};

struct SearchOptions {
  double seconds = 600;
  int least_rounds = 4;  // of a proof; then two more at a time
  int most_rounds = 8;
  std::size_t finalists = 4;      // most values that are proven
  double screening_share = 0.45;  // of the time
  GainRules rules{};              // `wanted` is filled in
};

struct SearchSeams {
  // Errors: kCancelled ends the search with what is chosen (also if it was the time that ended). Any other is one of
  // the configurations': a value that cannot be run is left out, and if the defaults cannot, it is the search's error.
  std::function<Result<Round>(const std::vector<Choices>& configurations, const Work& work)> measure;
  std::function<double()> seconds;  // since the search began
  // Keeps a proof, whatever came out, and returns its record's id. An error is the search's.
  std::function<Result<std::string>(const Proof& proof)> keep;
  std::function<void(const std::string& sentence)> tell;  // without its period; may be empty
};

// What became of one setting.
struct Finding {
  std::string setting{};
  std::string value{};  // the best that was tried; empty: none
  bool chosen = false;
  std::string reason{};  // of one that is not chosen
};

struct SearchResult {
  Choices chosen{};
  std::vector<Proof> proofs{};      // the newest of each choice, in the order of choosing
  std::vector<Proof> shown{};       // of settings that are only shown
  Proof whole{};                    // newest, of `chosen` against the defaults; without gains if nothing is chosen
  std::vector<Finding> findings{};  // in the order of the settings
  std::string ended{};              // why before its end: "stopped", "the time was over"; empty: it came to its end
};

Result<SearchResult> search(const std::vector<SearchedSetting>& settings, const SearchOptions& options,
                            const SearchSeams& seams);

}  // namespace kazeia::bench
