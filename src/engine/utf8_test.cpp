#include "engine/utf8.h"

#include <string>

#include <gtest/gtest.h>

namespace kazeia {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

std::string times(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += kReplacement;
  return text;
}

TEST(Utf8Stream, PassesWholeCharactersThrough) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("Éteignez l'écran 🙂 日本"), "Éteignez l'écran 🙂 日本");
  EXPECT_FALSE(stream.holding());
}

TEST(Utf8Stream, HoldsACharacterBackUntilItsLastByte) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("caf\xC3"), "caf");
  EXPECT_TRUE(stream.holding());
  EXPECT_EQ(stream.push("\xA9!"), "é!");
  EXPECT_FALSE(stream.holding());
}

TEST(Utf8Stream, JoinsAnEmojiThatComesByteByByte) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xF0"), "");
  EXPECT_EQ(stream.push("\x9F"), "");
  EXPECT_EQ(stream.push("\x99"), "");
  EXPECT_EQ(stream.push("\x82"), "🙂");
}

TEST(Utf8Stream, ReplacesAByteThatCannotBeginACharacter) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\x80"
                        "b\xFF"
                        "c"),
            std::string("a") + kReplacement + "b" + kReplacement + "c");
  EXPECT_EQ(stream.push("\xC0\xAF"), times(2)) << "overlong two-byte forms have no valid lead";
}

TEST(Utf8Stream, ReplacesABrokenCharacterOnceAndKeepsWhatFollows) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xE2\x82"
                        "A"),
            std::string(kReplacement) + "A");
  EXPECT_EQ(stream.push("\xF0\x9F\x99"
                        "é"),
            std::string(kReplacement) + "é");
  EXPECT_EQ(stream.push("\xC3\xC3\xA9"), std::string(kReplacement) + "é");
}

TEST(Utf8Stream, RefusesOverlongFormsSurrogatesAndTooLargeValues) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xE0\x80\x80"), times(3));
  EXPECT_EQ(stream.push("\xED\xA0\x80"), times(3));
  EXPECT_EQ(stream.push("\xF4\x90\x80\x80"), times(4));
  EXPECT_EQ(stream.push("\xF0\x80\x80\x80"), times(4));
  EXPECT_EQ(stream.push("\xF5\x80\x80\x80"), times(4));
  EXPECT_FALSE(stream.holding());
}

TEST(Utf8Stream, AcceptsTheFirstAndLastCharacterOfEachLength) {
  for (const char* text : {"\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    Utf8Stream stream;
    EXPECT_EQ(stream.push(text), text);
  }
}

TEST(Utf8Stream, NeverHoldsMoreThanThreeBytes) {
  for (int lead = 0; lead < 256; ++lead) {
    Utf8Stream stream;
    std::string out = stream.push(std::string(1, static_cast<char>(lead)));
    for (int i = 0; i < 3; ++i) out += stream.push("\x85");
    EXPECT_FALSE(stream.holding()) << lead;
    EXPECT_FALSE(out.empty()) << lead;
  }
}

}  // namespace
}  // namespace kazeia
