#include "session/session.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include "chat/mini_model.h"
#include "session/directory.h"

namespace kazeia {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The template's own tokens around a message: what a turn reads besides the text that was typed.
constexpr std::size_t kAround = 12;

class EachModel : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    model_ = mini_model(GetParam());
    ASSERT_NE(model_, nullptr);
    folder_ = testing::TempDir() + fmt::format("kazeia-session-{}", ::getpid());
    std::filesystem::create_directories(folder_);
    options_.engine_version = "test";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void keep_on_disk() {
    options_.folder = folder_;
    options_.memo_folder = folder_ + "/memo";
  }

  std::unique_ptr<Session> open(std::uint32_t context = 1024) {
    auto session = Session::open(model_, mini_timeline(model_, context), options_);
    if (!session.ok()) {
      ADD_FAILURE() << session.error().sentence();
      return nullptr;
    }
    return std::move(session).value();
  }

  TurnOptions turn(bool thinking = true) const {
    TurnOptions options;
    options.thinking = thinking;
    options.sampling.temperature = 0;
    options.max_tokens = 60;
    return options;
  }

  TurnResult say(Session& session, const std::string& text, bool thinking = true) {
    auto answer = session.say(text, turn(thinking));
    EXPECT_TRUE(answer.ok()) << (answer.ok() ? "" : answer.error().sentence());
    return answer.ok() ? std::move(answer).value() : TurnResult{};
  }

  void idle(Session& session, bool thinking = true) {
    const CancelFlag never;
    const Status done = session.finish(turn(thinking), never);
    EXPECT_TRUE(done.ok()) << done.error().sentence();
  }

  std::size_t length(const std::string& text) const { return model_->tokenize(text, false, false)->size(); }
  static std::size_t read(const TurnResult& turn) { return turn.stats.prompt_tokens - turn.stats.reused_tokens; }

  std::vector<std::string> state_files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(SessionDirectory::state_folder(folder_)))
      files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());
    return files;
  }

  std::shared_ptr<const Model> model_;
  std::string folder_;
  SessionOptions options_;
};

TEST_P(EachModel, ReadsOnlyWhatIsNewInEveryTurnOfAThinkingChat) {
  const auto session = open();
  session->replace([] {
    Conversation conversation;
    conversation.set_system("Answer in English.");
    return conversation;
  }());
  for (const char* text : {"My name is Nadia.", "What is the opposite of hot?", "What is the capital of France?",
                           "Thank you very much.", "What is my name?"}) {
    idle(*session);
    const TurnResult answer = say(*session, text);
    EXPECT_LE(read(answer), length(text) + kAround) << text;
  }
  EXPECT_THAT(session->conversation().messages().back().content, HasSubstr("Nadia"));
}

// Without idle time the answer, without its thought, is read together with the next message.
TEST_P(EachModel, ReadsTheLastAnswerTooIfThereWasNoTimeToReadAhead) {
  const auto session = open();
  say(*session, "My name is Nadia.");
  const TurnResult second = say(*session, "What is the opposite of hot?");
  const std::string before = session->conversation().messages()[1].content;
  EXPECT_LE(read(second), length("What is the opposite of hot?") + length(before) + 2 * kAround);
}

TEST_P(EachModel, AnswersAgainForTheOpeningOfTheAnswer) {
  const auto session = open();
  say(*session, "My name is Nadia.");
  say(*session, "What is the opposite of hot?");
  idle(*session);
  const auto again = session->answer_again(turn());
  ASSERT_TRUE(again.ok());
  EXPECT_LE(read(*again), kAround);
  EXPECT_EQ(session->conversation().messages().size(), 4u);
}

TEST_P(EachModel, ReadsFromTheChangedMessageOnAfterAnEdit) {
  const auto session = open();
  for (const char* text : {"My name is Nadia.", "What is the opposite of hot?", "What is the capital of France?"}) {
    say(*session, text);
    idle(*session);
  }
  Conversation edited = session->conversation();
  edited.drop_last_exchange();
  session->replace(edited);
  const TurnResult answer = say(*session, "What is my name?");
  EXPECT_LE(read(answer), length("What is my name?") + kAround);
  EXPECT_THAT(answer.answer, HasSubstr("Nadia"));
}

TEST_P(EachModel, GoesBackToAConversationThatWasLeft) {
  const auto session = open();
  std::vector<Conversation> conversations(3);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < conversations.size(); ++i) {
      session->replace(conversations[i]);
      const std::string text = fmt::format(
          "Conversation {} has come to message {}, which goes on for a while so that it is worth keeping "
          "when another one takes its place in the cache, and then goes on for yet another while.",
          i, round);
      const TurnResult answer = say(*session, text);
      if (round > 0) {
        EXPECT_LE(read(answer), length(text) + 2 * kAround) << "round " << round << ", conversation " << i;
      }
      idle(*session);
      conversations[i] = session->conversation();
    }
  }
  EXPECT_GT(session->counts().cache.rows_put_back, 0u);
}

TEST_P(EachModel, GoesOnAfterARestartAsIfThereHadBeenNone) {
  keep_on_disk();
  {
    const auto session = open();
    say(*session, "My name is Nadia.");
    say(*session, "What is the opposite of hot?");
    idle(*session);
  }
  options_.idle_work = false;
  const auto session = open();
  EXPECT_THAT(session->take_remarks(), IsEmpty());
  ASSERT_EQ(session->conversation().messages().size(), 4u);
  const TurnResult answer = say(*session, "What is my name?");
  EXPECT_LE(read(answer), length("What is my name?") + kAround);
  EXPECT_THAT(answer.answer, HasSubstr("Nadia"));
  EXPECT_GT(session->counts().cache.rows_from_disk, 0u);
}

TEST_P(EachModel, SaysThatAStateFileIsDamagedReadsAgainAndAnswersRight) {
  keep_on_disk();
  {
    const auto session = open();
    say(*session, "My name is Nadia.");
    idle(*session);
  }
  const std::vector<std::string> files = state_files();
  ASSERT_FALSE(files.empty());
  for (const std::string& path : files) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path) / 2));
    file.put('!');
    file.put('?');
  }
  const auto session = open();
  const TurnResult answer = say(*session, "What is my name?");
  EXPECT_THAT(answer.answer, HasSubstr("Nadia"));
  EXPECT_EQ(answer.stats.reused_tokens, 0u);
  const auto remarks = session->take_remarks();
  ASSERT_FALSE(remarks.empty());
  EXPECT_THAT(remarks.front(), HasSubstr("damaged"));
}

TEST_P(EachModel, DoesNotUseTheStateOfAnotherModel) {
  keep_on_disk();
  {
    const auto session = open();
    say(*session, "My name is Nadia.");
    idle(*session);
  }
  model_ = mini_model(GetParam() == kDense ? kHybrid : kDense);
  const auto session = open();
  EXPECT_THAT(session->take_remarks(), ElementsAre(HasSubstr("another model")));
  const TurnResult answer = say(*session, "What is my name?");
  EXPECT_EQ(answer.stats.reused_tokens, 0u);
  EXPECT_THAT(answer.answer, HasSubstr("Nadia")) << "the messages are not the model's";
}

TEST_P(EachModel, RemovesWhatAProcessThatDiedLeftUnfinished) {
  keep_on_disk();
  std::filesystem::create_directories(SessionDirectory::state_folder(folder_));
  const std::string leftover = SessionDirectory::state_folder(folder_) + "/attention-0-9-0.state.partial-abc123";
  std::ofstream(leftover) << "half a file";
  const auto session = open();
  EXPECT_FALSE(std::filesystem::exists(leftover));
  EXPECT_THAT(session->take_remarks(), IsEmpty());
}

TEST_P(EachModel, StopsItsBackgroundWorkForAMessageAndUsesWhatWasDone) {
  keep_on_disk();
  const auto session = open();
  std::string longest;
  for (int i = 0; i < 60; ++i) longest += fmt::format("Number {} is one of many. ", i);
  Conversation conversation;
  conversation.set_system(longest);
  session->replace(conversation);
  session->begin_idle(turn());
  session->begin_idle(turn());  // once is enough
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  session->end_idle();
  session->end_idle();
  const TurnResult answer = say(*session, "What is the capital of France?");
  const SessionCounts counts = session->counts();
  EXPECT_EQ(counts.cache.read_tokens + counts.cache.read_ahead_tokens, answer.stats.prompt_tokens)
      << "nothing is read twice";
}

TEST_P(EachModel, HoldsNoMoreThanItsBudget) {
  options_.cache.memory_budget_bytes = 200'000;
  options_.cache.spacing_tokens = 32;
  const auto session = open();
  for (int i = 0; i < 6; ++i) {
    say(*session, fmt::format("My number is {}.", 11 + i));
    idle(*session);
  }
  const StateStoreCounts store = session->counts().cache.store;
  EXPECT_LE(store.most_bytes_in_memory, 200'000u);
  EXPECT_LE(store.bytes_in_memory, store.most_bytes_in_memory);
}

TEST_P(EachModel, LeavesOutTheOldestTurnsWhenTheContextIsFullAndSaysSo) {
  keep_on_disk();
  int announced = 0;
  {
    const auto session = open(256);
    Conversation conversation;
    conversation.set_system("Answer in English.");
    session->replace(conversation);
    for (int i = 0; i < 20; ++i) {
      const TurnResult answer = say(*session, fmt::format("My number is {}.", 11 + i), false);
      EXPECT_NE(answer.stats.stop_reason, StopReason::kContextFull);
      for (const std::string& remark : session->take_remarks()) announced += remark.find("is full") != remark.npos;
      idle(*session, false);
    }
    EXPECT_EQ(session->conversation().messages().size(), 41u) << "nothing is forgotten";
    EXPECT_GT(announced, 0);
    EXPECT_LT(announced, 12) << "each costs a reading";
    EXPECT_EQ(say(*session, "What is my number?", false).answer.find("30") == std::string::npos, false);
    idle(*session, false);
  }
  const auto session = open(256);
  const std::size_t left_out = session->counts().messages_left_out;
  EXPECT_GT(left_out, 0u) << "a restart knows it";
  const TurnResult answer = say(*session, "What is my number?", false);
  EXPECT_GT(answer.stats.reused_tokens, answer.stats.prompt_tokens / 2);
}

TEST_P(EachModel, TakesAMessageBackWhoseAnswerFailed) {
  keep_on_disk();
  const auto session = open(64);
  const auto answer = session->say(std::string(2000, 'x'), turn());
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code(), ErrorCode::kTooLarge);
  EXPECT_TRUE(session->took_back());
  EXPECT_TRUE(session->conversation().empty());
  say(*session, "What is 2?", false);
}

// Would fail if what was left out for a message that did not fit stayed left out without it.
TEST_P(EachModel, RemembersAllThatItDidAfterAMessageThatWasTooLong) {
  keep_on_disk();
  const auto session = open(512);
  say(*session, "My name is Nadia.");
  say(*session, "What is the opposite of hot?");
  const auto answer = session->say(std::string(4000, 'x'), turn());
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(session->counts().messages_left_out, 0u);
  EXPECT_EQ(session->conversation().messages().size(), 4u);
  EXPECT_THAT(say(*session, "What is my name?").answer, HasSubstr("Nadia"));
}

TEST_P(EachModel, SeesAllMessagesAgainInALargerContext) {
  keep_on_disk();
  {
    const auto session = open(256);
    say(*session, "My name is Nadia.", false);
    for (int i = 0; i < 12; ++i) say(*session, fmt::format("My number is {}.", 11 + i), false);
    EXPECT_GT(session->counts().messages_left_out, 0u);
  }
  const auto session = open(1024);
  say(*session, "What is my name?", false);
  EXPECT_EQ(session->counts().messages_left_out, 0u);
}

TEST_P(EachModel, DoesNotReadAgainForTheSameSystemMessage) {
  keep_on_disk();
  {
    const auto session = open();
    session->set_system("Answer in English.");
    say(*session, "My name is Nadia.");
    idle(*session);
  }
  const auto session = open();
  session->set_system("Answer in English.");
  EXPECT_GT(say(*session, "What is my name?").stats.reused_tokens, 20u);
}

TEST_P(EachModel, SaysWhenItsBackgroundWorkIsDone) {
  const auto session = open();
  say(*session, "My name is Nadia.");
  EXPECT_FALSE(session->counts().idle_done);
  idle(*session);
  EXPECT_TRUE(session->counts().idle_done);
}

TEST_P(EachModel, KeepsTheOldAnswerIfTheNewOneWasStoppedBeforeItBegan) {
  const auto session = open();
  say(*session, "What is the opposite of hot?");
  const Conversation before = session->conversation();
  CancelFlag cancel;
  cancel.request();
  TurnOptions options = turn();
  options.cancel = &cancel;
  const auto again = session->answer_again(options);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->stats.stop_reason, StopReason::kCancelled);
  EXPECT_EQ(session->conversation(), before);
}

TEST_P(EachModel, HasNothingToAnswerAgainAtTheBeginning) {
  const auto session = open();
  const auto again = session->answer_again(turn());
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code(), ErrorCode::kUsage);
}

TEST_P(EachModel, GoesOnWithoutAPlaceForStates) {
  keep_on_disk();
  std::ofstream(SessionDirectory::state_folder(folder_)) << "a file where the folder should be";
  {
    const auto session = open();
    EXPECT_THAT(session->take_remarks(), testing::Not(IsEmpty()));
    say(*session, "My name is Nadia.");
    const CancelFlag never;
    (void)session->finish(turn(), never);
  }
  const auto session = open();
  EXPECT_EQ(session->conversation().messages().size(), 2u);
  EXPECT_THAT(say(*session, "What is my name?").answer, HasSubstr("Nadia"));
}

TEST_P(EachModel, HalvesItsCheckpointsIfAskedTo) {
  std::uint64_t bytes[2];
  for (const bool half : {false, true}) {
    options_.cache.half_checkpoints = half;
    const auto session = open();
    say(*session, "My name is Nadia.");
    idle(*session);
    EXPECT_THAT(say(*session, "What is my name?").answer, HasSubstr("Nadia"));
    bytes[half ? 1 : 0] = session->counts().cache.store.bytes_in_memory;
  }
  EXPECT_EQ(bytes[0], 2 * bytes[1]);
}

INSTANTIATE_TEST_SUITE_P(Session, EachModel, testing::Values(kDense, kHybrid), [](const auto& entry) {
  return entry.param == kDense ? std::string("Dense") : std::string("Hybrid");
});

}  // namespace
}  // namespace kazeia
