// The program where memory ends: a cgroup whose limit is known, one whose limit falls, and a system that gives no more.
// It says so in a sentence, or is killed; what it acknowledged is on the disk either way.

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli_program.h"

namespace kazeia::cli_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::StartsWith;
using Json = nlohmann::json;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr int kTooLarge = 5;
constexpr int kEngine = 7;
constexpr int kKilled = 128 + SIGKILL;

// A group inside the one that this test runs in; gone at the end. Without a path where none can be made.
class MemoryGroup {
 public:
  MemoryGroup() {
    std::istringstream memberships(read_file("/proc/self/cgroup"));  // "4:memory:/a/b", or of version 2 "0::/a/b"
    for (std::string line; std::getline(memberships, line);) {
      const std::size_t first = line.find(':');
      const std::size_t second = line.find(':', first + 1);
      if (second == std::string::npos) continue;
      const std::string controllers = line.substr(first + 1, second - first - 1);
      const std::string path = line.substr(second + 1);
      if (controllers == "memory") try_folder("/sys/fs/cgroup/memory" + path, "memory.limit_in_bytes");
      if (controllers.empty()) try_folder("/sys/fs/cgroup" + path, "memory.max");
    }
  }
  ~MemoryGroup() {
    // A process that was just killed leaves its group a little later.
    for (int i = 0; !folder_.empty() && ::rmdir(folder_.c_str()) != 0 && errno == EBUSY && i < 200; ++i)
      ::usleep(10'000);
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;

  bool possible() const { return !folder_.empty(); }
  // False if the kernel does not find so much to give back.
  bool limit(std::uint64_t bytes) const { return write(limit_file_, std::to_string(bytes)); }
  std::function<void()> joining() const {
    return [file = folder_ + "/cgroup.procs"] {
      const int group = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
      if (group < 0 || ::write(group, "0", 1) != 1) ::_exit(126);
      ::close(group);
    };
  }

 private:
  void try_folder(const std::string& parent, const std::string& limit_file) {
    if (possible()) return;
    folder_ = parent + "/kazeia-test-" + std::to_string(::getpid());
    limit_file_ = limit_file;
    if (::mkdir(folder_.c_str(), 0755) == 0 && limit(4096 * kMiB)) {
      write("memory.swap.max", "0");  // where there is swap, a limit would only make it slow
      return;
    }
    ::rmdir(folder_.c_str());
    folder_.clear();
  }
  bool write(const std::string& name, const std::string& text) const {
    const int file = ::open((folder_ + "/" + name).c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0) return false;
    const bool written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::close(file);
    return written;
  }

  std::string folder_;
  std::string limit_file_;
};

#define NEEDS_A_GROUP(group) \
  if (!(group).possible()) GTEST_SKIP() << "no cgroup with a memory limit can be made here"

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TEST(MemoryLimit, ThatIsKnownIsTheBudgetAndWhatWouldFitFits) {
  const MemoryGroup group;
  NEEDS_A_GROUP(group);
  ASSERT_TRUE(group.limit(120 * kMiB));
  const auto chat = [&](std::string_view flags) {
    std::vector<std::string> words{"chat", model_path(kDense), "--temp", "0", "--no-think"};
    std::istringstream rest{std::string(flags)};
    for (std::string word; rest >> word;) words.push_back(word);
    Conditions conditions{.input = "What is the capital of France?\n"};
    conditions.in_child = group.joining();
    return run(words, conditions);
  };
  const Outcome refused = chat("--context 100000");
  EXPECT_EQ(refused.exit_code, kTooLarge) << refused.err;
  EXPECT_EQ(refused.out, "");
  EXPECT_EQ(refused.error_lines(), 1U) << refused.err;

  Conditions inside;
  inside.in_child = group.joining();
  const Outcome planned = run({"plan", model_path(kDense), "--context", "100000", "--json"}, inside);
  const Json plan = Json::parse(planned.out, nullptr, false);
  ASSERT_TRUE(plan.is_object()) << planned.all();
  EXPECT_EQ(plan["fits"], false);
  ASSERT_FALSE(plan["changes_that_fit"].empty()) << planned.out;
  for (const Json& change : plan["changes_that_fit"]) {
    std::string flags = change["change"];
    if (flags.find("--context") == std::string::npos) flags += " --context 100000";
    const Outcome fits = chat(flags);
    EXPECT_EQ(fits.exit_code, 0) << change << "\n" << fits.err;
    EXPECT_EQ(fits.out, "The capital of France is Paris.\n") << change;
  }
}

class ChatWithLittleMemory : public testing::TestWithParam<std::string> {
 protected:
  std::string root() const { return scratch_.path("sessions"); }
  std::vector<std::string> chat(const std::vector<std::string>& more = {}) const {
    return joined({"chat", model_path(GetParam()), "--session", "talk", "--sessions-dir", root(), "--temp", "0",
                   "--no-think", "--budget", "0"},
                  more);
  }
  std::vector<std::string> kept() const {
    const Outcome exported = run({"sessions", "export", "talk", "--sessions-dir", root()});
    EXPECT_EQ(exported.exit_code, 0) << exported.err;
    const Json talk = Json::parse(exported.out, nullptr, false);
    std::vector<std::string> contents;
    for (const Json& message : talk["messages"]) contents.push_back(message["content"]);
    return contents;
  }
  // What was acknowledged is there, the conversation goes on, and nothing is left of what was not finished.
  void expect_unharmed(const std::vector<std::string>& acknowledged) const {
    const std::vector<std::string> now = kept();
    ASSERT_GE(now.size(), acknowledged.size());
    EXPECT_TRUE(std::equal(acknowledged.begin(), acknowledged.end(), now.begin())) << testing::PrintToString(now);
    const Outcome asked = run(chat(), {.input = "What is my name?\n"});
    EXPECT_EQ(asked.exit_code, 0) << asked.err;
    // Further back, a mini model forgets.
    if (now.size() == acknowledged.size()) {
      EXPECT_EQ(asked.out, "Your name is Nadia.\n");
    }
    EXPECT_NE(asked.out, "");
    EXPECT_GT(kept().size(), now.size()) << asked.err;
    for (const auto& entry : fs::recursive_directory_iterator(root())) {
      EXPECT_EQ(entry.path().filename().string().find(".partial-"), std::string::npos) << entry.path();
    }
  }

  const Scratch scratch_;
};

std::string words(int count) {
  std::string text = "I like the number 7";
  for (int i = 0; i < count; ++i) text += " and the number " + std::to_string(i % 10);
  return text + ".";
}

TEST_P(ChatWithLittleMemory, IsKilledByALimitThatFallsAndLosesNothing) {
  const MemoryGroup group;
  NEEDS_A_GROUP(group);
  Piped program(chat({"--context", "4096"}), group.joining());
  program.send("My name is Nadia.");
  const std::optional<std::string> hello = program.read_line();
  ASSERT_TRUE(hello) << program.errors();
  const std::vector<std::string> acknowledged{"My name is Nadia.", *hello};
  // As low as the kernel lets it be; a version 2 kernel kills for what it cannot give back.
  for (std::uint64_t bytes = 512 * kMiB; bytes > kMiB && group.limit(bytes); bytes -= bytes / 50) continue;
  program.send(words(150));
  int exit_code = -1;
  if (!program.read_line()) exit_code = program.wait_for_exit();
  EXPECT_EQ(exit_code, kKilled) << program.errors();
  expect_unharmed(acknowledged);
}

// Every step of the program is somewhere the first that gets nothing.
TEST_P(ChatWithLittleMemory, SaysSoWhenTheSystemGivesNoMore) {
  const std::vector<std::string> question{"run", model_path(GetParam()), "-p",      "What is 2 + 2?", "--temp",
                                          "0",   "--no-think",           "--quiet", "--budget",       "0"};
  const auto limited = [](std::uint64_t bytes) {
    return Conditions{.in_child = [bytes] {
      const rlimit limit{bytes, bytes};
      ::setrlimit(RLIMIT_DATA, &limit);
    }};
  };
  // With less, the system's loader does not reach the program.
  std::uint64_t kib = 512;
  while (run({"--version"}, limited(kib << 10)).exit_code != 0 && kib < 64 * 1024) kib += kib / 24;
  int answered = 0;
  int refused = 0;
  int unchecked = 0;
  for (; answered < 3 && kib < 1024 * 1024; kib += kib / 24) {
    const Outcome outcome = run(question, limited(kib << 10));
    SCOPED_TRACE(fmt::format("{} KiB", kib));
    if (outcome.exit_code == 0) {
      ++answered;
      EXPECT_EQ(outcome.out, "2 + 2 = 4.\n");
      continue;
    }
    answered = 0;
    // llama.cpp's ggml_backend_sched_new() uses what it allocates without a look; a limit has to hit exactly that.
    if (outcome.exit_code == 128 + SIGSEGV && ++unchecked == 1) continue;
    ++refused;
    EXPECT_THAT(outcome.exit_code, AnyOf(kTooLarge, kEngine)) << outcome.err;
    EXPECT_THAT(outcome.err, StartsWith("kazeia: "));
    EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
  }
  EXPECT_EQ(answered, 3);
  EXPECT_GT(refused, 5);
}

// A limit on what is there already: the next allocation that needs more of the system fails, whichever that is.
TEST_P(ChatWithLittleMemory, DamagesNoSessionWhenAllocationsFailAtAnyMoment) {
  for (int moment = 0; moment < 16; ++moment) {
    SCOPED_TRACE(fmt::format("moment {}", moment));
    fs::remove_all(root());
    Piped program(chat({"--context", "4096"}));
    program.send("My name is Nadia.");
    const std::optional<std::string> hello = program.read_line();
    ASSERT_TRUE(hello) << program.errors();
    std::vector<std::string> acknowledged{"My name is Nadia.", *hello};
    program.send(words(10 * (moment % 4)));
    std::this_thread::sleep_for(std::chrono::milliseconds(3 * moment));
    const rlimit nothing_more{0, 0};
    ASSERT_EQ(::prlimit(program.process(), RLIMIT_DATA, &nothing_more, nullptr), 0);
    program.send(words(250));
    program.send("What is 2 + 2?");
    program.end_input();
    while (program.read_line()) continue;
    const int exit_code = program.wait_for_exit();
    EXPECT_LT(exit_code, 128) << program.errors();
    EXPECT_TRUE(exit_code == 0 || program.errors().find("kazeia: ") != std::string::npos) << program.errors();
    expect_unharmed(acknowledged);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ChatWithLittleMemory, testing::Values(kDense, kHybrid),
                         [](const auto& model) { return model.param == kDense ? "Dense" : "Hybrid"; });

}  // namespace
}  // namespace kazeia::cli_test
