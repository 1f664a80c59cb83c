// `kazeia chat --session`, killed at any moment: what was acknowledged is on the disk, once, in order, unchanged.
//
// The user's message is acknowledged by anything that comes after it, an answer by its whole line of JSON, and both by
// having been seen on the disk once.

#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <nlohmann/json.hpp>

#include "cli_program.h"

namespace kazeia::cli_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr const char* kFact = "My name is Nadia.";
constexpr const char* kQuestion = "What is my name?";
constexpr const char* kAgain = "/regen";
// The hybrid mini model loses a name further back than this.
constexpr int kSureTokens = 250;

// When the program is killed.
enum class Moment { kLoading, kAnswering, kIdle, kWritingMessages, kWritingState, kLeaving };
constexpr std::array<const char*, 6> kMomentNames{"loading",          "answering",     "idle",
                                                  "writing messages", "writing state", "leaving"};

std::uint32_t seed_of_this_run() {
  if (const char* given = std::getenv("KAZEIA_SEED")) return static_cast<std::uint32_t>(std::atoll(given));
  return std::random_device()();
}

double milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

void sleep_ms(double milliseconds) {
  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
}

// Changes in a folder, from now on.
class FolderWatch {
 public:
  explicit FolderWatch(const std::string& folder) : queue_(::inotify_init1(IN_CLOEXEC)) {
    ::inotify_add_watch(queue_, folder.c_str(), IN_CREATE | IN_MODIFY | IN_MOVED_TO | IN_DELETE | IN_CLOSE_WRITE);
  }
  ~FolderWatch() { ::close(queue_); }
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;

  // Returns after so many changes, or when there is no other for so long.
  void wait_for(int changes, int patience_ms = 100) const {
    pollfd waiting{queue_, POLLIN, 0};
    while (changes > 0 && ::poll(&waiting, 1, patience_ms) > 0) {
      alignas(inotify_event) char bytes[4096];
      const ssize_t n = ::read(queue_, bytes, sizeof bytes);
      for (ssize_t at = 0; at < n; --changes) {
        at += static_cast<ssize_t>(sizeof(inotify_event) + reinterpret_cast<const inotify_event*>(bytes + at)->len);
      }
    }
  }

 private:
  int queue_;
};

// What the other side of the pipe knows of one conversation.
class Witness {
 public:
  explicit Witness(bool reliable) : reliable_(reliable) {}

  std::string next_line(std::mt19937& random) {
    const bool waiting = !sent_.empty();
    if (known_.empty() && !waiting) return kFact;
    if (!waiting && unanswered()) return kAgain;
    if (random() % 2 == 0) return kQuestion;
    ++sums_;
    return fmt::format("What is {} + {}?", sums_ / 10, sums_ % 10);
  }
  void sent(const std::string& line) { sent_.push_back(line); }

  void heard(const std::string& line) {
    const Json answer = Json::parse(line, nullptr, false);
    ASSERT_TRUE(answer.contains("text")) << line;
    ASSERT_FALSE(sent_.empty()) << "an answer to nothing: " << line;
    const std::string message = std::exchange(sent_.front(), {});
    sent_.erase(sent_.begin());
    if (message != kAgain) known_.push_back({{"role", "user"}, {"content", message}});
    const std::string asked = known_.back()["content"];
    Json reply{{"role", "assistant"}, {"content", answer["text"]}};
    if (answer["thinking"] != "") reply["thinking"] = answer["thinking"];
    known_.push_back(reply);
    if (asked == kQuestion && (reliable_ || answer["prompt_tokens"] < kSureTokens)) {
      EXPECT_EQ(answer["text"], "Your name is Nadia.") << Json(known_).dump(1);
    }
  }

  // The program has died, and this is on the disk.
  void found(const std::vector<Json>& kept) {
    ASSERT_GE(kept.size(), known_.size()) << "lost, of " << Json(known_).dump(1);
    for (std::size_t i = 0; i < known_.size(); ++i) ASSERT_EQ(kept[i], known_[i]) << "message " << i;
    // Of what was sent, some may have been read and some of that answered.
    std::size_t at = known_.size();
    for (const std::string& message : sent_) {
      if (at < kept.size() && message != kAgain) {
        EXPECT_EQ(kept[at], Json({{"role", "user"}, {"content", message}})) << "message " << at;
        ++at;
      }
      if (at < kept.size()) {
        EXPECT_EQ(kept[at]["role"], "assistant") << "message " << at;
        ++at;
      }
    }
    EXPECT_EQ(at, kept.size()) << "more than was said: " << Json(kept).dump(1);
    known_ = kept;
    sent_.clear();
  }

  bool unanswered() const { return !known_.empty() && known_.back()["role"] == "user"; }
  const std::vector<Json>& known() const { return known_; }

 private:
  bool reliable_;
  std::vector<Json> known_;
  std::vector<std::string> sent_;
  int sums_ = 0;
};

class KilledChat : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  std::string model() const { return std::get<0>(GetParam()); }
  std::string folder() const { return scratch_.path("sessions") + "/" + name_; }
  int pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  double part_of(double whole) { return std::uniform_real_distribution<double>(0, whole)(random_); }

  std::vector<std::string> arguments() {
    std::vector<std::string> all{"chat",
                                 model_path(model()),
                                 "--json",
                                 "--session",
                                 name_,
                                 "--sessions-dir",
                                 scratch_.path("sessions"),
                                 "--temp",
                                 "0",
                                 "--threads",
                                 "1",
                                 "--max-tokens",
                                 "40",
                                 "--checkpoint-memory",
                                 "200KB"};
    if (pick(0, 1) == 0) all.emplace_back("--no-think");
    return all;
  }

  void begin_session() {
    name_ = fmt::format("talk {}", ++sessions_);
    witness_ = std::make_unique<Witness>(model() == kDense);
  }

  std::vector<Json> kept() const {
    const Outcome exported = run({"sessions", "export", name_, "--sessions-dir", scratch_.path("sessions")});
    EXPECT_THAT(exported.err, Not(HasSubstr("damaged")));
    // Killed before there was a log.
    if (exported.exit_code != 0 && witness_->known().empty()) return {};
    EXPECT_EQ(exported.exit_code, 0) << exported.err;
    const Json file = Json::parse(exported.out, nullptr, false);
    return file.contains("messages") ? file["messages"].get<std::vector<Json>>() : std::vector<Json>{};
  }

  std::size_t partial_files() const {
    std::size_t count = 0;
    std::error_code none_yet;
    for (const auto& entry : fs::recursive_directory_iterator(folder(), none_yet)) {
      if (entry.path().filename().string().find(".partial-") != std::string::npos) ++count;
    }
    return count;
  }

  void say(Piped& program) {
    const std::string line = witness_->next_line(random_);
    witness_->sent(line);
    program.send(line);
  }
  void hear(Piped& program) {
    const std::optional<std::string> line = program.read_line();
    ASSERT_TRUE(line) << program.errors();
    witness_->heard(*line);
  }

  // From a start to a kill; false if the program had left before.
  bool live_until(Moment moment);
  void end_session();

  std::mt19937 random_;
  std::string name_;
  std::unique_ptr<Witness> witness_;
  std::size_t partial_seen_ = 0;
  std::size_t unanswered_seen_ = 0;
  std::size_t most_state_files_ = 0;

 private:
  const Scratch scratch_;
  int sessions_ = 0;
  // As it was the last time.
  double load_ms_ = 150;
  double answer_ms_ = 20;
  double leave_ms_ = 20;
};

bool KilledChat::live_until(Moment moment) {
  auto begin = Clock::now();
  Piped program(arguments());
  if (moment == Moment::kLoading) {
    say(program);
    sleep_ms(part_of(load_ms_));
  } else {
    say(program);
    hear(program);
    load_ms_ = milliseconds_since(begin);
    for (int more = pick(0, 1); more > 0; --more) {
      begin = Clock::now();
      say(program);
      hear(program);
      answer_ms_ = milliseconds_since(begin);
    }
    const FolderWatch messages(folder());
    const FolderWatch state(folder() + "/state");
    begin = Clock::now();
    switch (moment) {
      case Moment::kLoading:
        break;
      case Moment::kAnswering: {
        const int together = pick(1, 3);
        for (int i = 0; i < together; ++i) say(program);
        sleep_ms(part_of(answer_ms_ * together));
        break;
      }
      case Moment::kIdle:
        sleep_ms(part_of(30));
        break;
      case Moment::kWritingMessages:
        say(program);
        messages.wait_for(pick(1, 3));
        break;
      case Moment::kWritingState:
        say(program);
        hear(program);
        state.wait_for(pick(1, 10));
        break;
      case Moment::kLeaving:
        program.end_input();
        sleep_ms(part_of(leave_ms_));
        break;
    }
  }
  const int exit_code = program.kill();
  // What it had written completely was acknowledged, even if it is read only now.
  while (const std::optional<std::string> line = program.read_line()) witness_->heard(*line);
  EXPECT_THAT(program.errors(), Not(HasSubstr("damaged")));
  EXPECT_THAT(program.errors(), Not(HasSubstr("not saved")));
  EXPECT_THAT(program.errors(), Not(HasSubstr("kazeia:")));
  if (exit_code == 0 && moment == Moment::kLeaving) {
    leave_ms_ /= 2;
  } else {
    EXPECT_EQ(exit_code, 128 + SIGKILL) << program.errors();
    leave_ms_ = std::max(leave_ms_, 5.0) * 1.1;
  }
  witness_->found(kept());
  partial_seen_ += partial_files();
  if (witness_->unanswered()) ++unanswered_seen_;
  return exit_code != 0;
}

// A restart that nobody kills: it goes on, and answers as a chat does that has never heard of a state on disk.
void KilledChat::end_session() {
  const std::vector<std::string> same = arguments();
  Piped program(same);
  if (witness_->known().empty() || witness_->unanswered()) {
    say(program);
    hear(program);
  }
  const std::vector<Json> before = witness_->known();
  witness_->sent(kQuestion);
  program.send(kQuestion);
  hear(program);
  program.end_input();
  EXPECT_EQ(program.wait_for_exit(), 0) << program.errors();
  EXPECT_THAT(program.errors(), Not(HasSubstr("damaged")));
  witness_->found(kept());
  EXPECT_EQ(partial_files(), 0u);
  std::size_t state_files = 0;
  for (const auto& entry : fs::directory_iterator(folder() + "/state")) state_files += entry.is_regular_file() ? 1 : 0;
  most_state_files_ = std::max(most_state_files_, state_files);

  const Json file{{"format", "kazeia-conversation"}, {"version", 1}, {"messages", before}};
  const std::string path = scratch_.write("before.json", file.dump());
  std::vector<std::string> anew = same;
  anew.erase(anew.begin() + 3, anew.begin() + 7);  // without the session
  const Outcome fresh = run(anew, {.input = fmt::format("/load {}\n{}\n", path, kQuestion)});
  EXPECT_EQ(fresh.exit_code, 0) << fresh.err;
  EXPECT_EQ(Json::parse(fresh.out, nullptr, false)["text"], witness_->known().back()["content"]) << file.dump(1);
}

TEST_P(KilledChat, HasEverythingThatWasAcknowledged) {
  constexpr int kKills = 25;
  constexpr int kKillsPerSession = 9;
  const std::uint32_t seed = seed_of_this_run();
  SCOPED_TRACE(fmt::format("KAZEIA_SEED={}", seed));
  std::cout << "KAZEIA_SEED=" << seed << "\n";
  random_.seed(seed);
  std::array<int, kMomentNames.size()> killed{};
  begin_session();
  for (int kills = 0, lives = 0; kills < kKills && !HasFailure(); ++lives) {
    ASSERT_LT(lives, 4 * kKills) << "it always leaves before it can be killed";
    const auto moment = static_cast<Moment>((lives + std::get<1>(GetParam())) % static_cast<int>(kMomentNames.size()));
    SCOPED_TRACE(fmt::format("life {}, killed while {}", lives, kMomentNames[static_cast<std::size_t>(moment)]));
    if (!live_until(moment)) continue;
    ++killed[static_cast<std::size_t>(moment)];
    if (++kills % kKillsPerSession != 0) continue;
    end_session();
    begin_session();
  }
  end_session();
  for (std::size_t i = 0; i < killed.size(); ++i) std::cout << kMomentNames[i] << ": " << killed[i] << ", ";
  std::cout << unanswered_seen_ << " left a message without answer, unfinished files left: " << partial_seen_
            << ", most state files: " << most_state_files_ << "\n";
}

INSTANTIATE_TEST_SUITE_P(Models, KilledChat, testing::Combine(testing::Values(kDense, kHybrid), testing::Range(0, 4)),
                         [](const auto& test) {
                           return fmt::format("{}{}", std::get<0>(test.param) == kDense ? "Dense" : "Hybrid",
                                              std::get<1>(test.param));
                         });

// A log that is written anew when it is opened: much longer than what it has to say, and then damaged as well.
TEST(KilledRewrite, LosesNothing) {
  const Scratch scratch;
  const auto chat = [&](const std::string& root) {
    return std::vector<std::string>{"chat",       model_path(kDense), "--session", "talk",      "--sessions-dir",
                                    root,         "--temp",           "0",         "--threads", "1",
                                    "--no-think", "--no-read-ahead"};
  };
  const auto contents = [](const std::string& root) {
    const Outcome exported = run({"sessions", "export", "talk", "--sessions-dir", root});
    std::vector<std::string> found;
    const Json file = Json::parse(exported.out, nullptr, false);
    for (const Json& message : file["messages"]) found.push_back(message["content"]);
    return found;
  };
  const std::string whole = scratch.path("whole");
  const Json message{{"role", "user"}, {"content", std::string(200'000, 'x')}};
  const Json big{{"format", "kazeia-conversation"}, {"version", 1}, {"messages", Json::array({message})}};
  const std::string path = scratch.write("big.json", big.dump());
  std::string input;
  for (int i = 0; i < 6; ++i) input += fmt::format("/load {}\n/reset\n", path);
  ASSERT_EQ(run(chat(whole), {.input = fmt::format("{}{}\n{}\n", input, kFact, kQuestion)}).exit_code, 0);
  const std::vector<std::string> said = contents(whole);
  ASSERT_EQ(said.size(), 4u);
  const std::string log = read_file(whole + "/talk/messages.jsonl");
  ASSERT_GT(log.size(), 1'000'000u);

  for (const bool damaged : {false, true}) {
    for (int changes = 1; changes <= 9; ++changes) {
      SCOPED_TRACE(fmt::format("{}, killed after {} changes", damaged ? "damaged" : "too long", changes));
      const std::string root = scratch.path(fmt::format("killed-{}-{}", damaged, changes));
      fs::copy(whole, root, fs::copy_options::recursive);
      if (damaged) {
        std::fstream file(root + "/talk/messages.jsonl", std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(1000);
        file.put('y');
      }
      {
        const FolderWatch watch(root + "/talk");
        Piped program(chat(root));
        watch.wait_for(changes, 3000);
        program.kill();
      }
      EXPECT_EQ(contents(root), said);
      const Outcome after = run(chat(root), {.input = fmt::format("{}\n", kQuestion)});
      EXPECT_EQ(after.out, "Your name is Nadia.\n") << after.err;
      EXPECT_EQ(contents(root).size(), said.size() + 2);
      EXPECT_LT(fs::file_size(root + "/talk/messages.jsonl"), 10'000u) << "it is compacted";
      std::size_t kept_as_damaged = 0;
      for (const auto& entry : fs::recursive_directory_iterator(root + "/talk")) {
        const std::string name = entry.path().filename().string();
        EXPECT_THAT(name, Not(HasSubstr(".partial-")));
        if (name.find(".damaged") != std::string::npos) ++kept_as_damaged;
      }
      EXPECT_EQ(kept_as_damaged > 0, damaged);
      EXPECT_LE(kept_as_damaged, 2u);
      fs::remove_all(root);
    }
  }
}

}  // namespace
}  // namespace kazeia::cli_test
