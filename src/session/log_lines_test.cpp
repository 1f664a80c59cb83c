// A message log as text: whatever happens to it, what is read was once stored, and no whole line is lost.
#include "session/log_lines.h"

#include <algorithm>
#include <map>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kazeia {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::string summed(const std::string& body) {
  return fmt::format("{},\"sum\":\"{:016x}\"}}\n", body, XXH3_64bits(body.data(), body.size()));
}

Message user(std::string text) {
  return {.role = Role::kUser, .content = std::move(text)};
}
Message assistant(std::string text) {
  return {.role = Role::kAssistant, .content = std::move(text)};
}

struct Step {
  std::size_t keep;
  std::vector<Message> added;
  std::size_t left_out;
};

// A conversation with all that can happen in one: a tool, an answer that is asked for again, a forgotten beginning.
std::vector<Step> story() {
  Message call{.role = Role::kAssistant, .thinking = "I should\nlook."};
  call.tool_calls = {{"weather", R"({"keep":0,"add":[],"city":"Orléans"})", "call-1"}};
  const Message result{.role = Role::kTool, .content = "rain", .tool_name = "weather", .tool_call_id = "call-1"};
  return {{0, {{.role = Role::kSystem, .content = "Be brief."}, user("Hi \"there\"\n")}, 0},
          {2, {assistant("Hello!")}, 0},
          {3, {user("Weather?"), call, result, assistant("Rain.")}, 0},
          {6, {assistant("It rains.")}, 0},
          {7, {user("And\ttomorrow?"), assistant("Sun.")}, 2},
          {1, {user("Begin anew.")}, 0}};
}

std::string line_of(const Step& step) {
  return change_line(step.keep, step.added, step.left_out, 1750000000);
}

std::string text_of(const std::vector<Step>& steps) {
  std::string text = whole_log({}, 0, 0);
  for (const Step& step : steps) text += line_of(step);
  return text;
}

// What the format's description says the steps mean, said as simply as possible.
std::vector<Message> meaning_of(const std::vector<Step>& steps) {
  std::map<std::size_t, Message> places;
  for (const Step& step : steps) {
    places.erase(places.lower_bound(step.keep), places.end());
    for (std::size_t i = 0; i < step.added.size(); ++i) places[step.keep + i] = step.added[i];
  }
  std::vector<Message> messages;
  messages.reserve(places.size());
  for (const auto& [place, message] : places) messages.push_back(message);
  return messages;
}

// Without one of them, or, for steps.size(), with all.
std::vector<Message> meaning_without(std::vector<Step> steps, std::size_t lost) {
  if (lost < steps.size()) steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(lost));
  return meaning_of(steps);
}

bool was_stored(const Message& message) {
  for (const Step& step : story()) {
    if (std::find(step.added.begin(), step.added.end(), message) != step.added.end()) return true;
  }
  return false;
}

TEST(LogLines, AreAsDocumented) {
  const std::string text =
      "{\"format\":\"kazeia-session\",\"version\":1,\"sum\":\"e576f4f529524a88\"}\n"
      "{\"keep\":0,\"add\":[{\"role\":\"user\",\"content\":\"My name is Nadia.\"}],\"left_out\":0,\"at\":1750000000,"
      "\"sum\":\"01a1121b32c99e14\"}\n"
      "{\"keep\":1,\"add\":[{\"role\":\"assistant\",\"content\":\"Nice to meet you, Nadia!\"}],\"left_out\":0,"
      "\"at\":1750000002,\"sum\":\"2f30a13702a5c68c\"}\n";
  const auto log = read_log(text);
  ASSERT_TRUE(log.ok()) << log.error().sentence();
  EXPECT_EQ(log->state, LogState::kWhole);
  EXPECT_THAT(log->messages, ElementsAre(user("My name is Nadia."), assistant("Nice to meet you, Nadia!")));
  EXPECT_EQ(log->changed, 1750000002);
  EXPECT_EQ(log->whole_bytes, text.size());
  const std::vector<Message>& messages = log->messages;
  EXPECT_EQ(whole_log({}, 0, 0) + change_line(0, std::span(messages).first(1), 0, 1750000000) +
                change_line(1, std::span(messages).subspan(1), 0, 1750000002),
            text);
}

TEST(LogLines, MeanTheConversationThatWasStored) {
  const std::vector<Step> steps = story();
  for (std::size_t count = 0; count <= steps.size(); ++count) {
    const std::vector<Step> begin(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(count));
    const auto log = read_log(text_of(begin));
    ASSERT_TRUE(log.ok()) << log.error().sentence();
    EXPECT_EQ(log->messages, meaning_of(begin)) << count;
    EXPECT_EQ(log->left_out, count == 0 ? 0 : begin.back().left_out);
    EXPECT_THAT(log->remarks, IsEmpty());
    // And again from the log in its shortest form.
    const auto again = read_log(whole_log(log->messages, log->left_out, log->changed));
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->messages, log->messages);
    EXPECT_EQ(again->left_out, log->left_out);
    EXPECT_EQ(again->changed, log->changed);
  }
}

TEST(LogLines, TornAtAnyByteAreReadUpToTheLastWholeOne) {
  const std::vector<Step> steps = story();
  const std::string text = text_of(steps);
  for (std::size_t length = 0; length <= text.size(); ++length) {
    const std::string torn = text.substr(0, length);
    const auto log = read_log(torn);
    ASSERT_TRUE(log.ok()) << length << ": " << log.error().sentence();
    // A line is there once all but its line break is.
    const auto breaks = static_cast<std::size_t>(std::count(torn.begin(), torn.end(), '\n'));
    const bool all_but_the_break = length < text.size() && text[length] == '\n';
    const std::size_t whole_lines = breaks + (all_but_the_break ? 1 : 0);
    const std::size_t whole = whole_lines == 0 ? 0 : whole_lines - 1;
    const std::vector<Step> begin(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(whole));
    EXPECT_EQ(log->messages, meaning_of(begin)) << length;
    if (whole_lines == 0) {
      EXPECT_EQ(log->state, LogState::kNew) << length;
    } else if (all_but_the_break) {
      EXPECT_EQ(log->state, LogState::kLineBreakDue) << length;
    } else if (torn.back() == '\n') {
      EXPECT_EQ(log->state, LogState::kWhole) << length;
    } else {
      EXPECT_EQ(log->state, LogState::kTornTail) << length;
      EXPECT_EQ(log->whole_bytes, torn.rfind('\n') + 1) << length;
      EXPECT_THAT(log->remarks, ElementsAre(HasSubstr("is not complete"))) << length;
    }
  }
}

TEST(LogLines, LoseAtMostTheOneInWhichABitIsWrong) {
  std::vector<Step> steps = story();
  steps.pop_back();  // after it, hardly anything before would matter
  const std::string text = text_of(steps);
  std::size_t line = 0;  // 0 is the header
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      const auto log = read_log(damaged);
      ASSERT_TRUE(log.ok()) << at << ": " << log.error().sentence();
      // A line break that was something else costs nothing, nor does the header.
      const std::size_t lost = line == 0 || text[at] == '\n' ? steps.size() : line - 1;
      EXPECT_EQ(log->messages, meaning_without(steps, lost)) << "byte " << at << ", bit " << bit;
      EXPECT_THAT(log->remarks, Not(IsEmpty())) << "byte " << at << ", bit " << bit;
    }
    if (text[at] == '\n') ++line;
  }
}

TEST(LogLines, ThatBuildOnALostOneStillRemoveWhatTheyRemovedThen) {
  const std::vector<Step> steps{{0, {user("1"), assistant("2")}, 0},
                                {2, {user("3"), assistant("4")}, 0},  // this one will be lost
                                {4, {user("5"), assistant("6")}, 0},
                                {5, {assistant("6, better")}, 3}};
  std::string text = text_of(steps);
  text[text.find("\"3\"") + 1] = '9';
  const auto log = read_log(text);
  ASSERT_TRUE(log.ok()) << log.error().sentence();
  EXPECT_THAT(log->messages, ElementsAre(user("1"), assistant("2"), user("5"), assistant("6, better")));
  EXPECT_EQ(log->left_out, 2U) << "of the three that were left out of prompts one is lost";
  EXPECT_EQ(log->state, LogState::kDamaged);
  EXPECT_THAT(log->remarks, ElementsAre("line 3 is damaged and was left out"));
}

TEST(LogLines, AreCountedWhenManyAreDamaged) {
  std::string text = whole_log({}, 0, 0);
  for (int i = 0; i < 100; ++i) text += "zzz\n";
  text += line_of({0, {user("still here")}, 0});
  const auto log = read_log(text);
  ASSERT_TRUE(log.ok());
  EXPECT_THAT(log->messages, ElementsAre(user("still here")));
  EXPECT_THAT(log->remarks, ElementsAre("lines 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and more are damaged and were left out"));
}

TEST(LogLines, AreReadWithoutTheirHeaderAndWithoutLineBreaks) {
  const std::vector<Step> steps = story();
  const std::string text = text_of(steps);
  const auto headless = read_log(text.substr(text.find('\n') + 1));
  ASSERT_TRUE(headless.ok());
  EXPECT_EQ(headless->messages, meaning_of(steps));
  EXPECT_EQ(headless->state, LogState::kDamaged);

  std::string joined = text;
  std::replace(joined.begin(), joined.end(), '\n', '\0');
  const auto log = read_log(joined);
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(log->messages, meaning_of(steps));
  EXPECT_THAT(log->remarks, ElementsAre(HasSubstr("lost a line break")));
}

TEST(LogLines, AreRefusedIfTheyAreNoneOrOfAnotherVersion) {
  for (const std::string& foreign :
       {std::string("hello\n"), std::string("{}"), std::string("\n"), text_of({}).substr(1), std::string(100, 'z')}) {
    const auto log = read_log(foreign);
    ASSERT_FALSE(log.ok()) << foreign;
    EXPECT_EQ(log.error().code(), ErrorCode::kFile);
  }
  const auto newer = read_log(summed(R"({"format":"kazeia-session","version":2)") + "{\"something\":\"new\"}\n");
  ASSERT_FALSE(newer.ok());
  EXPECT_EQ(newer.error().code(), ErrorCode::kFile);
  EXPECT_THAT(newer.error().message(), HasSubstr("version 2"));
  // What a power cut leaves of a file that was just created.
  for (const std::string& nothing : {std::string(), std::string(64, '\0'), text_of({}).substr(0, 20)}) {
    const auto log = read_log(nothing);
    ASSERT_TRUE(log.ok()) << nothing;
    EXPECT_EQ(log->state, LogState::kNew);
  }
}

TEST(LogLines, WithTheRightSumAndTheWrongContentAreLeftOut) {
  const std::string rest = R"(,"left_out":0,"at":1750000000)";
  for (const std::string& body :
       {R"({"keep":1,"add":[{"role":"system","content":"late"}])" + rest, R"({"keep":0,"add":{})" + rest,
        R"({"keep":0,"add":[{"role":"boss","content":"x"}])" + rest, R"({"keep":-1,"add":[])" + rest,
        R"({"keep":1234567890123456,"add":[])" + rest, R"({"keep":0,"add":[])" + rest + " ",
        R"({"keep":0,"add":[])" + rest + R"(,"more":1)", R"({"keep":0,"add":)" + std::string(100000, '[') + rest,
        std::string(R"({"keep":0,"add":[],"at":1,"left_out":0)"), std::string()}) {
    const auto log = read_log(whole_log({}, 0, 0) + line_of({0, {user("kept")}, 0}) + summed(body) +
                              line_of({1, {assistant("also kept")}, 0}));
    ASSERT_TRUE(log.ok());
    EXPECT_THAT(log->messages, ElementsAre(user("kept"), assistant("also kept"))) << body.substr(0, 100);
    EXPECT_THAT(log->remarks, ElementsAre("line 3 is damaged and was left out"));
    EXPECT_FALSE(check_change_line(summed(body)).ok());
  }
  EXPECT_TRUE(check_change_line(line_of(story()[2])).ok());
}

TEST(LogLines, StayFarBelowTheirLimitWhenALogIsWrittenAnew) {
  std::vector<Message> messages;
  for (const char c : {'a', 'b', 'c', 'd', 'e'}) messages.emplace_back(user(std::string(600'000, c)));
  const std::string text = whole_log(messages, 1, 1750000000);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6);
  const auto log = read_log(text);
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(log->messages, messages);
  EXPECT_EQ(log->left_out, 1U);
}

TEST(LogLines, NeverInventAMessageWhateverHappensToThem) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  const auto below = [&random](std::size_t limit) { return limit == 0 ? 0 : random() % limit; };
  const std::string text = text_of(story());
  for (int round = 0; round < 3000; ++round) {
    std::string mutated = text;
    for (std::size_t left = 1 + below(4); left > 0; --left) {
      const std::size_t at = below(mutated.size());
      const std::size_t length = below(std::min<std::size_t>(mutated.size() - at, 300));
      switch (below(6)) {
        case 0:
          if (!mutated.empty()) mutated[at] = static_cast<char>(random());
          break;
        case 1:
          mutated.erase(at, length);
          break;
        case 2:
          mutated.insert(at, mutated.substr(below(mutated.size()), length));
          break;
        case 3:
          std::fill_n(mutated.begin() + static_cast<std::ptrdiff_t>(at), length, '\0');
          break;
        case 4:
          mutated.insert(at, 1, '\n');
          break;
        default:
          mutated.resize(mutated.size() - below(100) % (mutated.size() + 1));
      }
    }
    const auto log = read_log(mutated);
    if (!log.ok()) {
      EXPECT_EQ(log.error().code(), ErrorCode::kFile);
      continue;
    }
    for (const Message& message : log->messages) EXPECT_TRUE(was_stored(message)) << message.content;
    EXPECT_LE(log->whole_bytes, mutated.size());
    EXPECT_LE(log->left_out, log->messages.size());
    const auto again = read_log(whole_log(log->messages, log->left_out, log->changed));
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->messages, log->messages);
    EXPECT_THAT(again->remarks, SizeIs(0));
  }
}

}  // namespace
}  // namespace kazeia
