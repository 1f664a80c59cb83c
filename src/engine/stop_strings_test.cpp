#include "engine/stop_strings.h"

#include <string>

#include <gtest/gtest.h>

namespace kazeia {
namespace {

TEST(StopStrings, LetsTextThroughAtOnceWhenThereAreNone) {
  StopStrings stops({});
  EXPECT_EQ(stops.push("hello"), "hello");
  EXPECT_FALSE(stops.stopped());
}

TEST(StopStrings, HoldsBackWhatMayBecomeAStopString) {
  StopStrings stops({"</s>"});
  EXPECT_EQ(stops.push("end<"), "end");
  EXPECT_EQ(stops.push("/"), "");
  EXPECT_EQ(stops.push("b>"), "</b>");
}

TEST(StopStrings, FindsOneThatSpansSeveralPieces) {
  StopStrings stops({"STOP"});
  EXPECT_EQ(stops.push("one S"), "one ");
  EXPECT_EQ(stops.push("TO"), "");
  EXPECT_EQ(stops.push("P two"), "");
  EXPECT_TRUE(stops.stopped());
  EXPECT_EQ(stops.push("more"), "");
  EXPECT_EQ(stops.flush(), "");
}

TEST(StopStrings, ReleasesAFalseBeginningAndKeepsTheTrueOne) {
  StopStrings stops({"aab"});
  EXPECT_EQ(stops.push("aa"), "");
  EXPECT_EQ(stops.push("a"), "a");
  EXPECT_EQ(stops.push("b"), "");
  EXPECT_TRUE(stops.stopped());
}

TEST(StopStrings, TheEarliestOfSeveralWins) {
  StopStrings stops({"world", "lo w"});
  EXPECT_EQ(stops.push("hello world"), "hel");
  EXPECT_TRUE(stops.stopped());
}

TEST(StopStrings, FlushGivesWhatWasHeldBack) {
  StopStrings stops({"\n\nUser:"});
  EXPECT_EQ(stops.push("done\n\nUs"), "done");
  EXPECT_EQ(stops.flush(), "\n\nUs");
  EXPECT_EQ(stops.flush(), "");
}

TEST(StopStrings, MatchesCharactersOfSeveralBytes) {
  StopStrings stops({"été"});
  EXPECT_EQ(stops.push("un é"), "un ");
  EXPECT_EQ(stops.push("té."), "");
  EXPECT_TRUE(stops.stopped());
}

TEST(StopStrings, IgnoresEmptyOnes) {
  StopStrings stops({""});
  EXPECT_EQ(stops.push("text"), "text");
  EXPECT_FALSE(stops.stopped());
}

}  // namespace
}  // namespace kazeia
