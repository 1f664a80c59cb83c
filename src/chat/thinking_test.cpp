#include "chat/thinking.h"

#include <gtest/gtest.h>

namespace kazeia {
namespace {

ReplyMarkers think_markers(bool open) {
  return {.thinking_start = "<think>",
          .thinking_ends = {"\n</think>", "</think>"},
          .thinking_open = open,
          .tool_starts = {}};
}

struct Parts {
  std::string thinking, answer, tools;
  bool operator==(const Parts&) const = default;
};

// Splits `text` delivered in pieces of `piece` bytes; the sink and the accessors must agree.
Parts split(const ReplyMarkers& markers, std::string_view text, std::size_t piece) {
  Parts streamed;
  ReplySplitter splitter(markers, [&](ReplyPart part, std::string_view delivered) {
    EXPECT_FALSE(delivered.empty());
    switch (part) {
      case ReplyPart::kThinking:
        streamed.thinking += delivered;
        break;
      case ReplyPart::kAnswer:
        streamed.answer += delivered;
        break;
      case ReplyPart::kToolCall:
        streamed.tools += delivered;
        break;
    }
  });
  for (std::size_t at = 0; at < text.size(); at += piece) splitter.push(text.substr(at, piece));
  splitter.finish();
  EXPECT_EQ(streamed, (Parts{splitter.thinking(), splitter.answer(), splitter.tool_text()}));
  return streamed;
}

void expect_parts(const ReplyMarkers& markers, std::string_view text, const Parts& expected) {
  for (std::size_t piece = 1; piece <= text.size() + 1; ++piece) {
    const Parts parts = split(markers, text, piece);
    EXPECT_EQ(parts.thinking, expected.thinking) << "pieces of " << piece;
    EXPECT_EQ(parts.answer, expected.answer) << "pieces of " << piece;
    EXPECT_EQ(parts.tools, expected.tools) << "pieces of " << piece;
  }
}

TEST(ReplySplitter, SeparatesAThoughtThatTheModelOpens) {
  expect_parts(think_markers(false), "<think>\nTwo and two.\n</think>\n\nFour.", {"Two and two.", "Four.", ""});
}

TEST(ReplySplitter, SeparatesAThoughtThatThePromptOpened) {
  expect_parts(think_markers(true), "Two and two.\n\nFour?\n</think>\n\nFour.", {"Two and two.\n\nFour?", "Four.", ""});
}

TEST(ReplySplitter, PassesAnAnswerWithoutAThoughtThroughByteForByte) {
  expect_parts(think_markers(false), "  a < b\n</think> <thinking>\n", {"", "  a < b\n</think> <thinking>\n", ""});
}

TEST(ReplySplitter, DropsAnEmptyThought) {
  expect_parts(think_markers(true), "\n</think>\n\nHello", {"", "Hello", ""});
  expect_parts(think_markers(false), "<think>\n\n</think>\n\nHello", {"", "Hello", ""});
}

TEST(ReplySplitter, KeepsAThoughtThatIsNeverClosed) {
  expect_parts(think_markers(true), "going on </thi", {"going on </thi", "", ""});
}

TEST(ReplySplitter, DoesNotOpenAThoughtInTheMiddleOfAnAnswer) {
  expect_parts(think_markers(false), "The tag <think> opens.", {"", "The tag <think> opens.", ""});
}

TEST(ReplySplitter, TreatsAModelThatDoesNotThinkAsPlainText) {
  expect_parts({}, "<think>x</think>y", {"", "<think>x</think>y", ""});
}

TEST(ReplySplitter, HandsAToolCallOverWithItsMarkers) {
  ReplyMarkers markers = think_markers(true);
  markers.tool_starts = {"<tool_call>"};
  expect_parts(markers, "hm</think>\nI look.\n<tool_call>\n{}\n</tool_call>",
               {"hm", "I look.", "<tool_call>\n{}\n</tool_call>"});
  expect_parts(markers, "</think>a <tool> b\n", {"", "a <tool> b\n", ""});
}

TEST(ReplySplitter, LetsAToolCallEndTheThought) {
  ReplyMarkers markers = think_markers(true);
  markers.thinking_ends.push_back("<tool_call>");
  markers.tool_starts = {"<tool_call>"};
  expect_parts(markers, "hm\n<tool_call>{}</tool_call>", {"hm", "", "<tool_call>{}</tool_call>"});
}

TEST(ReplySplitter, DeliversTextAsSoonAsItCannotBeAMarker) {
  std::string seen;
  ReplySplitter splitter(think_markers(true), [&](ReplyPart, std::string_view text) { seen += text; });
  splitter.push("one two");
  EXPECT_EQ(seen, "one two");
  splitter.push(" </th");
  EXPECT_EQ(seen, "one two");
  splitter.push("ree");
  EXPECT_EQ(seen, "one two </three");
}

}  // namespace
}  // namespace kazeia
