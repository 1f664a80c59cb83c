#include "bench/report/report.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/report/page_reader.h"
#include "bench/report/sample_ledger.h"
#include "bench/sample_record.h"

namespace kazeia::bench::report {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

ReadPage read(const std::vector<Record>& records) {
  ReadPage page = read_page(report_page(records));
  EXPECT_EQ(page.error, "");
  return page;
}

// What a browser must find nothing of: something to run, to load, or to leave for.
void expect_self_contained(const ReadPage& page) {
  const std::set<std::string> names{"script", "img",           "iframe", "object", "embed",
                                    "image",  "foreignObject", "use",    "form"};
  std::set<std::string> ids;
  for (const PageElement& element : page.elements) {
    EXPECT_FALSE(names.contains(element.name)) << element.name;
    for (const auto& [key, value] : element.attributes) {
      EXPECT_FALSE(key.starts_with("on")) << key;
      EXPECT_FALSE(key == "src" || key == "style" || key == "srcset") << key;
      EXPECT_TRUE(key != "href" || value.starts_with("#") || value == "data:,") << value;
      EXPECT_TRUE(key != "id" || ids.insert(value).second) << value;
    }
  }
  for (const PageElement* link : page.named("a")) {
    EXPECT_TRUE(ids.contains(link->attribute("href").substr(1))) << link->attribute("href");
  }
  for (const PageElement* style : page.named("style")) {
    EXPECT_THAT(style->text, Not(HasSubstr("url(")));
    EXPECT_THAT(style->text, Not(HasSubstr("@import")));
  }
}

std::vector<std::string> captions(const ReadPage& page) {
  std::vector<std::string> all;
  for (const PageElement* caption : page.named("figcaption")) all.push_back(caption->text);
  return all;
}

TEST(Report, IsWellFormedSelfContainedAndAlwaysTheSame) {
  const std::vector<Record> records = sample_ledger();
  expect_self_contained(read(records));
  EXPECT_EQ(report_page(records), report_page(sample_ledger()));
}

TEST(Report, SaysWhatItIsOf) {
  const std::string text = read(sample_ledger()).all_text();
  for (const char* part :
       {"12 records, 11 of them accepted as results", "2026-11-20 06:00 to 2026-11-27 12:00 UTC",
        "Made Up 3000, 2 cores, 24 GiB", "Made Up Tablet, 8 cores, 12 GiB", "0.6.0, 0.6.1", "b6000"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Report, HasAChartForEachQuestion) {
  const ReadPage page = read(sample_ledger());
  for (const char* caption :
       {"Decode, by depth", "Prefill, by prompt length", "Time to the first token, by prompt length", "Memory",
        "Kazeia / upstream, measured alternately", "Decode during the soak", "Memory in use", "First token of a turn",
        "decode_0", "peak_rss_bytes"}) {
    EXPECT_THAT(captions(page), Contains(caption));
  }
  const std::string text = page.all_text();
  EXPECT_THAT(text, HasSubstr("Routes: 2 threads"));
  EXPECT_THAT(text, HasSubstr("no device"));
  EXPECT_THAT(text, HasSubstr("Tuning: 2 threads"));
  EXPECT_THAT(text, HasSubstr("ubatch_1024_prefill_1024"));
}

TEST(Report, LeadsFromEveryPointToTheRowOfItsRecord) {
  const std::vector<Record> records = sample_ledger();
  const ReadPage page = read(records);
  for (const Record& record : records) {
    const auto row = std::find_if(page.elements.begin(), page.elements.end(), [&](const PageElement& element) {
      return element.name == "tr" && element.attribute("id") == "r-" + record.id;
    });
    EXPECT_NE(row, page.elements.end()) << record.id;
  }
}

TEST(Report, ShowsUpstreamBesideUsAndTheRatiosOfOneRun) {
  const ReadPage page = read(sample_ledger());
  EXPECT_THAT(page.with_class("name"), Contains(testing::Pointee(testing::Field(&PageElement::text, "upstream"))));
  std::vector<std::string> verdicts;
  for (const PageElement* cell : page.named("td")) verdicts.push_back(cell->text);
  for (const char* verdict : {"faster", "better", "no difference", "no result"}) {
    EXPECT_THAT(verdicts, Contains(verdict));
  }
}

TEST(Report, ShowsWhatIsNoResultHollowAndSaysWhy) {
  const ReadPage page = read(sample_ledger());
  EXPECT_THAT(page.with_class("hollow"), Not(IsEmpty()));
  const std::string text = page.all_text();
  EXPECT_THAT(text, HasSubstr("Hollow, no result: kazeia at 16384: it varied by "));
  EXPECT_THAT(text, HasSubstr("the record was disturbed: other processes used 0.4 of a core during decode_0"));
}

TEST(Report, ShowsARecordThatWasDisturbedAsNoResultIfThereIsNoOther) {
  std::vector<Record> records{sample_record()};
  records[0].disturbance = "a backup ran";
  seal(records[0]);
  const ReadPage page = read(records);
  EXPECT_THAT(page.with_class("warning"), SizeIs(1));
  EXPECT_THAT(page.all_text(), HasSubstr("Nothing here is a result: disturbed: a backup ran"));
}

TEST(Report, NamesANewerRecordThatItDoesNotShow) {
  std::vector<Record> records{sample_record(), sample_record()};
  records[1].time = "2026-12-01T10:00:00Z";
  records[1].disturbance = "a backup ran";
  for (Record& record : records) seal(record);
  EXPECT_THAT(read(records).all_text(), HasSubstr("Newer, but not shown as a result: "));
}

TEST(Report, NeverPutsTwoMachinesIntoOneChart) {
  // The same but for the machine, and each with speeds of its own.
  Record here = sample_record({sample_figure("decode_0", {11, 11, 11}), sample_figure("decode_64", {11, 11, 11})});
  Record there = sample_record({sample_figure("decode_0", {22, 22, 22}), sample_figure("decode_64", {22, 22, 22})});
  there.machine.id = "99999999";
  seal(there);
  const std::string html = report_page(std::vector<Record>{here, there});
  std::size_t charts = 0;
  for (std::size_t at = html.find("<svg class=\"chart"); at != std::string::npos;
       at = html.find("<svg class=\"chart", at + 1)) {
    const std::string chart = html.substr(at, html.find("</svg>", at) - at);
    EXPECT_NE(chart.find(">11.0<") == std::string::npos, chart.find(">22.0<") == std::string::npos) << chart;
    ++charts;
  }
  EXPECT_EQ(charts, 2U);
}

TEST(Report, TellsASoaksSlopesWithTheirIntervals) {
  const ReadPage page = read(sample_ledger());
  EXPECT_THAT(page.with_class("trend"), SizeIs(2));
  const std::string text = page.all_text();
  EXPECT_THAT(text, HasSubstr("no trend that could be told from noise"));
  EXPECT_THAT(text, HasSubstr("tok/s/h"));
  EXPECT_THAT(text, HasSubstr("MiB/h"));
}

TEST(Report, ShowsTheTimeOfASoakFromItsFirstInterval) {
  const std::string html = report_page(sample_ledger());
  EXPECT_THAT(html, HasSubstr("after 0.5 min"));
  EXPECT_THAT(html, HasSubstr("after 60.0 min"));
}

TEST(Report, ComputesTheFirstTokenFromTheSpeedOfReading) {
  const Record record =
      sample_record({sample_figure("prefill_100", {50, 50, 50}), sample_figure("prefill_200", {40, 40, 40})});
  const std::string html = report_page(std::vector<Record>{record});
  EXPECT_THAT(html, HasSubstr("prefill_100: 2000 ms"));
  EXPECT_THAT(html, HasSubstr("prefill_200: 5000 ms"));
}

TEST(Report, ShowsMemoryByPart) {
  const std::string text = read(sample_ledger()).all_text();
  EXPECT_THAT(text, HasSubstr("the plan before loading"));
  EXPECT_THAT(text, HasSubstr("kv_cache"));
  EXPECT_THAT(text, HasSubstr("weights Q6_K"));
  EXPECT_THAT(text, HasSubstr("all else"));
}

TEST(Report, HasAHistoryInTheOrderOfRecordsWithTheirCommits) {
  const std::string html = report_page(sample_ledger());
  std::size_t at = html.find("decode_0 by commit");
  ASSERT_NE(at, std::string::npos);
  for (const char* commit : {">3a91c05<", ">47f9633<", ">62c8a8f<"}) {
    const std::size_t next = html.find(commit, at);
    ASSERT_NE(next, std::string::npos) << commit;
    at = next;
  }
  EXPECT_THAT(html, HasSubstr("5c14d78+")) << "with changes";
  Record alone = sample_record();
  EXPECT_THAT(report_page(std::vector<Record>{alone}), Not(HasSubstr("History by commit")));
}

TEST(Report, IsNotBrokenByAnythingThatARecordSays) {
  Record hostile = hostile_record();
  Record again = hostile;
  again.time = "2026-11-29T12:00:00Z";
  again.disturbance = hostile.note;
  seal(again);
  for (const char* kind : {"bench", "baseline", "soak", "routes", "turns", "tune"}) {
    hostile.kind = again.kind = kind;
    const std::vector<Record> records{hostile, again};
    const std::string html = report_page(records);
    EXPECT_THAT(html, Not(HasSubstr("nan")));
    EXPECT_LT(html.size(), 1'000'000U);
    expect_self_contained(read(records));
  }
}

TEST(Report, IsReadableOnATablet) {
  const ReadPage page = read(sample_ledger());
  const std::vector<const PageElement*> metas = page.named("meta");
  EXPECT_TRUE(std::any_of(metas.begin(), metas.end(), [](const PageElement* meta) {
    return meta->attribute("name") == "viewport" && meta->attribute("content").starts_with("width=device-width");
  }));
  const std::string style = page.named("style")[0]->text;
  EXPECT_THAT(style, HasSubstr("prefers-color-scheme: dark"));
  for (std::size_t at = style.find("font-size: "); at != std::string::npos; at = style.find("font-size: ", at + 1)) {
    EXPECT_GE(std::stoi(style.substr(at + 11)), 16);
  }
  std::size_t charts = 0;
  for (const PageElement* chart : page.with_class("chart")) charts += chart->name == "svg" ? 1 : 0;
  EXPECT_EQ(page.named("table").size() + charts, page.with_class("scroll").size())
      << "what is wide scrolls in its own box";
}

TEST(Report, TakesARecordWithoutAModel) {
  Record record = sample_record();
  record.model = {};
  record.commit.clear();
  record.settings.clear();
  seal(record);
  const ReadPage page = read({record});
  expect_self_contained(page);
  EXPECT_THAT(page.all_text(), HasSubstr("Without a model"));
}

}  // namespace
}  // namespace kazeia::bench::report
