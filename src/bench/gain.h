// What one configuration brings over another, figure by figure, and whether that is enough to choose it. Pure
// decisions.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/comparison.h"
#include "bench/statistics.h"

namespace kazeia::bench {

// One run of a configuration: figures by name, named as make_figure() understands them.
using Sample = std::map<std::string, double>;

struct FigureGain {
  std::string figure{};
  std::vector<double> tuned{};    // one a round
  std::vector<double> instead{};  // of the same rounds
  // Above 1 is better, also of figures that are better when they are low.
  Ratio gain{};
};

// Round i is tuned[i] against instead[i]; figures that are not in every run of both are left out.
std::vector<FigureGain> gains_of(const std::vector<Sample>& tuned, const std::vector<Sample>& instead);

// A loss that is accepted beside a gain; less is not told from noise with the few rounds that there are.
inline constexpr double kMostLoss = 0.02;

struct GainRules {
  // A gain in one of these is what is looked for. In every other figure there may be no loss.
  std::vector<std::string> wanted{};
  double least = kLeastDifference;
  double most_loss = kMostLoss;
  // Of the ratios of the rounds. More is no evidence, unless even the lower end of the gain is beyond it.
  double most_variation = kMostVariation;
  // Figures of bytes may grow, but not beyond this; 0: they may not grow.
  double most_bytes = 0;
};

enum class Judgement { kWon, kUndecided, kLost };

struct Judged {
  Judgement judgement = Judgement::kUndecided;
  std::string figure{};  // of kWon: the one with the highest lower end
  // One phrase: "decode_1024 1.08x (1.05 to 1.11)"; of kLost and kUndecided, what is in its way.
  std::string reason{};
};

// kWon: the interval of a wanted gain lies beyond 1 by more than `least`, no figure is lost. kLost: there is no such
// gain to be expected, or something is lost. kUndecided: more rounds may tell.
Judged judge(const std::vector<FigureGain>& gains, const GainRules& rules);

// "1.08x (1.05 to 1.11)"
std::string gain_text(const Ratio& gain);

}  // namespace kazeia::bench
