#include "bench/ledger.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/sample_record.h"

namespace kazeia::bench {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class LedgerFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = fmt::format("{}kazeia-ledger-{}-XXXXXX", testing::TempDir(), ::getpid());
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    root_ = folder;
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string folder() const { return root_ + "/ledger"; }
  std::string path(const std::string& machine = "1a2b3c4d") const { return folder() + "/" + machine + ".jsonl"; }
  Ledger ledger() const { return Ledger(folder()); }
  std::string get(const std::string& file) const {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const std::string& text) const {
    fs::create_directories(folder());
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << text;
  }
  std::vector<Record> read() const {
    const Result<std::vector<Record>> records = ledger().read("1a2b3c4d");
    EXPECT_TRUE(records.ok()) << records.error().sentence();
    return records.ok() ? *records : std::vector<Record>();
  }
  std::string refusal() const {
    const Result<std::vector<Record>> records = ledger().read("1a2b3c4d");
    EXPECT_FALSE(records.ok());
    if (records.ok()) return "";
    EXPECT_EQ(records.error().code(), ErrorCode::kFile);
    return records.error().sentence();
  }

  std::string root_;
};

Record at(const std::string& time, const std::string& note = "") {
  Record record = sample_record();
  record.time = time;
  record.note = note;
  seal(record);
  return record;
}

Record elsewhere(Record record, const std::string& machine) {
  record.machine.id = machine;
  seal(record);
  return record;
}

const Record kFirst = at("2026-11-30T10:00:00Z");
const Record kSecond = at("2026-11-30T11:00:00Z");
const Record kThird = at("2026-11-30T12:00:00Z");

std::string line_of(const Record& record) {
  return to_json(record) + "\n";
}

TEST_F(LedgerFolder, GivesBackWhatWasAdded) {
  ASSERT_TRUE(ledger().append(kFirst).ok());
  ASSERT_TRUE(ledger().append(kSecond).ok());
  EXPECT_THAT(read(), ElementsAre(kFirst, kSecond));
  EXPECT_EQ(get(path()), line_of(kFirst) + line_of(kSecond)) << "one line each, and nothing else";
}

TEST_F(LedgerFolder, IsForEverybodyToRead) {
  const mode_t before = ::umask(0077);
  const Status added = ledger().append(kFirst);
  ::umask(before);
  ASSERT_TRUE(added.ok()) << added.error().sentence();
  struct stat info {};
  ASSERT_EQ(::stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777U, 0644U);
}

TEST_F(LedgerFolder, IsEmptyForAMachineThatNeverMeasured) {
  EXPECT_THAT(read(), IsEmpty());
  put("");
  EXPECT_THAT(read(), IsEmpty());
}

TEST_F(LedgerFolder, NamesADamagedLineAndReadsNothingPastIt) {
  std::string damaged = line_of(kSecond);
  damaged[damaged.find("9.61")] = '8';
  put(line_of(kFirst) + damaged + line_of(kThird));
  EXPECT_THAT(refusal(), StartsWith("'" + path() + "', line 2: "));
  EXPECT_THAT(refusal(), HasSubstr("it was changed"));
  put(line_of(kFirst) + "\n" + line_of(kThird));
  EXPECT_THAT(refusal(), StartsWith("'" + path() + "', line 2: "));
  const Status added = ledger().append(kThird);
  ASSERT_FALSE(added.ok()) << "nothing is added behind a damage that nobody has looked at";
  EXPECT_EQ(added.error().code(), ErrorCode::kFile);
}

TEST_F(LedgerFolder, SaysHowATornLastLineIsMended) {
  const std::string whole = line_of(kFirst);
  put(whole + line_of(kSecond).substr(0, 300));
  const std::string mending = fmt::format("`truncate -s {} '{}'`", whole.size(), path());
  EXPECT_THAT(refusal(), HasSubstr("line 2: the line is cut off"));
  EXPECT_THAT(refusal(), HasSubstr(mending));
  EXPECT_FALSE(ledger().append(kThird).ok());
  fs::resize_file(path(), whole.size());
  EXPECT_TRUE(ledger().append(kSecond).ok());
  EXPECT_THAT(read(), ElementsAre(kFirst, kSecond));
}

TEST_F(LedgerFolder, SaysHowAMissingLineBreakIsMended) {
  put(line_of(kFirst) + to_json(kSecond));
  EXPECT_THAT(refusal(), HasSubstr("The record is whole; add it with `echo >> '" + path() + "'`"));
  std::ofstream(path(), std::ios::app) << "\n";
  EXPECT_THAT(read(), ElementsAre(kFirst, kSecond));
}

TEST_F(LedgerFolder, RefusesARecordThatIsThereAlready) {
  ASSERT_TRUE(ledger().append(kFirst).ok());
  const Status again = ledger().append(kFirst);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code(), ErrorCode::kUsage);
  EXPECT_THAT(again.error().sentence(), HasSubstr(kFirst.id + " is in the ledger already"));
  EXPECT_EQ(get(path()), line_of(kFirst));
  put(line_of(kFirst) + line_of(kFirst));
  EXPECT_THAT(refusal(), HasSubstr("line 2: the record " + kFirst.id + " is in the ledger already"));
}

TEST_F(LedgerFolder, KeepsTheOrderOfTime) {
  ASSERT_TRUE(ledger().append(kSecond).ok());
  const Status older = ledger().append(kFirst);
  ASSERT_FALSE(older.ok());
  EXPECT_EQ(older.error().code(), ErrorCode::kUsage);
  EXPECT_THAT(older.error().sentence(), HasSubstr("is older than the one before it, of 2026-11-30T11:00:00Z"));
  EXPECT_TRUE(ledger().append(at(kSecond.time, "in the same second")).ok());
  put(line_of(kSecond) + line_of(kFirst));
  EXPECT_THAT(refusal(), HasSubstr("line 2: the record " + kFirst.id));
}

TEST_F(LedgerFolder, RefusesALineOfAnotherMachine) {
  put(line_of(elsewhere(kFirst, "99999999")));
  EXPECT_THAT(refusal(), HasSubstr("line 1: the record is of the machine 99999999"));
}

TEST_F(LedgerFolder, RefusesARecordThatBreaksARule) {
  Record unsealed = kFirst;
  unsealed.note = "changed afterwards";
  Record rootless = kFirst;
  rootless.machine.id = "../../etc";
  seal(rootless);
  for (const Record& record : {unsealed, rootless}) {
    const Status added = ledger().append(record);
    ASSERT_FALSE(added.ok());
    EXPECT_EQ(added.error().code(), ErrorCode::kFile);
    EXPECT_THAT(added.error().sentence(), HasSubstr("cannot be kept"));
  }
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(LedgerFolder, AddsAllOfSeveralRecordsOrNone) {
  const Record other = elsewhere(kSecond, "99999999");
  ASSERT_TRUE(ledger().append(kSecond).ok());
  EXPECT_FALSE(ledger().append(std::vector{other, kThird, kSecond}).ok());
  EXPECT_THAT(read(), ElementsAre(kSecond));
  EXPECT_FALSE(fs::exists(path("99999999")));
  ASSERT_TRUE(ledger().append(std::vector{other, kThird}).ok());
  EXPECT_THAT(read(), ElementsAre(kSecond, kThird));
  EXPECT_THAT(*ledger().read("99999999"), ElementsAre(other));
}

TEST_F(LedgerFolder, IsAsItWasWhenTheDiskIsFull) {
  ASSERT_TRUE(ledger().append(kFirst).ok());
  const auto bytes = static_cast<rlim_t>(fs::file_size(path()));
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes + 100, bytes + 100};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const Status added = ledger().append(kSecond);
    const bool said = !added.ok() && added.error().code() == ErrorCode::kWrite &&
                      added.error().message().find("no space left") != std::string::npos;
    ::_exit(said ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(get(path()), line_of(kFirst));
  EXPECT_TRUE(ledger().append(kSecond).ok());
}

// Every writer adds records of its own, and some that all of them try to add.
TEST_F(LedgerFolder, HasEveryRecordOnceThatManyAddAtOnce) {
  constexpr std::size_t kWriters = 4;
  constexpr std::size_t kEach = 12;
  int gate[2];
  ASSERT_EQ(::pipe(gate), 0);
  std::vector<pid_t> writers;
  for (std::size_t writer = 0; writer < kWriters; ++writer) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(gate[1]);
      char nothing = 0;
      (void)!::read(gate[0], &nothing, 1);  // until all are there
      for (std::size_t i = 0; i < kEach; ++i) {
        if (!ledger().append(at(kFirst.time, fmt::format("{} of writer {}", i, writer))).ok()) ::_exit(1);
        const Status shared = ledger().append(at(kFirst.time, fmt::format("{} of all", i)));
        if (!shared.ok() && shared.error().code() != ErrorCode::kUsage) ::_exit(2);
      }
      ::_exit(0);
    }
    writers.push_back(child);
  }
  ::close(gate[0]);
  ::close(gate[1]);
  for (const pid_t writer : writers) {
    int status = 0;
    ASSERT_EQ(::waitpid(writer, &status, 0), writer);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(read().size(), kWriters * kEach + kEach);
}

TEST_F(LedgerFolder, TellsOfAllMachinesInTheOrderOfTime) {
  const Result<std::vector<Record>> missing = ledger().read_all();
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().sentence(), HasSubstr("there is no ledger in '" + folder() + "'"));

  const Record other = elsewhere(kSecond, "00000001");
  ASSERT_TRUE(ledger().append(std::vector{kFirst, kThird, other}).ok());
  std::ofstream(folder() + "/README.md") << "What this is.\n";
  const Result<std::vector<Record>> all = ledger().read_all();
  ASSERT_TRUE(all.ok()) << all.error().sentence();
  EXPECT_THAT(*all, ElementsAre(kFirst, other, kThird));

  std::ofstream(folder() + "/copy.jsonl") << "";
  const Result<std::vector<Record>> strange = ledger().read_all();
  ASSERT_FALSE(strange.ok()) << "what cannot be read is not passed over";
  EXPECT_THAT(strange.error().sentence(), HasSubstr("copy.jsonl' is not named after a machine"));
}

TEST(FindRecord, NeedsNoMoreOfAnIdThanMakesItTheOnlyOne) {
  std::vector<Record> records{kFirst, kSecond};
  records[0].id = "abc000000000";
  records[1].id = "abd000000000";
  EXPECT_EQ(find_record(records, "abc")->time, kFirst.time);
  EXPECT_EQ(find_record(records, "abd000000000")->time, kSecond.time);
  EXPECT_THAT(find_record(records, "ab").error().sentence(), HasSubstr("more than one record begins with 'ab'"));
  EXPECT_THAT(find_record(records, "f").error().sentence(), HasSubstr("`kazeia ledger list`"));
  EXPECT_FALSE(find_record(records, "").ok());
}

}  // namespace
}  // namespace kazeia::bench
