#include "chat/conversation.h"

#include <unistd.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace kazeia {
namespace {

Conversation long_conversation() {
  Conversation conversation;
  conversation.set_system("Sois brève.");
  conversation.add_user("What is the weather in \"Orléans\"?\n<|im_end|>");
  Message call;
  call.role = Role::kAssistant;
  call.thinking = "I should look.";
  call.tool_calls = {{"weather", R"({"city":"Orléans","days":2})", "call-1"}};
  conversation.add(call);
  Message result;
  result.role = Role::kTool;
  result.content = "rain";
  result.tool_name = "weather";
  result.tool_call_id = "call-1";
  conversation.add(result);
  conversation.add({.role = Role::kAssistant, .content = "Rain."});
  return conversation;
}

std::string with_messages(std::string_view messages) {
  return fmt::format(R"({{"format": "kazeia-conversation", "version": 1, "messages": {}}})", messages);
}

void expect_refused(const std::string& text, std::string_view reason) {
  const Result<Conversation> result = Conversation::from_json(text);
  ASSERT_FALSE(result.ok()) << text;
  EXPECT_EQ(result.error().code(), ErrorCode::kFile);
  EXPECT_NE(result.error().message().find(reason), std::string::npos) << result.error().message();
}

TEST(Conversation, SurvivesTheWayThroughItsFileForm) {
  const Conversation conversation = long_conversation();
  const Result<Conversation> again = Conversation::from_json(conversation.to_json());
  ASSERT_TRUE(again.ok()) << again.error().sentence();
  EXPECT_EQ(*again, conversation);
}

TEST(Conversation, KeepsTheSystemMessageAtTheFront) {
  Conversation conversation;
  conversation.add_user("hello");
  conversation.set_system("one");
  conversation.set_system("two");
  ASSERT_EQ(conversation.messages().size(), 2U);
  EXPECT_EQ(conversation.messages().front().content, "two");
  conversation.set_system("");
  ASSERT_EQ(conversation.messages().size(), 1U);
  EXPECT_EQ(conversation.messages().front().role, Role::kUser);
}

TEST(Conversation, DropsTheLastReplyWithItsToolMessages) {
  Conversation conversation = long_conversation();
  EXPECT_TRUE(conversation.drop_last_reply());
  ASSERT_EQ(conversation.messages().size(), 2U);
  EXPECT_EQ(conversation.messages().back().role, Role::kUser);
  EXPECT_FALSE(conversation.drop_last_reply());
  EXPECT_TRUE(conversation.drop_last_exchange());
  EXPECT_FALSE(conversation.drop_last_exchange());
  EXPECT_EQ(conversation.messages().size(), 1U);
}

TEST(Conversation, ClearsEverythingButTheSystemMessage) {
  Conversation conversation = long_conversation();
  conversation.clear();
  ASSERT_EQ(conversation.messages().size(), 1U);
  EXPECT_EQ(conversation.messages().front().role, Role::kSystem);
}

TEST(Conversation, WritesBytesThatAreNotUtf8AsReplacementCharacters) {
  Conversation conversation;
  conversation.add_user("a\xFFz");
  const Result<Conversation> again = Conversation::from_json(conversation.to_json());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->messages().front().content, "a\uFFFDz");
}

TEST(Conversation, GoesInPiecesOfOneLineEach) {
  const std::vector<Message> all = long_conversation().messages();
  const std::span<const Message> messages(all);
  const std::string begin = messages_to_json(messages.first(2));
  const std::string rest = messages_to_json(messages.subspan(2));
  EXPECT_EQ((begin + rest).find('\n'), std::string::npos);
  const auto first = messages_from_json(begin, 0);
  const auto second = messages_from_json(rest, 2);
  ASSERT_TRUE(first.ok() && second.ok());
  std::vector<Message> again = *first;
  again.insert(again.end(), second->begin(), second->end());
  EXPECT_EQ(again, all);

  EXPECT_FALSE(messages_from_json(begin, 1).ok()) << "a system message in the middle";
  EXPECT_FALSE(messages_from_json("{}", 0).ok());
  EXPECT_FALSE(messages_from_json(begin.substr(1), 0).ok());
}

TEST(Conversation, RefusesWhatIsNotAConversation) {
  expect_refused("", "not valid JSON");
  expect_refused("{\"format\": ", "not valid JSON");
  expect_refused("[]", "not a JSON object");
  expect_refused("{}", "no \"format\"");
  expect_refused(R"({"format": "other", "version": 1, "messages": []})", "\"other\"");
  expect_refused(R"({"format": "kazeia-conversation", "version": 2, "messages": []})", "version");
  expect_refused(R"({"format": "kazeia-conversation", "version": 1})", "messages");
  expect_refused(R"({"format": "kazeia-conversation", "version": 1, "messages": [], "x": 1})", "unknown field \"x\"");
}

TEST(Conversation, RefusesABadMessageAndSaysWhich) {
  const std::string user = R"({"role": "user", "content": "a"})";
  expect_refused(with_messages("[1]"), "message 1 is not an object");
  expect_refused(with_messages(fmt::format("[{}, {{\"content\": \"b\"}}]", user)), "message 2 has no \"role\"");
  expect_refused(with_messages(R"([{"role": "boss", "content": "b"}])"), "unknown role \"boss\"");
  expect_refused(with_messages(R"([{"role": "user"}])"), "no \"content\"");
  expect_refused(with_messages(R"([{"role": "user", "content": 7}])"), "not a string");
  expect_refused(with_messages(R"([{"role": "user", "content": "a", "thinking": "b"}])"), "unknown field \"thinking\"");
  expect_refused(with_messages(fmt::format("[{}, {{\"role\": \"system\", \"content\": \"b\"}}]", user)),
                 "must come first");
  expect_refused(with_messages(R"([{"role": "assistant", "content": "", "tool_calls": [{"name": "f"}]}])"),
                 "\"arguments\" is not an object");
}

TEST(Conversation, RefusesNestingThatWouldExhaustTheStack) {
  std::string deep = R"([{"role": "assistant", "content": "", "tool_calls": [{"name": "f", "arguments": {"a": )";
  deep += std::string(200000, '[') + std::string(200000, ']') + "}}]}]";
  expect_refused(with_messages(deep), "not valid JSON");
}

TEST(Conversation, ReadsWhateverNestingItWrites) {
  for (std::size_t depth = 55; depth < 80; ++depth) {
    Message call{.role = Role::kAssistant};
    call.tool_calls = {{"f", "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}", ""}};
    Conversation conversation;
    conversation.add_user("call it");
    conversation.add(call);
    const auto again = Conversation::from_json(conversation.to_json());
    ASSERT_TRUE(again.ok()) << depth << ": " << again.error().sentence();
    EXPECT_TRUE(again->messages()[1] == call || again->messages()[1].tool_calls[0].arguments == "{}") << depth;
  }
}

TEST(ConversationFile, IsReplacedCompletelyOrNotAtAll) {
  const std::string folder = fmt::format("{}kazeia-conversation-{}", testing::TempDir(), ::getpid());
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/talk.json";
  ASSERT_TRUE(save_conversation(long_conversation(), path).ok());
  const Result<Conversation> again = load_conversation(path);
  ASSERT_TRUE(again.ok()) << again.error().sentence();
  EXPECT_EQ(*again, long_conversation());

  const Status missing = save_conversation(long_conversation(), folder + "/no/such/folder.json");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), ErrorCode::kWrite);
  const Result<Conversation> absent = load_conversation(folder + "/absent.json");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code(), ErrorCode::kFile);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace kazeia
