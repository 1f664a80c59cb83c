#include "bench/comparison.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/sample_record.h"

namespace kazeia::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<double> kTen{10, 10.1, 9.9, 10.05, 9.95, 10};

std::vector<double> times(std::vector<double> samples, double factor) {
  for (double& sample : samples) sample *= factor;
  return samples;
}

Record changed(Record record, void (*change)(Record&)) {
  change(record);
  seal(record);
  return record;
}

Comparison compared(const Record& a, const Record& b) {
  Result<Comparison> comparison = compare(a, b);
  EXPECT_TRUE(comparison.ok()) << comparison.error().sentence();
  return comparison.ok() ? *comparison : Comparison{};
}

// What the only figure of two records is found to be.
FigureComparison verdict_of(const Figure& before, const Figure& after) {
  const Comparison comparison = compared(sample_record({before}), sample_record({after}, "2026-12-01T00:00:00Z"));
  return comparison.figures.size() == 1 ? comparison.figures[0] : FigureComparison{};
}

TEST(Comparison, SaysWhatBecameFasterAndWhatBecameSlower) {
  const Record a = sample_record({sample_figure("decode_0", kTen), sample_figure("load_ms", kTen, "ms", false),
                                  sample_figure("prefill_512", kTen)});
  const Record b =
      sample_record({sample_figure("load_ms", times(kTen, 1.2), "ms", false),
                     sample_figure("decode_0", times(kTen, 1.2)), sample_figure("prefill_512", times(kTen, 1.001))},
                    "2026-12-01T00:00:00Z");
  const Comparison comparison = compared(a, b);
  EXPECT_EQ(comparison.before, a.id);
  EXPECT_EQ(comparison.after, b.id);
  EXPECT_THAT(comparison.remarks, IsEmpty());
  ASSERT_EQ(comparison.figures.size(), 3U);
  const FigureComparison& decode = comparison.figures[0];
  EXPECT_EQ(decode.name, "decode_0");
  EXPECT_EQ(decode.verdict, Verdict::kFaster);
  EXPECT_DOUBLE_EQ(decode.before, 10);
  EXPECT_DOUBLE_EQ(decode.after, 12);
  EXPECT_DOUBLE_EQ(decode.ratio.median, 1.2);
  EXPECT_GT(decode.ratio.low, 1.15);
  EXPECT_LT(decode.ratio.high, 1.25);
  EXPECT_EQ(comparison.figures[1].verdict, Verdict::kSlower) << "a longer time is not faster";
  EXPECT_DOUBLE_EQ(comparison.figures[1].ratio.median, 1.2);
  EXPECT_EQ(comparison.figures[2].verdict, Verdict::kNoDifference);
  EXPECT_EQ(verdict_text(decode), "faster");
  EXPECT_EQ(verdict_text(comparison.figures[1]), "slower");
  EXPECT_EQ(verdict_text(comparison.figures[2]), "no difference");
}

TEST(Comparison, CallsMemoryWorseAndNotSlower) {
  const FigureComparison more = verdict_of(sample_figure("peak_rss_bytes", kTen, "bytes", false),
                                           sample_figure("peak_rss_bytes", times(kTen, 2), "bytes", false));
  EXPECT_EQ(verdict_text(more), "worse");
  const FigureComparison less = verdict_of(sample_figure("energy_decode", kTen, "J/tok", false),
                                           sample_figure("energy_decode", times(kTen, 0.5), "J/tok", false));
  EXPECT_EQ(verdict_text(less), "better");
}

TEST(Comparison, HasNoResultWhereAFigureIsNone) {
  const Figure good = sample_figure("decode_0", kTen);
  const auto reason = [&](const Figure& other) {
    const FigureComparison figure = verdict_of(good, other);
    EXPECT_EQ(figure.verdict, Verdict::kNoResult);
    EXPECT_EQ(verdict_text(figure), "no result");
    EXPECT_DOUBLE_EQ(figure.ratio.median, 0);
    return figure.reason;
  };
  EXPECT_THAT(reason(sample_figure("decode_0", {20, 25, 30, 20})), HasSubstr("varied by 20.2 %, more than 5 %"));
  EXPECT_THAT(reason(sample_figure("decode_0", {20, 20.1})), HasSubstr("has 2 samples, fewer than 3"));
  EXPECT_THAT(reason(sample_figure("decode_0", {20})), HasSubstr("has 1 sample, fewer than 3"));
  EXPECT_THAT(reason(sample_figure("decode_0", kTen, "ms")), HasSubstr("it is in tok/s and in ms"));
  EXPECT_THAT(reason(sample_figure("decode_0", kTen, "tok/s", false)), HasSubstr("which direction is good"));
  EXPECT_THAT(reason(sample_figure("decode_0", {0, 0, 0})), HasSubstr("not above zero"));
}

TEST(Comparison, HasNoResultFromADisturbedRecord) {
  const Record calm = sample_record();
  const Record disturbed =
      changed(sample_record(), [](Record& r) { r.disturbance = "other processes used 0.8 cores during decode_4096"; });
  const Comparison comparison = compared(calm, disturbed);
  EXPECT_FALSE(comparison.has_result());
  ASSERT_EQ(comparison.figures.size(), 2U);
  EXPECT_THAT(comparison.figures[0].reason, HasSubstr(disturbed.id + " was disturbed: other processes"));
}

TEST(Comparison, OfTwoMachinesIsOfRatiosAlone) {
  const auto elsewhere = [](Record& r) { r.machine = {"99999999", "Another 7, 8 cores, 16 GiB", "Linux 6.1 aarch64"}; };
  const Record here = sample_record({sample_figure("decode_0", kTen), sample_figure("prefill_512", kTen),
                                     sample_figure("ratio_decode_0", kTen, "ratio")});
  const Record there = changed(here, elsewhere);
  const Comparison comparison = compared(here, there);
  ASSERT_EQ(comparison.figures.size(), 1U);
  EXPECT_EQ(comparison.figures[0].name, "ratio_decode_0");
  EXPECT_EQ(comparison.figures[0].verdict, Verdict::kNoDifference);
  EXPECT_THAT(
      comparison.remarks,
      ElementsAre("the machine differs: Made Up 3000, 2 cores, 24 GiB -> Another 7, 8 cores, 16 GiB",
                  here.id + " and " + there.id +
                      " are of different machines, of which only ratios are compared, not decode_0, prefill_512"));

  const Record seconds = sample_record({sample_figure("decode_0", kTen)});
  const Result<Comparison> refused = compare(seconds, changed(seconds, elsewhere));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().sentence(), HasSubstr("different machines, of which only ratios are compared"));
}

TEST(Comparison, SaysWhatElseDiffers) {
  const Record a = sample_record({sample_figure("decode_0", kTen), sample_figure("before_ms", kTen, "ms", false)});
  Record b = sample_record({sample_figure("decode_0", kTen), sample_figure("after_ms", kTen, "ms", false)});
  b.kind = "turns";
  b.dirty = true;
  b.model.file = "other.gguf";
  b.model.hash = std::string(32, 'f');
  b.settings = {{"context", "4096"}, {"kv", "q8_0"}};
  seal(b);
  EXPECT_THAT(compared(a, b).remarks,
              ElementsAre("the kind differs: bench -> turns",
                          "the model differs: model.gguf 00112233445566778899aabbccddeeff -> other.gguf "
                          "ffffffffffffffffffffffffffffffff",
                          "the settings differ: kv none -> q8_0, threads 2 -> none",
                          b.id + " was measured with changes that are in no commit",
                          "only one of the two has before_ms, after_ms"));
}

TEST(Comparison, OfRecordsWithNothingInCommonIsRefused) {
  const Result<Comparison> refused =
      compare(sample_record({sample_figure("a", kTen)}), sample_record({sample_figure("b", kTen)}));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kUsage);
  EXPECT_THAT(refused.error().sentence(), HasSubstr("no figure in common"));
}

std::vector<std::string> regressions(const Record& reference, const Record& now, double tolerance = kTolerance) {
  const Result<Comparison> comparison = check(reference, now, tolerance);
  EXPECT_TRUE(comparison.ok()) << comparison.error().sentence();
  std::vector<std::string> names;
  if (!comparison.ok()) return names;
  for (const FigureComparison& figure : comparison->figures) {
    if (figure.regressed) names.push_back(figure.name);
  }
  return names;
}

Record noisy_record(double speed, double noise, std::uint64_t seed) {
  return sample_record({sample_figure("decode_0", noisy_samples(20 * speed, noise, 12, seed)),
                        sample_figure("decode_4096", noisy_samples(9 * speed, noise, 12, seed + 1)),
                        sample_figure("load_ms", noisy_samples(800 / speed, noise, 12, seed + 2), "ms", false)});
}

TEST(RegressionCheck, PassesTwentyOfTwentyOnUnchangedNoise) {
  for (const double noise : {0.01, 0.03}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const Record reference = noisy_record(1, noise, seed * 100);
      EXPECT_THAT(regressions(reference, noisy_record(1, noise, seed * 100 + 50)), IsEmpty()) << seed << " " << noise;
    }
  }
}

TEST(RegressionCheck, FindsTwentyOfTwentyThatAreSixPercentSlower) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Record reference = noisy_record(1, 0.01, seed * 100);
    EXPECT_THAT(regressions(reference, noisy_record(0.94, 0.01, seed * 100 + 50)),
                ElementsAre("decode_0", "decode_4096", "load_ms"))
        << seed;
  }
}

TEST(RegressionCheck, LetsAGainAndALittleLossPass) {
  const Record reference =
      sample_record({sample_figure("decode_0", kTen), sample_figure("load_ms", kTen, "ms", false)});
  EXPECT_THAT(regressions(reference, sample_record({sample_figure("decode_0", times(kTen, 1.5)),
                                                    sample_figure("load_ms", times(kTen, 0.5), "ms", false)})),
              IsEmpty());
  const Record little = sample_record(
      {sample_figure("decode_0", times(kTen, 0.975)), sample_figure("load_ms", times(kTen, 1.025), "ms", false)});
  EXPECT_THAT(regressions(reference, little), IsEmpty());
  EXPECT_THAT(regressions(reference, little, 0.01), ElementsAre("decode_0", "load_ms"));
}

TEST(RegressionCheck, LetsALossPassThatNoiseExplains) {
  const Record reference = sample_record({sample_figure("decode_0", {10, 10.4, 9.6, 10.5, 9.5})});
  EXPECT_THAT(regressions(reference, sample_record({sample_figure("decode_0", {9.6, 10, 9.2, 10.1, 9.1})})), IsEmpty());
}

TEST(RegressionCheck, LooksPastAFigureThatIsNoResult) {
  const Record reference =
      sample_record({sample_figure("decode_0", kTen), sample_figure("load_ms", kTen, "ms", false)});
  const Record now =
      sample_record({sample_figure("decode_0", {2, 3, 4, 5}), sample_figure("load_ms", kTen, "ms", false)});
  EXPECT_THAT(regressions(reference, now), IsEmpty());
}

TEST(RegressionCheck, DoesNotPassWhereNothingWasCompared) {
  const Record reference = sample_record({sample_figure("decode_0", kTen)});
  const Record now = sample_record({sample_figure("decode_0", {2, 3, 4, 5})});
  const Result<Comparison> nothing = check(reference, now);
  ASSERT_FALSE(nothing.ok());
  EXPECT_EQ(nothing.error().code(), ErrorCode::kEngine);
  EXPECT_THAT(nothing.error().sentence(), HasSubstr("decode_0: in " + now.id + " it varied by"));
  EXPECT_THAT(nothing.error().sentence(), HasSubstr("Measure again"));
}

TEST(Record, IsNotAcceptedForWhatItsPlanForetold) {
  const Figure plan = sample_figure("plan_weights_bytes", {7, 7, 7}, "bytes", false);
  const Figure noisy = sample_figure("decode_0", {2, 3, 4, 5});
  EXPECT_FALSE(is_accepted(sample_record({plan, noisy})));
  EXPECT_TRUE(is_accepted(sample_record({plan, noisy, sample_figure("peak_rss_bytes", {7, 7, 7}, "bytes", false)})));
}

TEST(Slope, IsAResultWhereverItIsAndIsComparedWithNoOther) {
  const Figure flat = sample_figure("soak_rss_slope_bytes_per_hour", {-90, 1, 100}, "bytes/h", false);
  EXPECT_EQ(why_no_result(flat), "");
  const Figure speed = sample_figure("soak_decode", kTen);
  const Record before = sample_record({speed, sample_figure("soak_decode_slope", {1, 2, 3}, "tok/s/h")});
  const Record after = sample_record({speed, sample_figure("soak_decode_slope", {0.1, 0.2, 0.3}, "tok/s/h")});
  EXPECT_THAT(regressions(before, after), IsEmpty());
}

TEST(Plan, IsComparedWithNoOther) {
  const Record before = sample_record({sample_figure("plan_weights_bytes", {5, 5, 5}, "bytes", false)});
  const Record after = sample_record({sample_figure("plan_weights_bytes", {9, 9, 9}, "bytes", false)});
  EXPECT_FALSE(check(before, after).ok()) << "nothing was compared";
}

TEST(SteadySpeed, IsOneThatRepeatedItselfWhateverTheOthersDid) {
  const Figure noisy = sample_figure("load_ms", {2, 3, 4, 5}, "ms", false);
  const Figure memory = sample_figure("peak_rss_bytes", {7, 7, 7, 7}, "bytes", false);
  EXPECT_TRUE(has_steady_speed(sample_record({noisy, sample_figure("decode_0", kTen)}), kMostVariation));
  EXPECT_FALSE(has_steady_speed(sample_record({noisy, memory}), kMostVariation));
  const Figure ratio = sample_figure("ratio_peak_rss_bytes", {0.7, 0.7, 0.7}, "ratio", false);
  EXPECT_FALSE(
      has_steady_speed(sample_record({noisy, ratio, sample_figure("upstream_decode_0", kTen)}), kMostVariation));
  EXPECT_FALSE(has_steady_speed(sample_record({sample_figure("decode_0", {10, 10})}), kMostVariation)) << "too few";
  EXPECT_FALSE(has_steady_speed(sample_record({sample_figure("decode_0", {10, 10.1, 9.9})}), 1e-7));
}

TEST(Reference, IsNotWhatNobodyCanBuildAgain) {
  Record kept = sample_record({sample_figure("decode_0", kTen)}, "2026-12-01T00:00:00Z");
  const Record now = sample_record({sample_figure("decode_0", kTen)}, "2026-12-09T00:00:00Z");
  ASSERT_TRUE(can_be_reference(kept));
  kept.dirty = true;
  seal(kept);
  EXPECT_TRUE(is_accepted(kept));
  EXPECT_FALSE(can_be_reference(kept));
  EXPECT_TRUE(compare(kept, now).ok());
  EXPECT_FALSE(reference_of(std::span(&kept, 1), now).has_value());
}

TEST(Reference, IsTheNewestAcceptedRecordOfItsLike) {
  const auto at = [](const char* time, void (*change)(Record&) = nullptr) {
    Record record = sample_record({sample_figure("decode_0", kTen)}, time);
    if (change != nullptr) change(record);
    seal(record);
    return record;
  };
  const Record now = at("2026-12-09T00:00:00Z");
  const std::vector<Record> records{
      at("2026-12-01T00:00:00Z"),
      at("2026-12-02T00:00:00Z"),
      at("2026-12-03T00:00:00Z", [](Record& r) { r.disturbance = "a backup ran"; }),
      at("2026-12-03T00:00:00Z",
         [](Record& r) {
           r.figures[0] = sample_figure("decode_0", {1, 2, 3});
         }),
      at("2026-12-03T00:00:00Z", [](Record& r) { r.dirty = true; }),
      at("2026-12-03T00:00:00Z", [](Record& r) { r.machine.id = "99999999"; }),
      at("2026-12-03T00:00:00Z", [](Record& r) { r.model.hash = std::string(32, '0'); }),
      at("2026-12-03T00:00:00Z", [](Record& r) { r.kind = "soak"; }),
      at("2026-12-03T00:00:00Z", [](Record& r) { r.settings["threads"] = "1"; }),
      now,
      at("2026-12-10T00:00:00Z"),
  };
  const std::optional<Record> reference = reference_of(records, now);
  ASSERT_TRUE(reference.has_value());
  EXPECT_EQ(reference->time, "2026-12-02T00:00:00Z");
  EXPECT_FALSE(reference_of(std::span(records).subspan(2), now).has_value());
}

}  // namespace
}  // namespace kazeia::bench
