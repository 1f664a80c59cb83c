// The folder of sessions: names that any disk can hold, private folders, and nothing removed that is not ours.
#include "session/directory.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "session/message_log.h"

namespace kazeia {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Sessions : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = fmt::format("{}kazeia-sessions-{}-XXXXXX", testing::TempDir(), ::getpid());
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { fs::remove_all(folder_); }

  SessionDirectory directory() const { return SessionDirectory(root()); }
  std::string root() const { return folder_ + "/data/sessions"; }
  void put(const std::string& file, const std::string& text) const {
    fs::create_directories(fs::path(file).parent_path());
    std::ofstream(file, std::ios::binary) << text;
  }
  static unsigned mode(const std::string& file) {
    struct stat info {};
    return ::stat(file.c_str(), &info) == 0 ? info.st_mode & 07777U : 0;
  }
  // A session in which this was said.
  std::string make(const std::string& name, const std::string& text) const {
    const auto folder = directory().create(name);
    EXPECT_TRUE(folder.ok()) << folder.error().sentence();
    auto log = MessageLog::open(SessionDirectory::messages_path(*folder));
    EXPECT_TRUE(log.ok()) << log.error().sentence();
    Conversation conversation;
    conversation.set_system("Be brief.");
    conversation.add_user(text);
    conversation.add({.role = Role::kAssistant, .content = "Yes."});
    EXPECT_TRUE(log->store(conversation, 0).ok());
    return *folder;
  }
  std::vector<std::string> listed() const {
    std::vector<std::string> names;
    const auto list = directory().list();
    EXPECT_TRUE(list.ok());
    for (const SessionSummary& summary : *list) names.push_back(summary.name);
    return names;
  }

  std::string folder_;
};

std::string times(int count, const std::string& text) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(SessionNames, AreWhatAnyDiskCanHold) {
  for (const std::string& name :
       {std::string("a"), std::string("My talk 2"), std::string("été_à-Paris.v2"), std::string("会話"),
        std::string("мысли"), std::string("हिन्दी"), std::string("e\u0301"), std::string(64, 'x'), times(64, "é"),
        times(63, "𠀀"), std::string("-x"), std::string("end.")}) {
    EXPECT_TRUE(SessionDirectory::check_name(name).ok()) << name;
  }
}

TEST(SessionNames, AreNoPathsAndNothingInvisible) {
  for (const auto& [name, reason] :
       std::vector<std::pair<std::string, std::string>>{{"", "is empty"},
                                                        {".", "begins with a dot"},
                                                        {"..", "begins with a dot"},
                                                        {".hidden", "begins with a dot"},
                                                        {" x", "begins with a dot or a space"},
                                                        {"x ", "ends with a space"},
                                                        {"a/b", "contains /"},
                                                        {"../../etc", "contains /"},
                                                        {"a\\b", "contains \\"},
                                                        {"a:b", "contains :"},
                                                        {"a*", "contains *"},
                                                        {"a\nb", "U+000A"},
                                                        {"a\x1b[31m", "U+001B"},
                                                        {std::string("a\0b", 3), "U+0000"},
                                                        {"a\u202Eb", "U+202E"},
                                                        {"a\u200Bb", "U+200B"},
                                                        {"a\u00A0b", "U+00A0"},
                                                        {"\u3164", "U+3164"},
                                                        {"a\uFFFD", "U+FFFD"},
                                                        {"hot 🔥", "U+1F525"},
                                                        {"a\xFF", "not UTF-8"},
                                                        {"a\xC3", "not UTF-8"},
                                                        {"\xC0\xAF", "not UTF-8"},
                                                        {std::string(65, 'x'), "longer than 64"},
                                                        {times(65, "é"), "longer than 64"},
                                                        {times(64, "𠀀"), "longer than 64"},
                                                        {std::string(100000, 'x'), "longer than 64"}}) {
    const Status refused = SessionDirectory::check_name(name);
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_EQ(refused.error().code(), ErrorCode::kUsage);
    EXPECT_THAT(refused.error().message(), HasSubstr(reason));
  }
}

TEST(SessionRoot, IsWhereTheUserOrTheSystemWantsIt) {
  const auto root = [](const char* own, const char* data, const char* home) {
    const auto set = [](const char* name, const char* value) {
      value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
    };
    set("KAZEIA_SESSIONS", own);
    set("XDG_DATA_HOME", data);
    set("HOME", home);
    const auto found = SessionDirectory::default_root();
    return found.ok() ? *found : std::string(error_code_name(found.error().code()));
  };
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  EXPECT_EQ(root("/own", "/data", "/home/me"), "/own");
  EXPECT_EQ(root("", "/data", "/home/me"), "/data/kazeia/sessions");
  EXPECT_EQ(root(nullptr, "relative", "/home/me"), "/home/me/.local/share/kazeia/sessions");
  EXPECT_EQ(root(nullptr, nullptr, "/home/me"), "/home/me/.local/share/kazeia/sessions");
  EXPECT_EQ(root(nullptr, nullptr, nullptr), "usage");
  root(nullptr, nullptr, home.empty() ? nullptr : home.c_str());
}

TEST_F(Sessions, ArePrivateFoldersMadeWithTheirParents) {
  EXPECT_THAT(listed(), IsEmpty()) << "an absent root is no error";
  const auto folder = directory().create("été 1");
  ASSERT_TRUE(folder.ok()) << folder.error().sentence();
  EXPECT_EQ(*folder, root() + "/été 1");
  EXPECT_EQ(mode(folder_ + "/data"), 0700U);
  EXPECT_EQ(mode(root()), 0700U);
  EXPECT_EQ(mode(*folder), 0700U);
  EXPECT_EQ(directory().create("été 1").ok(), true) << "what is there is used";
  EXPECT_EQ(*directory().find("été 1"), *folder);
  EXPECT_EQ(directory().create("a/b").error().code(), ErrorCode::kUsage);
  put(folder_ + "/file", "x");
  EXPECT_EQ(SessionDirectory(folder_ + "/file").create("x").error().code(), ErrorCode::kWrite);
  EXPECT_EQ(SessionDirectory(folder_ + "/file").list().error().code(), ErrorCode::kFile);
}

TEST_F(Sessions, AreListedNewestFirstWithWhatTheyAreAbout) {
  const std::string line = R"({"keep":0,"add":[{"role":"user","content":"My name is Nadia."}],"left_out":0,"at":)";
  put(root() + "/old/messages.jsonl", "{\"format\":\"kazeia-session\",\"version\":1,\"sum\":\"e576f4f529524a88\"}\n" +
                                          line + "1750000000,\"sum\":\"01a1121b32c99e14\"}\n");
  const std::string folder = make("new", "  What\nis\tthe \x1b weather in Orléans " + times(40, "é") + " today?");
  put(SessionDirectory::state_folder(folder) + "/part", std::string(1000, 'x'));
  put(SessionDirectory::state_folder(folder) + "/deep/part", std::string(24, 'x'));
  put(root() + "/broken/messages.jsonl", "Dear diary\n");
  ASSERT_TRUE(directory().create("begun").ok());
  put(root() + "/somebody elses/photo.jpg", "x");
  put(root() + "/.hidden/messages.jsonl", "x");
  put(root() + "/a file", "x");

  const auto list = directory().list();
  ASSERT_TRUE(list.ok()) << list.error().sentence();
  ASSERT_EQ(list->size(), 4U);
  EXPECT_EQ(list->back().name, "old");
  EXPECT_EQ(list->back().changed, 1750000000);
  EXPECT_EQ(list->back().messages, 1U);
  EXPECT_EQ(list->back().first_words, "My name is Nadia.");

  const auto newest = directory().summary("new");
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(newest->messages, 3U);
  EXPECT_EQ(newest->state_bytes, 1024U);
  EXPECT_EQ(newest->first_words, "What is the weather in Orléans " + times(29, "é") + "…");
  EXPECT_EQ(newest->problem, "");
  EXPECT_THAT(directory().summary("broken")->problem, HasSubstr("not a message log"));
  EXPECT_EQ(directory().summary("begun")->messages, 0U);
  EXPECT_GT(directory().summary("begun")->changed, 1750000000);
}

TEST_F(Sessions, ThatAreNotThereAreAnsweredWithWhatIsNear) {
  for (const char* name : {"groceries", "holiday", "holidays in Rome", "été", "ab"}) make(name, "hello");
  const auto next = [&](const char* name) {
    const auto found = directory().find(name);
    EXPECT_FALSE(found.ok()) << name;
    EXPECT_EQ(found.error().code(), ErrorCode::kFile);
    return found.error().next();
  };
  EXPECT_EQ(next("grocreies"), "Near it: 'groceries'");
  EXPECT_EQ(next("holi"), "Near it: 'holiday', 'holidays in Rome'");
  EXPECT_EQ(next("ete"), "Near it: 'été'");
  EXPECT_THAT(next("xy"), Not(HasSubstr("Near")));
  EXPECT_THAT(next("work"), HasSubstr("sessions list"));
}

TEST_F(Sessions, AreRemovedWithEverythingInThemAndNothingElse) {
  const std::string folder = make("gone", "hello");
  make("stays", "hello");
  put(folder_ + "/outside/precious", "x");
  put(folder + "/state/part", "x");
  fs::create_directory_symlink(folder_ + "/outside", folder + "/state/link");
  fs::create_symlink(folder_ + "/outside/precious", folder + "/state/file link");
  ASSERT_TRUE(directory().remove("gone").ok());
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_TRUE(fs::exists(folder_ + "/outside/precious"));
  EXPECT_THAT(listed(), ElementsAre("stays"));
  EXPECT_EQ(directory().remove("gone").error().code(), ErrorCode::kFile);
  EXPECT_EQ(directory().remove("../outside").error().code(), ErrorCode::kUsage);
  // A damaged one can be removed too.
  put(root() + "/broken/messages.jsonl", "Dear diary\n");
  EXPECT_TRUE(directory().remove("broken").ok());
}

TEST_F(Sessions, AreNoFoldersOfOthers) {
  put(root() + "/Documents/letter.txt", "x");
  put(folder_ + "/outside/messages.jsonl", "x");
  fs::create_directory_symlink(folder_ + "/outside", root() + "/link");
  for (const char* name : {"Documents", "link"}) {
    EXPECT_EQ(directory().remove(name).error().code(), ErrorCode::kFile) << name;
    EXPECT_EQ(directory().find(name).error().code(), ErrorCode::kFile) << name;
    EXPECT_EQ(directory().create(name).error().code(), ErrorCode::kUsage) << name;
  }
  EXPECT_THAT(listed(), IsEmpty());
  EXPECT_TRUE(fs::exists(root() + "/Documents/letter.txt"));
  EXPECT_TRUE(fs::exists(folder_ + "/outside/messages.jsonl"));
}

TEST_F(Sessions, AreNotRemovedWhileTheyAreOpen) {
  const std::string folder = make("talk", "hello");
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    const auto log = MessageLog::open(SessionDirectory::messages_path(folder));
    (void)!::write(ready[1], log.ok() ? "y" : "n", 1);
    for (;;) ::pause();
  }
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  const Status refused = directory().remove("talk");
  ::kill(holder, SIGKILL);
  ::waitpid(holder, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kUsage);
  EXPECT_THAT(refused.error().message(), HasSubstr(fmt::format("process {}", holder)));
  EXPECT_THAT(listed(), ElementsAre("talk"));
  EXPECT_TRUE(directory().remove("talk").ok());
}

}  // namespace
}  // namespace kazeia
