#include "bench/gain.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "base/units.h"
#include "bench/figures.h"

namespace kazeia::bench {
namespace {

bool is_wanted(const FigureGain& gain, const GainRules& rules) {
  return std::find(rules.wanted.begin(), rules.wanted.end(), gain.figure) != rules.wanted.end();
}

bool is_bytes(const FigureGain& gain) {
  return std::string_view(gain.figure).ends_with("_bytes");
}

// Empty if nothing is lost here.
std::string loss_of(const FigureGain& gain, const GainRules& rules) {
  if (is_bytes(gain) && rules.most_bytes > 0) {
    const double most = *std::max_element(gain.tuned.begin(), gain.tuned.end());
    if (most <= rules.most_bytes) return "";
    return fmt::format("{} would be {}", gain.figure, format_bytes(static_cast<std::uint64_t>(most)));
  }
  if (difference(gain.gain, rules.most_loss) != Difference::kLess) return "";
  if (is_bytes(gain)) {
    return fmt::format("{} grows from {} to {}", gain.figure,
                       format_bytes(static_cast<std::uint64_t>(median(gain.instead))),
                       format_bytes(static_cast<std::uint64_t>(median(gain.tuned))));
  }
  return fmt::format("{} gets worse: {}", gain.figure, gain_text(gain.gain));
}

double variation_of(const FigureGain& gain) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < gain.tuned.size(); ++i) ratios.push_back(gain.tuned[i] / gain.instead[i]);
  return coefficient_of_variation(ratios);
}

}  // namespace

std::vector<FigureGain> gains_of(const std::vector<Sample>& tuned, const std::vector<Sample>& instead) {
  const std::size_t rounds = std::min(tuned.size(), instead.size());
  std::vector<FigureGain> gains;
  if (rounds == 0) return gains;
  for (const auto& [name, first] : tuned.front()) {
    FigureGain gain;
    gain.figure = name;
    for (std::size_t i = 0; i < rounds; ++i) {
      const auto a = tuned[i].find(name);
      const auto b = instead[i].find(name);
      if (a == tuned[i].end() || b == instead[i].end() || !(a->second > 0) || !(b->second > 0)) break;
      gain.tuned.push_back(a->second);
      gain.instead.push_back(b->second);
    }
    if (gain.tuned.size() != rounds) continue;
    gain.gain = make_figure(name, {first}).higher_is_better ? median_of_ratios(gain.tuned, gain.instead)
                                                            : median_of_ratios(gain.instead, gain.tuned);
    gains.push_back(std::move(gain));
  }
  return gains;
}

Judged judge(const std::vector<FigureGain>& gains, const GainRules& rules) {
  const FigureGain* best = nullptr;
  const FigureGain* hope = nullptr;
  for (const FigureGain& gain : gains) {
    if (std::string loss = loss_of(gain, rules); !loss.empty()) return {Judgement::kLost, "", std::move(loss)};
    if (!is_wanted(gain, rules)) continue;
    if (best == nullptr || gain.gain.low > best->gain.low) best = &gain;
    if (hope == nullptr || gain.gain.median > hope->gain.median) hope = &gain;
  }
  if (best == nullptr) return {Judgement::kLost, "", "it was not measured"};
  if (difference(best->gain, rules.least) == Difference::kMore) {
    const std::string found = best->figure + " " + gain_text(best->gain);
    const double variation = variation_of(*best);
    if (variation > rules.most_variation && best->gain.low - 1 <= variation) {
      return {Judgement::kUndecided, "",
              fmt::format("{}, which varied by {:.1f} %, more than {:.3g} %", found, variation * 100,
                          rules.most_variation * 100)};
    }
    return {Judgement::kWon, best->figure, found};
  }
  std::string nothing = fmt::format("no gain: {} {}", hope->figure, gain_text(hope->gain));
  const bool hopeless = hope->gain.median <= 1 + rules.least;
  return {hopeless ? Judgement::kLost : Judgement::kUndecided, "", std::move(nothing)};
}

std::string gain_text(const Ratio& gain) {
  return fmt::format("{:.2f}x ({:.2f} to {:.2f})", gain.median, gain.low, gain.high);
}

}  // namespace kazeia::bench
