#include "bench/report/markup.h"

#include <gtest/gtest.h>

#include "bench/sample_record.h"

namespace kazeia::bench::report {
namespace {

TEST(Markup, LeavesNothingThatCouldBeginOrEndAnything) {
  EXPECT_EQ(escaped("<a href='x' title=\"y\">&amp;"), "&lt;a href=&#39;x&#39; title=&quot;y&quot;&gt;&amp;amp;");
  EXPECT_EQ(escaped("plain, ärgerlich, 中文, 🙂"), "plain, ärgerlich, 中文, 🙂");
}

TEST(Markup, ReplacesWhatNoPageMayHave) {
  const std::string replaced = "\xEF\xBF\xBD";
  EXPECT_EQ(escaped(std::string("a\0b", 3)), "a" + replaced + "b");
  EXPECT_EQ(escaped("\x1b[31m\x7f\n\t"), replaced + "[31m" + replaced + "\n\t");
  EXPECT_EQ(escaped("\xC2\x9B"), replaced) << "C1";
  EXPECT_EQ(escaped("gguf\xE2\x80\xAE.exe"), "gguf" + replaced + ".exe") << "the direction of text";
  EXPECT_EQ(escaped("\xEF\xBF\xBF"), replaced);
}

TEST(Markup, ReplacesWhatIsNotUtf8AndLosesNoMarkBehindIt) {
  const std::string replaced = "\xEF\xBF\xBD";
  EXPECT_EQ(escaped("\xE2<"), replaced + "&lt;");
  EXPECT_EQ(escaped("\xF0\x9F<b"), replaced + replaced + "&lt;b");
  EXPECT_EQ(escaped("\x80\xFF>"), replaced + replaced + "&gt;");
  EXPECT_EQ(escaped("\xC3"), replaced);
}

TEST(Markup, ShortensByCharacters) {
  EXPECT_EQ(shortened("abcdef", 6), "abcdef");
  EXPECT_EQ(shortened("abcdefg", 6), "abcde…");
  EXPECT_EQ(shortened("ääää", 3), "ää…");
  EXPECT_EQ(shortened("", 3), "");
}

TEST(Markup, WritesQuantitiesAsTheyAreRead) {
  EXPECT_EQ(quantity_text(9.6123, "tok/s"), "9.612 tok/s");
  EXPECT_EQ(quantity_text(12345.6, "tok/s"), "12346 tok/s");
  EXPECT_EQ(quantity_text(1e12, "tok/s"), "1e+12 tok/s");
  EXPECT_EQ(quantity_text(604, "ms"), "604 ms");
  EXPECT_EQ(quantity_text(16'193, "ms"), "16.19 s");
  EXPECT_EQ(quantity_text(2.5 * 1024 * 1024 * 1024, "bytes"), "2.50 GiB");
  EXPECT_EQ(quantity_text(-1.5 * 1024 * 1024, "bytes/h"), "-1.5 MiB/h");
  EXPECT_EQ(quantity_text(1e300, "bytes"), "1e+300 bytes");
}

TEST(Markup, WritesAnIntervalInTheUnitOfItsValue) {
  EXPECT_EQ(interval_text(sample_figure("decode_0", {9.5, 9.6, 9.7})), "9.5 to 9.7");
  EXPECT_EQ(interval_text(sample_figure("turn_ttft_ms", {9'900, 16'000, 17'000}, "ms", false)), "9.9 to 17");
  EXPECT_EQ(interval_text(sample_figure("peak_rss_bytes", {1024, 2048, 4096}, "bytes", false)), "1.0 KiB to 4.0 KiB");
}

TEST(Markup, NamesACommitWithItsChanges) {
  Record record = sample_record();
  EXPECT_EQ(commit_text(record), "0123456");
  record.dirty = true;
  EXPECT_EQ(commit_text(record), "0123456+");
  record.commit.clear();
  EXPECT_EQ(commit_text(record), "none");
}

}  // namespace
}  // namespace kazeia::bench::report
