// `kazeia chat --session` where it cannot do what it should: a full disk, a folder that cannot be, a session that is
// open already, a message that is refused. And on a terminal.

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
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
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;

constexpr const char* kCtrlD = "\x04";
constexpr int kUsage = 2;
constexpr int kTooLarge = 5;
constexpr int kWrite = 6;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

class ChatSession : public testing::Test {
 protected:
  std::string root() const { return scratch_.path("sessions"); }
  std::string file(const std::string& name) const { return root() + "/talk/" + name; }

  std::vector<std::string> arguments(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{"chat",   model_, "--session", "talk", "--sessions-dir", root(),
                                 "--temp", "0",    "--threads", "1",    "--no-think"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Outcome chat(const std::string& input, const std::vector<std::string>& more = {}) const {
    return run(arguments(more), {.input = input});
  }
  // Contents, in order.
  std::vector<std::string> kept() const {
    const Outcome exported = run({"sessions", "export", "talk", "--sessions-dir", root()});
    EXPECT_EQ(exported.exit_code, 0) << exported.err;
    EXPECT_THAT(exported.err, IsEmpty());
    std::vector<std::string> contents;
    const Json file = Json::parse(exported.out, nullptr, false);
    for (const Json& message : file["messages"]) contents.push_back(message["content"]);
    return contents;
  }
  std::vector<std::string> unfinished_files() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(root())) {
      const std::string name = entry.path().filename().string();
      if (name.find(".partial-") != std::string::npos) found.push_back(name);
    }
    return found;
  }

  const Scratch scratch_;
  std::string model_ = model_path(kDense);
};

class ChatSessionOnAFullDisk : public ChatSession, public testing::WithParamInterface<std::string> {
 protected:
  ChatSessionOnAFullDisk() { model_ = model_path(GetParam()); }
};

TEST_P(ChatSessionOnAFullDisk, GoesOnKeepsTheBeginningAndSaysWhatItDoesNotKeep) {
  const std::vector<std::string> questions{"What is the opposite of hot?",
                                           "What is 2 + 2?",
                                           "What is 2 + 3?",
                                           "What is 2 + 4?",
                                           "What is 2 + 5?",
                                           "What is my name?"};
  std::string input;
  for (const std::string& question : questions) input += question + "\n";
  for (const std::uint64_t limit : {0, 100, 300, 500, 1000, 20000, 100000}) {
    SCOPED_TRACE(fmt::format("{} bytes", limit));
    fs::remove_all(root());
    ASSERT_EQ(chat("My name is Nadia.\n").exit_code, 0);
    const std::vector<std::string> before = kept();
    const Outcome full = run(arguments(), {.input = input, .file_size_limit = limit});
    const std::vector<std::string> answers = lines_of(full.out);
    ASSERT_EQ(answers.size(), questions.size()) << full.err;
    EXPECT_EQ(answers.back(), "Your name is Nadia.");

    std::vector<std::string> said = before;
    for (std::size_t i = 0; i < questions.size(); ++i) said.insert(said.end(), {questions[i], answers[i]});
    const std::vector<std::string> now = kept();
    ASSERT_LE(now.size(), said.size());
    EXPECT_TRUE(std::equal(now.begin(), now.end(), said.begin())) << testing::PrintToString(now);
    EXPECT_GE(now.size(), before.size());
    if (now.size() < said.size()) {
      EXPECT_EQ(count(full.err, "(the messages are not saved: "), 1u) << full.err;
      EXPECT_THAT(lines_of(full.err).back(),
                  HasSubstr(fmt::format("the last {} messages are not saved", said.size() - now.size())));
      EXPECT_THAT(full.err, Not(HasSubstr("the messages are;"))) << "they are not";
      EXPECT_EQ(full.exit_code, kWrite);
    } else {
      EXPECT_THAT(full.err, Not(HasSubstr("messages are not saved")));
      EXPECT_THAT(full.err, Not(HasSubstr("not every message was answered"))) << "every one was";
      EXPECT_EQ(full.exit_code, 0) << "nothing is lost";
    }

    const Outcome after = chat("What is my name?\n");
    EXPECT_EQ(after.exit_code, 0) << after.err;
    EXPECT_THAT(after.err, Not(HasSubstr("damaged")));
    EXPECT_THAT(unfinished_files(), IsEmpty());
    EXPECT_EQ(kept().size(), now.size() + 2);
  }
}

TEST_P(ChatSessionOnAFullDisk, DoesNotBeginWhatItCannotKeep) {
  for (const std::uint64_t limit : {0, 30}) {
    const Outcome full = run(arguments(), {.input = "My name is Nadia.\n", .file_size_limit = limit});
    EXPECT_EQ(full.exit_code, kWrite);
    EXPECT_EQ(full.error_lines(), 1u) << full.err;
    EXPECT_THAT(full.err, HasSubstr("no space left"));
    EXPECT_EQ(full.out, "");
  }
  EXPECT_EQ(chat("My name is Nadia.\n").exit_code, 0);
  EXPECT_EQ(kept().size(), 2u);
}

TEST_P(ChatSessionOnAFullDisk, KeepsEverythingOnceThereIsRoomAgain) {
  Piped program(arguments());
  const auto ask = [&program](const std::string& question) {
    program.send(question);
    return program.read_line().value_or("");
  };
  const auto allow = [&program](rlim_t bytes) {
    const rlimit limit{bytes, RLIM_INFINITY};
    EXPECT_EQ(::prlimit(program.process(), RLIMIT_FSIZE, &limit, nullptr), 0);
  };
  ask("My name is Nadia.");
  allow(0);
  ask("What is 2 + 2?");
  ask("What is 2 + 3?");
  EXPECT_EQ(kept().size(), 2u);
  allow(RLIM_INFINITY);
  EXPECT_EQ(ask("What is my name?"), "Your name is Nadia.");
  EXPECT_EQ(kept().size(), 8u);
  allow(0);
  ask("What is 2 + 4?");
  allow(RLIM_INFINITY);
  program.end_input();
  EXPECT_EQ(program.wait_for_exit(), 0) << program.errors();
  EXPECT_EQ(kept().size(), 10u) << "leaving tries once more";
  EXPECT_EQ(count(program.errors(), "the messages are saved again"), 2u) << program.errors();
}

INSTANTIATE_TEST_SUITE_P(Models, ChatSessionOnAFullDisk, testing::Values(kDense, kHybrid),
                         [](const auto& test) { return test.param == kDense ? "Dense" : "Hybrid"; });

TEST_F(ChatSession, IsRefusedWhereNoFolderCanBe) {
  const std::string in_the_way = scratch_.write("sessions", "a file\n");
  for (const std::string& below : {root(), root() + "/deeper/still"}) {
    std::vector<std::string> words = arguments();
    *std::find(words.begin(), words.end(), root()) = below;
    const Outcome outcome = run(words, {.input = "My name is Nadia.\n"});
    EXPECT_EQ(outcome.exit_code, kWrite) << below;
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("cannot make the folder"));
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_EQ(read_file(in_the_way), "a file\n");
  EXPECT_EQ(scratch_.names().size(), 1u);
}

TEST_F(ChatSession, IsRefusedUnderANameThatIsAFileOrSomebodyElsesFolder) {
  fs::create_directories(root() + "/folder");
  std::ofstream(root() + "/folder/diary.txt") << "mine";
  std::ofstream(root() + "/file") << "mine";
  for (const std::string name : {"file", "folder", "../up", ""}) {
    std::vector<std::string> words = arguments();
    *std::find(words.begin(), words.end(), "talk") = name;
    if (name.empty()) continue;
    const Outcome outcome = run(words, {.input = "My name is Nadia.\n"});
    EXPECT_THAT(outcome.exit_code, AnyOf(kUsage, kWrite)) << name;
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_EQ(read_file(root() + "/file"), "mine");
  EXPECT_EQ(read_file(root() + "/folder/diary.txt"), "mine");
  EXPECT_EQ(std::distance(fs::directory_iterator(root() + "/folder"), fs::directory_iterator()), 1);
}

TEST_F(ChatSession, IsOpenInOneProcessAtATime) {
  Piped first(arguments());
  first.send("My name is Nadia.");
  ASSERT_EQ(first.read_line(), "Nice to meet you, Nadia!");

  const Outcome second = chat("My name is Hugo.\n");
  EXPECT_EQ(second.exit_code, kUsage);
  EXPECT_EQ(second.out, "");
  EXPECT_EQ(second.error_lines(), 1u) << second.err;
  EXPECT_THAT(second.err, HasSubstr("the session 'talk' is open in another kazeia"));
  EXPECT_THAT(second.err, HasSubstr(fmt::format("(process {})", first.process())));
  const Outcome removed = run({"sessions", "rm", "talk", "--yes", "--sessions-dir", root()});
  EXPECT_EQ(removed.exit_code, kUsage) << removed.err;
  EXPECT_EQ(kept().size(), 2u) << "reading is always possible";

  first.send("What is my name?");
  EXPECT_EQ(first.read_line(), "Your name is Nadia.");
  first.kill();
  EXPECT_EQ(chat("What is my name?\n").out, "Your name is Nadia.\n") << "a lock does not outlive its process";
  EXPECT_EQ(kept().size(), 6u);
}

TEST_F(ChatSession, OnATerminalSaysWhatItIsAndGoesOn) {
  {
    Terminal terminal(arguments());
    ASSERT_TRUE(terminal.wait_for("> "));
    EXPECT_THAT(terminal.screen(), Not(HasSubstr("goes on"))) << "it is new";
    terminal.type("My name is Nadia.\n");
    ASSERT_TRUE(terminal.wait_for("Nice to meet you, Nadia!"));
    ASSERT_TRUE(terminal.wait_for("> "));
    terminal.type(kCtrlD);
    EXPECT_EQ(terminal.wait_for_exit(), 0);
  }
  Terminal terminal(arguments());
  ASSERT_TRUE(terminal.wait_for("Session 'talk' goes on: 2 messages; the last one from you: My name is Nadia."));
  ASSERT_TRUE(terminal.wait_for("> "));
  terminal.type("What is my name?\n");
  ASSERT_TRUE(terminal.wait_for("Your name is Nadia."));
  ASSERT_TRUE(terminal.wait_for("> "));
  terminal.type(kCtrlD);
  EXPECT_EQ(terminal.wait_for_exit(), 0);
  EXPECT_EQ(kept().size(), 4u);
}

TEST_F(ChatSession, ForgetsNothingForAMessageThatDoesNotFit) {
  std::string overlong;
  for (int i = 0; i < 300; ++i) overlong += "many words ";
  const Outcome outcome = chat("My name is Nadia.\n" + overlong + "\nWhat is my name?\n", {"--context", "256"});
  EXPECT_EQ(outcome.exit_code, kTooLarge);
  EXPECT_EQ(outcome.out, "Nice to meet you, Nadia!\nYour name is Nadia.\n");
  EXPECT_THAT(outcome.err, Not(HasSubstr("no longer sees"))) << "it does";
  EXPECT_EQ(kept().size(), 4u);
}

TEST_F(ChatSession, DoesNotTouchItsLogWhenAnAnswerCannotBeGivenAgain) {
  std::string long_message = "Repeat after me:";
  for (int i = 0; i < 60; ++i) long_message += " opal bird";
  ASSERT_EQ(chat("My name is Nadia.\n" + long_message + "\n", {"--max-tokens", "10"}).exit_code, 0);
  const std::string before = read_file(file("messages.jsonl"));
  const Outcome outcome = chat("/regen\n", {"--context", "64"});
  EXPECT_EQ(outcome.exit_code, kTooLarge) << outcome.err;
  EXPECT_EQ(read_file(file("messages.jsonl")), before) << "killed in between, it would have lost the old answer";
}

TEST_F(ChatSession, GoesOnWithWhatTheModelSeesUnderTheSameSystemMessage) {
  const std::vector<std::string> more{"--context", "256", "--json", "--system", "Answer briefly."};
  std::string input;
  for (int i = 0; i < 16; ++i) input += fmt::format("What is 7 + {}?\n", i % 10);
  const Outcome first = chat(input, more);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  ASSERT_THAT(first.err, HasSubstr("no longer sees"));
  const Outcome second = chat("Hello!\n", more);
  const Json answer = Json::parse(second.out, nullptr, false);
  EXPECT_GT(answer["reused_tokens"], 20) << "the state that was saved is of no use";
  EXPECT_GT(answer["session"]["messages_left_out"], 0);
}

}  // namespace
}  // namespace kazeia::cli_test
