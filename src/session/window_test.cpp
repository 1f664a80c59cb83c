#include "session/window.h"

#include <string>

#include <gtest/gtest.h>

namespace kazeia {
namespace {

// Exchanges of 100 "tokens" each: every message is as long as its text.
Conversation exchanges(int count, bool with_system = true) {
  Conversation conversation;
  if (with_system) conversation.set_system(std::string(20, 's'));
  for (int i = 0; i < count; ++i) {
    conversation.add_user(std::string(40, 'u'));
    if (i + 1 < count) conversation.add({.role = Role::kAssistant, .content = std::string(60, 'a')});
  }
  return conversation;
}

Result<std::size_t> letters(const Conversation& conversation) {
  std::size_t length = 0;
  for (const Message& message : conversation.messages()) length += message.content.size();
  return length;
}

TEST(Window, IsTheWholeConversationWhileItFits) {
  const auto window = fit_window(exchanges(5), 0, 600, 100, letters);
  ASSERT_TRUE(window.ok());
  EXPECT_EQ(window->left_out, 0u);
  EXPECT_EQ(window->prompt_tokens, 20u + 4 * 100 + 40);
}

TEST(Window, LeavesOutWholeExchangesDownToHalfOfTheContext) {
  const Conversation conversation = exchanges(10);
  const auto window = fit_window(conversation, 0, 800, 100, letters);
  ASSERT_TRUE(window.ok());
  EXPECT_EQ(window->left_out % 2, 0u) << "never between a question and its answer";
  EXPECT_LE(window->prompt_tokens, 400u);
  EXPECT_GT(window->prompt_tokens, 300u) << "no more than necessary";
  const Conversation seen = without_oldest(conversation, window->left_out);
  EXPECT_EQ(seen.messages().front().role, Role::kSystem);
  EXPECT_EQ(seen.messages()[1].role, Role::kUser);
  EXPECT_EQ(seen.messages().back(), conversation.messages().back());
}

TEST(Window, StaysWhereItIsForSeveralTurnsThen) {
  std::size_t left_out = 0;
  int moves = 0;
  for (int count = 1; count <= 40; ++count) {
    const auto window = fit_window(exchanges(count), left_out, 800, 100, letters);
    ASSERT_TRUE(window.ok());
    EXPECT_LE(window->prompt_tokens + 100, 800u);
    moves += window->left_out != left_out;
    left_out = window->left_out;
  }
  EXPECT_GT(moves, 5);
  EXPECT_LE(moves, 11) << "each costs a reading of what is left";
}

TEST(Window, KeepsTheLastExchangeEvenIfItDoesNotFit) {
  const auto window = fit_window(exchanges(3), 0, 50, 10, letters);
  ASSERT_TRUE(window.ok());
  EXPECT_EQ(window->left_out, 4u);
  EXPECT_EQ(window->prompt_tokens, 60u);
}

TEST(Window, OfAConversationThatBecameShorterLeavesItsLastExchange) {
  const auto window = fit_window(exchanges(2), 18, 800, 100, letters);
  ASSERT_TRUE(window.ok());
  EXPECT_EQ(window->left_out, 2u);
}

TEST(Window, WorksWithoutASystemMessage) {
  const auto window = fit_window(exchanges(10, false), 0, 800, 100, letters);
  ASSERT_TRUE(window.ok());
  EXPECT_EQ(without_oldest(exchanges(10, false), window->left_out).messages().front().role, Role::kUser);
}

TEST(Window, PassesOnAnErrorOfTheTemplate) {
  const auto window = fit_window(exchanges(2), 0, 800, 100, [](const Conversation&) -> Result<std::size_t> {
    return Error(ErrorCode::kUnsupported, "the template refuses");
  });
  ASSERT_FALSE(window.ok());
  EXPECT_EQ(window.error().message(), "the template refuses");
}

}  // namespace
}  // namespace kazeia
