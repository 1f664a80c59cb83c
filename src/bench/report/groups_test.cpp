#include "bench/report/groups.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/sample_record.h"

namespace kazeia::bench::report {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Record record_on(int day, const std::string& kind = "bench") {
  Record record = sample_record();
  record.time = "2026-11-1" + std::to_string(day) + "T10:00:00Z";
  record.kind = kind;
  return record;
}

Records pointers(const std::vector<Record>& records) {
  Records all;
  for (const Record& record : records) all.push_back(&record);
  return all;
}

TEST(Groups, KeepMachinesAndModelsApart) {
  std::vector<Record> records{record_on(0), record_on(1), record_on(2), record_on(3)};
  records[1].machine.id = "99999999";
  records[2].model = {"another.gguf", "ffffffffffffffffffffffffffffffff", "qwen3", {}};
  records[3].model = {};
  const std::vector<MachineGroup> machines = by_machine(records);
  ASSERT_THAT(machines, SizeIs(2));
  EXPECT_EQ(machines[0].machine().id, "1a2b3c4d");
  EXPECT_THAT(machines[0].records, ElementsAre(&records[0], &records[2], &records[3]));
  ASSERT_THAT(machines[0].models, SizeIs(3));
  EXPECT_EQ(machines[0].models[0].anchor, "m-1a2b3c4d-none");
  EXPECT_EQ(machines[0].models[1].model().file, "another.gguf");
  EXPECT_THAT(machines[1].models, SizeIs(1));
}

TEST(Groups, PutRecordsTogetherThatACheckWouldCompare) {
  std::vector<Record> records{record_on(0), record_on(1), record_on(2), record_on(3, "soak")};
  records[1].settings["threads"] = "1";
  const std::vector<Records> groups = alike(pointers(records), {"bench", "soak"});
  ASSERT_THAT(groups, SizeIs(3));
  EXPECT_THAT(groups[0], ElementsAre(&records[3])) << "the newest first";
  EXPECT_THAT(groups[1], ElementsAre(&records[0], &records[2]));
  EXPECT_THAT(alike(pointers(records), {"routes"}), IsEmpty());
}

TEST(Groups, PutABaselineToTheBenchThatMeasuredTheSame) {
  std::vector<Record> records{record_on(0, "baseline"), record_on(1), record_on(2)};
  records[0].settings["baseline"] = "upstream";
  records[2].settings["kv"] = "q8_0";
  const std::vector<Records> groups = configurations(pointers(records));
  ASSERT_THAT(groups, SizeIs(2));
  EXPECT_THAT(groups[1], ElementsAre(&records[0], &records[1]));
}

TEST(Groups, ShowTheNewestThatIsAResult) {
  std::vector<Record> records{record_on(0), record_on(1), record_on(2)};
  records[2].disturbance = "a backup ran";
  EXPECT_EQ(shown(pointers(records)), &records[1]);
  for (Record& record : records) record.disturbance = "a backup ran";
  EXPECT_EQ(shown(pointers(records)), &records[2]) << "rather one that is no result than none";
  EXPECT_EQ(shown({}), nullptr);
}

TEST(Groups, SaySettingsInWords) {
  Record record = sample_record();
  record.settings = {{"threads", "1"}, {"kv", "f16"}, {"ubatch", "512"}, {"turns", "none"}};
  EXPECT_EQ(main_settings(record), "1 thread, KV cache f16");
  EXPECT_EQ(other_settings(record), "turns none, ubatch 512");
}

TEST(Groups, ReadALengthFromANameAndNothingElse) {
  EXPECT_EQ(length_in("decode_4096", "decode_"), 4096);
  EXPECT_EQ(length_in("upstream_decode_0", "upstream_decode_"), 0);
  for (const char* name : {"decode_", "decode_x", "decode_1x", "decode_-1", "prefill_512",
                           "decode_99999999999999999999", "prefill_512_at_4096"}) {
    EXPECT_LT(length_in(name, "decode_"), 0) << name;
  }
  EXPECT_LT(length_in("prefill_512_at_4096", "prefill_"), 0);
}

}  // namespace
}  // namespace kazeia::bench::report
