// `kazeia report`: what becomes of a ledger on the command line. The page itself: src/bench/report, tests/browser.

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/ledger.h"
#include "bench/sample_record.h"
#include "cli_program.h"

namespace kazeia::cli_test {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

class ReportVerb : public testing::Test {
 protected:
  ReportVerb() { EXPECT_TRUE(bench::Ledger(folder()).append(bench::sample_record()).ok()); }
  std::string folder() const { return scratch_.path("ledger"); }
  Outcome report(const std::string& output, const Conditions& conditions = {}) const {
    return run({"report", output, "--ledger", folder()}, conditions);
  }
  static void expect_error(const Outcome& outcome, int exit_code, const std::string& part) {
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.all();
    EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(part));
  }
  Scratch scratch_;
};

TEST_F(ReportVerb, WritesOnePageAndSaysWhere) {
  const std::string page = scratch_.path("report.html");
  const Outcome outcome = report(page);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, StartsWith(page + ": 1 record of 1 machine, "));
  const std::string html = read_file(page);
  EXPECT_THAT(html, StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(html, EndsWith("</html>\n"));
  EXPECT_THAT(html, HasSubstr(bench::sample_record().id));
}

TEST_F(ReportVerb, WritesTheSamePageToStandardOutput) {
  const std::string page = scratch_.path("report.html");
  EXPECT_EQ(report(page).exit_code, 0);
  const Outcome outcome = report("-");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out, read_file(page));
}

TEST_F(ReportVerb, ReplacesAFileWholeOrNotAtAll) {
  const std::string page = scratch_.write("report.html", "of yesterday");
  Conditions full;
  full.file_size_limit = 1000;
  expect_error(report(page, full), 6, "kazeia: ");
  EXPECT_EQ(read_file(page), "of yesterday");
  EXPECT_THAT(scratch_.names(), UnorderedElementsAre("ledger", "report.html")) << "nothing is left behind";
  EXPECT_EQ(report(page).exit_code, 0);
  EXPECT_THAT(read_file(page), StartsWith("<!DOCTYPE html>"));
}

TEST_F(ReportVerb, SaysWhatToDoWithoutRecords) {
  std::filesystem::remove_all(folder());
  expect_error(report("-"), 3, "there is no ledger in");
  std::filesystem::create_directories(folder());
  const Outcome outcome = report(scratch_.path("report.html"));
  expect_error(outcome, 3, "there is no record in the ledger");
  EXPECT_THAT(outcome.err, HasSubstr("Measure with `kazeia bench MODEL --add`"));
  EXPECT_THAT(scratch_.names(), ElementsAre("ledger"));
}

TEST_F(ReportVerb, MakesNoPageOfADamagedLedger) {
  std::ofstream(folder() + "/1a2b3c4d.jsonl", std::ios::app) << "{}\n";
  expect_error(report(scratch_.path("report.html")), 3, "line 2: ");
  EXPECT_THAT(scratch_.names(), ElementsAre("ledger"));
}

TEST_F(ReportVerb, NamesAnOutputThatCannotBeWritten) {
  expect_error(report(folder()), 6, "is a directory");
  expect_error(report(scratch_.path("absent/report.html")), 6, "absent");
  EXPECT_EQ(run({"report"}).exit_code, 2);
  Conditions closed;
  closed.close_stdout_after_first_byte = true;
  EXPECT_THAT(report("-", closed).exit_code, testing::AnyOf(0, 6)) << "a page may fit into the pipe";
}

}  // namespace
}  // namespace kazeia::cli_test
