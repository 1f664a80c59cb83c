#include "base/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

namespace kazeia {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "kazeia-files-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    ::chmod(folder_.c_str(), 0700);
    std::filesystem::remove_all(folder_);
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(at(name), std::ios::binary) << text;
  }
  std::string get(const std::string& name) const {
    std::ifstream file(at(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) found.push_back(entry.path().filename());
    return found;
  }
  std::filesystem::path folder_;
};

// Runs `check` in a child process that may lower its own limits or rights; true if it returned true.
template <typename Check>
bool in_child(const Check& check) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(check() ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(Files, TellMissingDirectoryAndSpecialFileApart) {
  const auto missing = regular_file_size(at("none"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), ErrorCode::kFile);
  EXPECT_THAT(missing.error().message(), HasSubstr("no file at"));
  put("file", "x");
  EXPECT_THAT(regular_file_size(at("file/below")).error().message(), HasSubstr("no file at"));
  EXPECT_THAT(regular_file_size(folder_.string()).error().message(), HasSubstr("is a directory"));
  EXPECT_THAT(regular_file_size("/dev/null").error().message(), HasSubstr("not a regular file"));
}

TEST_F(Files, WithoutPermissionSaySo) {
  put("secret", "x");
  ::chmod(at("secret").c_str(), 0);
  ::chmod(folder_.c_str(), 0755);
  EXPECT_TRUE(in_child([&] {
    // Root may read anything; nobody may not.
    if (::geteuid() == 0 && ::setuid(65534) != 0) return false;
    const auto size = regular_file_size(at("secret"));
    return !size.ok() && size.error().message().find("no permission") != std::string::npos;
  }));
}

TEST_F(Files, ReadTextWholeAndRefuseWhatIsAboveTheLimit) {
  put("text", "hello\n");
  EXPECT_EQ(*read_text_file(at("text"), 6), "hello\n");
  const auto refused = read_text_file(at("text"), 5);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("6 bytes"));
}

TEST_F(Files, MapTheirBytesAndAnEmptyFileToAnEmptySpan) {
  put("data", "abc");
  put("empty", "");
  auto mapped = MappedFile::open(at("data"));
  ASSERT_TRUE(mapped.ok());
  const MappedFile moved = std::move(mapped).value();
  ASSERT_EQ(moved.bytes().size(), 3u);
  EXPECT_EQ(static_cast<char>(moved.bytes()[2]), 'c');
  EXPECT_THAT(MappedFile::open(at("empty"))->bytes(), IsEmpty());
  EXPECT_FALSE(MappedFile::open(at("none")).ok());
}

TEST_F(Files, WrittenAtomicallyAppearOnlyAtTheCommit) {
  put("out", "old");
  auto writer = AtomicFileWriter::create(at("out"));
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->write("ne").ok());
  ASSERT_TRUE(writer->write("w").ok());
  EXPECT_EQ(get("out"), "old");
  EXPECT_EQ(writer->bytes_written(), 3u);
  ASSERT_TRUE(writer->commit().ok());
  EXPECT_EQ(get("out"), "new");
  EXPECT_THAT(names(), UnorderedElementsAre("out"));
}

TEST_F(Files, WithoutACommitLeaveNothingBehindAndTheOldOneUntouched) {
  put("out", "old");
  {
    auto writer = AtomicFileWriter::create(at("out"));
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->write("new").ok());
    const AtomicFileWriter moved = std::move(writer).value();
  }
  EXPECT_EQ(get("out"), "old");
  EXPECT_THAT(names(), UnorderedElementsAre("out"));
}

TEST_F(Files, WrittenWithTheModeThatWasAsked) {
  auto writer = AtomicFileWriter::create(at("private"), 0600);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->commit().ok());
  EXPECT_EQ(std::filesystem::status(at("private")).permissions(), std::filesystem::perms(0600));
}

TEST_F(Files, ThatCannotBeWrittenNameTheFolderProblem) {
  const auto missing = AtomicFileWriter::create(at("none/out"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), ErrorCode::kWrite);
  EXPECT_FALSE(AtomicFileWriter::create(folder_.string()).ok());
  EXPECT_FALSE(AtomicFileWriter::create("/dev/full").ok());
  ::chmod(folder_.c_str(), 0555);
  EXPECT_TRUE(in_child([&] {
    if (::geteuid() == 0 && ::setuid(65534) != 0) return false;
    const auto denied = AtomicFileWriter::create(at("out"));
    return !denied.ok() && denied.error().code() == ErrorCode::kWrite;
  }));
}

TEST_F(Files, OnAFullDiskReportItOnEveryCallAndLeaveNothing) {
  put("out", "old");
  EXPECT_TRUE(in_child([&] {
    // A file size limit answers EFBIG where a full disk answers ENOSPC; both must stop the writer.
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    const auto full = [](const Status& status) {
      return !status.ok() && status.error().code() == ErrorCode::kWrite &&
             status.error().message().find("no space left") != std::string::npos;
    };
    auto writer = AtomicFileWriter::create(at("out"));
    return writer.ok() && full(writer->write(std::string(150, 'x'))) && writer->bytes_written() == 100 &&
           full(writer->write("y")) && full(writer->commit());
  }));
  EXPECT_EQ(get("out"), "old");
  EXPECT_THAT(names(), UnorderedElementsAre("out"));
}

TEST_F(Files, FoldersAreMadePrivateWithTheirParentsAndKeepAModeTheyHave) {
  const auto mode = [&](const char* name) {
    struct stat info {};
    return ::stat(at(name).c_str(), &info) == 0 ? info.st_mode & 0777U : 0;
  };
  ASSERT_TRUE(make_private_folder(at("a/b"), "").ok());
  EXPECT_EQ(mode("a"), 0700U);
  EXPECT_EQ(mode("a/b"), 0700U);
  ::chmod(at("a").c_str(), 0755);
  EXPECT_TRUE(make_private_folder(at("a"), "").ok());
  EXPECT_EQ(mode("a"), 0755U);
  put("file", "");
  const Status status = make_private_folder(at("file/c"), "Name another one");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kWrite);
  EXPECT_THAT(status.error().sentence(), HasSubstr("Name another one"));
}

TEST_F(Files, OutputIsCheckedForWhatIsInTheWay) {
  put("there", "precious");
  EXPECT_TRUE(check_output(at("new"), 1000, false).ok());
  EXPECT_TRUE(check_output(at("there"), 1000, true).ok());
  EXPECT_THAT(check_output(at("there"), 1000, false).error().sentence(), HasSubstr("exists already"));
  EXPECT_THAT(check_output(at(""), 1000, true).error().sentence(), HasSubstr("is a directory"));
  const Status full = check_output(at("new"), std::numeric_limits<std::uint64_t>::max() / 2, false);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code(), ErrorCode::kWrite);
  EXPECT_THAT(full.error().sentence(), ::testing::ContainsRegex("needs [0-9.]+ GiB, but only [0-9.]+ .iB are free"));
}

}  // namespace
}  // namespace kazeia
