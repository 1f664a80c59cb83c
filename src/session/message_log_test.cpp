// The message log as a file: what store() has returned for is there after a crash, and nothing that goes wrong with the
// disk costs a message that was there.
#include "session/message_log.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "session/log_lines.h"

namespace kazeia {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class MessageLogFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = fmt::format("{}kazeia-log-{}-XXXXXX", testing::TempDir(), ::getpid());
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    fs::create_directory(folder_ + "/talk");
  }
  void TearDown() override {
    ::chmod((folder_ + "/talk").c_str(), 0700);
    fs::remove_all(folder_);
  }

  std::string path() const { return folder_ + "/talk/messages.jsonl"; }
  std::string get(const std::string& file) const {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const std::string& text) const { std::ofstream(path(), std::ios::binary | std::ios::trunc) << text; }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_ + "/talk")) found.push_back(entry.path().filename());
    return found;
  }
  static unsigned mode(const std::string& file) {
    struct stat info {};
    return ::stat(file.c_str(), &info) == 0 ? info.st_mode & 07777U : 0;
  }

  // Opens, stores one conversation after the other, and closes.
  void store_all(const std::vector<Conversation>& conversations) const {
    auto log = MessageLog::open(path());
    ASSERT_TRUE(log.ok()) << log.error().sentence();
    for (const Conversation& conversation : conversations) ASSERT_TRUE(log->store(conversation, 0).ok());
  }
  Conversation stored() const {
    const auto log = MessageLog::read(path());
    EXPECT_TRUE(log.ok()) << log.error().sentence();
    return log.ok() ? log->conversation() : Conversation();
  }

  std::string folder_;
};

// Says 1, 2, ... as user and assistant in turn.
Conversation count_to(int last) {
  Conversation conversation;
  conversation.set_system("Count.");
  for (int i = 1; i <= last; ++i) {
    conversation.add({.role = i % 2 == 1 ? Role::kUser : Role::kAssistant, .content = std::to_string(i)});
  }
  return conversation;
}

std::vector<Conversation> counting(int last) {
  std::vector<Conversation> all;
  for (int i = 1; i <= last; ++i) all.push_back(count_to(i));
  return all;
}

// The status of a child process that runs `work`; a kill is 128 + signal.
template <typename Work>
int in_child(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(work() ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_F(MessageLogFile, KeepsAConversationThroughItsLife) {
  store_all(counting(5));
  {
    auto log = MessageLog::open(path());
    ASSERT_TRUE(log.ok()) << log.error().sentence();
    EXPECT_EQ(log->conversation(), count_to(5));
    EXPECT_NEAR(static_cast<double>(log->changed()), static_cast<double>(std::time(nullptr)), 3600);
    Conversation conversation = log->conversation();
    ASSERT_TRUE(conversation.drop_last_exchange());
    conversation.add_user("five");
    ASSERT_TRUE(log->store(conversation, 3).ok());
    EXPECT_EQ(log->conversation(), conversation);
  }
  const auto log = MessageLog::open(path());
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(log->conversation().messages().size(), 6U);
  EXPECT_EQ(log->conversation().messages().back().content, "five");
  EXPECT_EQ(log->left_out(), 3U);
  EXPECT_THAT(log->remarks(), IsEmpty());
}

TEST_F(MessageLogFile, IsPrivateAndAppendsOneLineForEachChange) {
  store_all({});
  EXPECT_EQ(mode(path()), 0600U);
  EXPECT_EQ(mode(folder_ + "/talk/lock"), 0600U);
  const std::string header = get(path());
  EXPECT_EQ(std::count(header.begin(), header.end(), '\n'), 1);
  store_all({count_to(1)});
  const std::string once = get(path());
  store_all({count_to(1), count_to(1)});
  EXPECT_EQ(get(path()), once) << "nothing changed, so nothing is written";
  store_all({count_to(4), count_to(2)});
  const std::string later = get(path());
  EXPECT_TRUE(later.starts_with(once));
  EXPECT_EQ(std::count(later.begin(), later.end(), '\n'), 4);
  EXPECT_THAT(later, HasSubstr(R"({"keep":3,"add":[],"left_out":0,)"));
  EXPECT_THAT(names(), UnorderedElementsAre("messages.jsonl", "lock"));
}

TEST_F(MessageLogFile, HasAMessageAfterItsProcessWasKilledRightBehindIt) {
  for (int last = 1; last <= 4; ++last) {
    const int status = in_child([&] {
      auto log = MessageLog::open(path());
      if (!log.ok() || log->conversation().messages().size() != (last == 1 ? 0U : static_cast<std::size_t>(last))) {
        return false;
      }
      if (log->store(count_to(last), 0).ok()) ::raise(SIGKILL);
      return false;
    });
    ASSERT_EQ(status, 128 + SIGKILL);
    EXPECT_EQ(stored(), count_to(last));
  }
  EXPECT_TRUE(MessageLog::open(path()).ok()) << "the dead hold no lock";
}

TEST_F(MessageLogFile, IsOpenInOneProcessAtATimeAndSaysWhich) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    auto log = MessageLog::open(path());
    const bool stored = log.ok() && log->store(count_to(2), 0).ok();
    (void)!::write(ready[1], stored ? "y" : "n", 1);
    for (;;) ::pause();
  }
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  const auto refused = MessageLog::open(path());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kUsage);
  EXPECT_EQ(
      refused.error().sentence(),
      fmt::format("the session 'talk' is open in another kazeia (process {}). Leave it there, or use another name.",
                  holder));
  EXPECT_EQ(stored(), count_to(2)) << "reading needs no lock";
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  const auto log = MessageLog::open(path());
  ASSERT_TRUE(log.ok()) << log.error().sentence();
  EXPECT_FALSE(MessageLog::open(path()).ok()) << "nor twice in one process";
}

TEST_F(MessageLogFile, TornAnywhereOpensAndGoesOn) {
  store_all(counting(2));
  const std::string whole = get(path());
  for (std::size_t length = 0; length <= whole.size(); length += length + 80 < whole.size() ? 7 : 1) {
    put(whole.substr(0, length));
    const Conversation before = length == 0 ? Conversation() : stored();
    {
      auto log = MessageLog::open(path());
      ASSERT_TRUE(log.ok()) << length << ": " << log.error().sentence();
      EXPECT_EQ(log->conversation(), before) << length;
      ASSERT_TRUE(log->store(count_to(3), 0).ok());
    }
    const auto log = MessageLog::open(path());
    ASSERT_TRUE(log.ok()) << length << ": " << log.error().sentence();
    EXPECT_EQ(log->conversation(), count_to(3)) << length;
    EXPECT_THAT(log->remarks(), IsEmpty()) << length;
  }
  EXPECT_THAT(names(), UnorderedElementsAre("messages.jsonl", "lock")) << "a torn end is no damage";
}

TEST_F(MessageLogFile, DamagedIsRepairedAndKeptAsItWas) {
  store_all(counting(4));
  const std::string whole = get(path());
  for (int damage = 1; damage <= 7; ++damage) {
    std::string text = whole;
    text[text.find("\"2\"") + 1] = static_cast<char>('2' + damage);
    put(text);
    auto log = MessageLog::open(path());
    ASSERT_TRUE(log.ok()) << log.error().sentence();
    EXPECT_THAT(log->remarks(), ElementsAre("line 3 is damaged and was left out"));
    ASSERT_EQ(log->conversation().messages().size(), 4U);
    EXPECT_EQ(log->conversation().messages()[2].content, "3");
    EXPECT_EQ(get(path() + (damage == 1 ? ".damaged" : fmt::format(".damaged-{}", std::min(damage, 5)))), text);
    ASSERT_TRUE(log->store(count_to(6), 0).ok());
  }
  EXPECT_EQ(mode(path() + ".damaged"), 0600U);
  EXPECT_EQ(mode(path()), 0600U);
  EXPECT_THAT(names(),
              UnorderedElementsAre("messages.jsonl", "lock", "messages.jsonl.damaged", "messages.jsonl.damaged-2",
                                   "messages.jsonl.damaged-3", "messages.jsonl.damaged-4", "messages.jsonl.damaged-5"));
  const auto log = MessageLog::open(path());
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(log->conversation(), count_to(6));
  EXPECT_THAT(log->remarks(), IsEmpty());
}

TEST_F(MessageLogFile, DamagedIsOnlyReadByAReader) {
  store_all(counting(3));
  std::string text = get(path());
  text[text.find("\"2\"")] = 'x';
  put(text + "torn");
  const auto log = MessageLog::read(path());
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(log->remarks().size(), 2U);
  EXPECT_EQ(get(path()), text + "torn");
  EXPECT_THAT(names(), UnorderedElementsAre("messages.jsonl", "lock"));
}

TEST_F(MessageLogFile, OfANewerVersionOrOfSomethingElseIsNotTouched) {
  const std::string newer = "{\"format\":\"kazeia-session\",\"version\":2,\"sum\":\"700235e80476df53\"}\n{}\n";
  for (const std::string& text : {newer, std::string("Dear diary\n")}) {
    put(text);
    const auto log = MessageLog::open(path());
    ASSERT_FALSE(log.ok()) << text;
    EXPECT_EQ(log.error().code(), ErrorCode::kFile);
    EXPECT_THAT(log.error().message(), HasSubstr(path()));
    EXPECT_EQ(get(path()), text);
  }
  put(newer);
  EXPECT_THAT(MessageLog::read(path()).error().sentence(), HasSubstr("version 2"));
  fs::remove(path());
  EXPECT_EQ(MessageLog::read(path()).error().code(), ErrorCode::kFile);
  std::ofstream(path()).close();
  ASSERT_EQ(::truncate(path().c_str(), static_cast<off_t>(kLogLimitBytes) + 1), 0);
  EXPECT_THAT(MessageLog::open(path()).error().message(), HasSubstr("268435457 bytes"));
}

TEST_F(MessageLogFile, OnAFullDiskSaysWhatItSaidAndGoesOnLater) {
  store_all({count_to(2)});
  const std::string before = get(path());
  const int status = in_child([&] {
    // A file size limit answers EFBIG where a full disk answers ENOSPC, and like it in the middle of a line.
    std::signal(SIGXFSZ, SIG_IGN);
    auto log = MessageLog::open(path());
    rlimit limit{};
    if (!log.ok() || ::getrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    const rlimit full{before.size() + 40, limit.rlim_max};
    if (::setrlimit(RLIMIT_FSIZE, &full) != 0) return false;
    for (int attempt = 0; attempt < 2; ++attempt) {
      const Status refused = log->store(count_to(4), 1);
      if (refused.ok() || refused.error().code() != ErrorCode::kWrite ||
          refused.error().message().find("no space left") == std::string::npos || get(path()) != before ||
          log->conversation() != count_to(2) || log->left_out() != 0) {
        return false;
      }
    }
    return ::setrlimit(RLIMIT_FSIZE, &limit) == 0 && log->store(count_to(3), 1).ok();
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(stored(), count_to(3));
}

TEST_F(MessageLogFile, OnAFullDiskAWholeOrTornLogOpensAndADamagedOneIsNotTouched) {
  store_all(counting(3));
  const std::string whole = get(path());
  const auto open_on_full_disk = [&](const std::string& text) {
    put(text);
    return in_child([&] {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit full{10, 10};  // enough for the process number in `lock`
      return ::setrlimit(RLIMIT_FSIZE, &full) == 0 && MessageLog::open(path()).ok();
    });
  };
  EXPECT_EQ(open_on_full_disk(whole), 0);
  EXPECT_EQ(open_on_full_disk(whole.substr(0, whole.size() - 10)), 0);
  EXPECT_EQ(stored(), count_to(2));
  std::string damaged = whole;
  damaged[damaged.find("\"2\"")] = 'x';
  EXPECT_EQ(open_on_full_disk(damaged), 1);
  EXPECT_EQ(get(path()), damaged);
  EXPECT_THAT(names(), UnorderedElementsAre("messages.jsonl", "lock"));
}

TEST_F(MessageLogFile, InAReadOnlyFolderIsReadAndNotOpened) {
  store_all({count_to(2)});
  fs::remove(folder_ + "/talk/lock");
  ::chmod(folder_.c_str(), 0755);
  ::chmod(path().c_str(), 0444);
  ::chmod((folder_ + "/talk").c_str(), 0555);
  EXPECT_EQ(in_child([&] {
              if (::geteuid() == 0 && ::setuid(65534) != 0) return false;  // root may write anywhere, nobody may not
              const auto opened = MessageLog::open(path());
              const auto read = MessageLog::read(path());
              return !opened.ok() && opened.error().code() == ErrorCode::kWrite && read.ok() &&
                     read->conversation() == count_to(2);
            }),
            0);
}

TEST_F(MessageLogFile, OpenedForReadingStoresNothing) {
  store_all({count_to(2)});
  auto log = MessageLog::read(path());
  ASSERT_TRUE(log.ok());
  const Status refused = log->store(count_to(3), 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kUsage);
  EXPECT_EQ(stored(), count_to(2));
}

TEST_F(MessageLogFile, ThatWasRemovedWhileOpenSaysSoInsteadOfLosingMessages) {
  auto log = MessageLog::open(path());
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE(log->store(count_to(1), 0).ok());
  fs::remove(path());
  const Status refused = log->store(count_to(2), 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kWrite);
  EXPECT_THAT(refused.error().message(), HasSubstr("removed"));
}

TEST_F(MessageLogFile, RefusesWhatItCouldNotReadAgain) {
  auto log = MessageLog::open(path());
  ASSERT_TRUE(log.ok());
  Conversation conversation = count_to(2);
  ASSERT_TRUE(log->store(conversation, 0).ok());
  conversation.add({.role = Role::kSystem, .content = "in the middle"});
  EXPECT_EQ(log->store(conversation, 0).error().code(), ErrorCode::kUsage);
  Conversation huge;
  huge.add_user(std::string(kLogLineLimitBytes, 'x'));
  EXPECT_EQ(log->store(huge, 0).error().code(), ErrorCode::kTooLarge);
  EXPECT_EQ(log->conversation(), count_to(2));
  EXPECT_EQ(stored(), count_to(2));
  ASSERT_TRUE(log->store(count_to(3), 0).ok());
}

TEST_F(MessageLogFile, ThatHasGrownLongWithChangesIsWrittenAnew) {
  Conversation conversation;
  conversation.add_user("Write a long story.");
  std::vector<Conversation> attempts;
  for (int i = 0; i < 6; ++i) {
    Conversation attempt = conversation;
    attempt.add({.role = Role::kAssistant, .content = std::string(250'000, static_cast<char>('a' + i))});
    attempts.push_back(attempt);
  }
  store_all(attempts);
  EXPECT_GT(fs::file_size(path()), 1'500'000U);
  std::ofstream(path() + ".partial-killed") << "what a writer that was killed has left";
  std::time_t changed = 0;
  {
    const auto log = MessageLog::open(path());
    ASSERT_TRUE(log.ok());
    EXPECT_EQ(log->conversation(), attempts.back());
    changed = log->changed();
    EXPECT_GT(changed, 0);
  }
  EXPECT_LT(fs::file_size(path()), 260'000U);
  EXPECT_EQ(mode(path()), 0600U);
  EXPECT_THAT(names(), UnorderedElementsAre("messages.jsonl", "lock"));
  const auto log = MessageLog::open(path());
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(log->conversation(), attempts.back());
  EXPECT_EQ(log->changed(), changed);
}

}  // namespace
}  // namespace kazeia
