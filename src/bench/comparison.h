// What the figures of two records say about each other: a difference, none, or nothing. Pure decisions, no files.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bench/record.h"
#include "bench/statistics.h"

namespace kazeia::bench {

// A figure whose samples vary more than this, or that has fewer of them, is kept but is no result. With three samples a
// side, chance alone separates two sets of the same noise once in ten comparisons; with two, once in three.
inline constexpr double kMostVariation = 0.05;
inline constexpr std::size_t kFewestSamples = 3;

// What rises or falls in an hour. Its samples are the value and the ends of its interval, which says how sure it is;
// near zero, where it belongs, its variation says nothing.
bool is_slope(const Figure& figure);
// Empty if the figure is a result; otherwise why not, as in "varied by 7.2 %, more than 5 %".
std::string why_no_result(const Figure& figure);
// Not disturbed, and at least one figure that can be compared is a result: what was measured, and is no slope.
bool is_accepted(const Record& record);
// Some speed or time of ours has enough samples that vary by no more than `most_variation`. Memory hardly varies, and
// is by itself no reason to keep a record.
bool has_steady_speed(const Record& record, double most_variation);
// Accepted, and from the sources of a commit: what cannot be built again may be kept and compared, but others are not
// measured by it.
bool can_be_reference(const Record& record);

enum class Verdict { kFaster, kSlower, kNoDifference, kNoResult };

struct FigureComparison {
  std::string name{};
  std::string unit{};
  bool higher_is_better = true;
  double before = 0;  // medians
  double after = 0;
  Ratio ratio{};  // after / before, with its 95 % interval; zeros without a result
  Verdict verdict = Verdict::kNoResult;
  std::string reason{};    // of kNoResult
  bool regressed = false;  // set by check() only
};

// "faster", "slower", "no difference", "no result"; what is not a time, a rate or a ratio of them is "better" or
// "worse".
std::string_view verdict_text(const FigureComparison& figure);

struct Comparison {
  std::string before{};  // ids
  std::string after{};
  std::vector<FigureComparison> figures{};  // in the order of `before`; those that both have
  // One sentence each, without a period: what else differs between the two, and what was not compared and why.
  std::vector<std::string> remarks{};

  bool has_result() const;
};

// `b` against `a`, figure by figure, with the verdict of difference(). Of two machines only figures of the unit "ratio"
// are compared: kUnsupported if they have none in common. kUsage if the two have no figure in common at all.
Result<Comparison> compare(const Record& a, const Record& b);

inline constexpr double kTolerance = 0.03;

// The same, for a gate: a figure has regressed if the interval of the ratio excludes 1 and the median is worse by more
// than `tolerance`. A gate does not open on nothing: kEngine, with the reasons, if no figure could be compared.
Result<Comparison> check(const Record& reference, const Record& now, double tolerance = kTolerance);

// The newest record that can be one, with the machine, the model, the kind and the settings of `now` that is neither
// `now` itself nor newer than it. `records` are in the order of time.
std::optional<Record> reference_of(std::span<const Record> records, const Record& now);

}  // namespace kazeia::bench
