// The promise of the prefix cache: with it, the model says token for token what it says after reading everything anew.
// Random scenarios of edits, second answers, changed minds about thinking, switches between conversations, budgets that
// hold almost nothing, interrupted background work and restarts; every answer is compared with one of a timeline that
// knows nothing.
//
// The rows of a token depend, in their last bits, on the width of the piece that it was read in
// (docs/decisions/0009-kv-values-depend-on-batch-width.md), and a cache reads in other pieces than a fresh reading
// does. Read token by token, both are the same computation, and nothing may differ (Exactly). Read in pieces as wide as
// a user gets them, two tokens that are nearly as likely may fall the other way (InPieces): rarely, and only those.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "chat/mini_model.h"
#include "session/directory.h"
#include "session/session.h"

namespace kazeia {
namespace {

constexpr int kBlocks = 13;
constexpr int kScenariosPerBlock = 20;  // 13 x 20 for each of the two models: 520

// What the width of pieces may move a logit of the dense mini model by (docs/decisions/0009).
constexpr float kTie = 0.25F;

enum class Reading { kExactly, kInPieces, kFromHalfCheckpoints };

std::vector<std::string> phrases() {
  return {"My name is Nadia.",
          "What is my name?",
          "What is the opposite of hot?",
          "The secret word is velvet. Remember it.",
          "What is the secret word?",
          "What is the capital of France?",
          "My favourite colour is green.",
          "What is my favourite colour?",
          "Count from 3 to 9.",
          "Tell me what I said before, please, all of it, from the first message to the last one.",
          "ok\n\n",
          "  two   spaces  ",
          "A longer message that goes on for a while, about nothing in particular, so that a prompt has parts of quite "
          "different lengths, some of which are worth a checkpoint of their own and some of which are not at all."};
}

class Scenario {
 public:
  Scenario(std::shared_ptr<const Model> model, Reading reading, std::uint64_t seed)
      : model_(std::move(model)), reading_(reading), random_(seed), plain_(Responder::create(model_)) {
    context_ = pick({420, 700, 1024});
    options_.cache.memory_budget_bytes = pick({0, 40'000, 120'000, 400'000, 20'000'000});
    options_.cache.spacing_tokens = pick({0, 32, 100, 1024});
    options_.idle_work = chance(80);
    if (chance(60)) {
      folder_ = testing::TempDir() + fmt::format("kazeia-equality-{}-{}", ::getpid(), seed);
      std::filesystem::create_directories(folder_);
      options_.folder = folder_;
      options_.memo_folder = folder_ + "/memo";
    }
    options_.engine_version = "test";
    options_.cache.half_checkpoints = reading == Reading::kFromHalfCheckpoints;
    conversations_.resize(3);
    for (Conversation& conversation : conversations_) {
      if (chance(50)) conversation.set_system(chance(50) ? "Answer in English." : "You are Kazeia. Answer briefly.");
    }
    fresh_ = timeline();
    open();
  }
  ~Scenario() {
    session_.reset();
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  void play(int steps) {
    session_->replace(conversations_[current_]);
    for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) step();
  }
  std::string story() const { return story_; }
  int ties() const { return ties_; }
  std::size_t reused() const { return reused_; }
  int answers() const { return answers_; }

 private:
  template <typename Number>
  Number pick(std::initializer_list<Number> values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(random_() % values.size()));
  }
  bool chance(unsigned percent) { return random_() % 100 < percent; }

  std::unique_ptr<Timeline> timeline() const {
    TimelineOptions options;
    options.context_tokens = context_;
    options.decode_threads = 1;
    options.prefill_threads = 1;
    if (reading_ == Reading::kExactly) options.ubatch_tokens = 1;
    auto timeline = Timeline::create(model_, options);
    EXPECT_TRUE(timeline.ok());
    return std::move(timeline).value();
  }

  void open() {
    auto session = Session::open(model_, timeline(), options_);
    ASSERT_TRUE(session.ok()) << session.error().sentence();
    session_ = std::move(session).value();
  }

  void step() {
    idle();
    const auto what = random_() % 100;
    Conversation& conversation = conversations_[current_];
    if (what < 12) {
      current_ = random_() % conversations_.size();
      story_ += fmt::format("switch {}; ", current_);
      session_->replace(conversations_[current_]);
    } else if (what < 20) {
      story_ += "restart; ";
      restart();
    } else if (what < 30) {
      thinking_ = !thinking_;
      story_ += "toggle thinking; ";
    } else if (what < 42) {
      edit(conversation);
    } else if (what < 54) {
      again(conversation);
    }
    say(conversations_[current_]);
  }

  void idle() {
    if (!options_.idle_work) return;
    session_->begin_idle(turn());
    const auto patience = std::chrono::microseconds(chance(40) ? 0 : random_() % 20000);
    std::this_thread::sleep_for(patience);
    if (chance(30)) {
      const CancelFlag never;
      EXPECT_TRUE(session_->finish(turn(), never).ok());
      story_ += "finish; ";
    }
    session_->end_idle();
  }

  void restart() {
    session_.reset();
    open();
    if (!folder_.empty()) {
      EXPECT_EQ(session_->conversation(), conversations_[current_]);
    }
    session_->replace(conversations_[current_]);
  }

  // An earlier message of the user is another one; what came after it is gone.
  void edit(Conversation& conversation) {
    std::vector<std::size_t> own;
    for (std::size_t i = 0; i < conversation.messages().size(); ++i) {
      if (conversation.messages()[i].role == Role::kUser) own.push_back(i);
    }
    if (own.empty()) return;
    const std::size_t at = own[random_() % own.size()];
    Conversation changed;
    for (std::size_t i = 0; i < at; ++i) changed.add(conversation.messages()[i]);
    story_ += fmt::format("edit {}; ", at);
    conversation = changed;
    session_->replace(conversation);
  }

  void again(Conversation& conversation) {
    const bool answered = !conversation.empty() && conversation.messages().back().role == Role::kAssistant;
    if (!answered) return;
    story_ += "again; ";
    conversation.drop_last_reply();
    const Conversation asked = conversation;
    check(session_->answer_again(turn()), asked);
    conversation = session_->conversation();
  }

  void say(Conversation& conversation) {
    const std::vector<std::string> texts = phrases();
    const std::string& text = texts[random_() % texts.size()];
    story_ += fmt::format("say '{}'; ", text.substr(0, 12));
    conversation.add_user(text);
    const Conversation asked = conversation;
    check(session_->say(text, turn()), asked);
    conversation = session_->conversation();
  }

  TurnOptions turn() const {
    TurnOptions options;
    options.thinking = thinking_;
    options.max_tokens = 24;
    options.sampling.temperature = 0;
    return options;
  }

  void check(const Result<TurnResult>& turn_result, const Conversation& asked) {
    ASSERT_TRUE(turn_result.ok()) << turn_result.error().sentence();
    ++answers_;
    reused_ += turn_result->stats.reused_tokens;
    const Tokens with_cache = session_->timeline().tokens();
    const Conversation seen = without_oldest(asked, session_->counts().messages_left_out);
    fresh_->reset();
    const auto expected = plain_->answer(*fresh_, seen, turn());
    ASSERT_TRUE(expected.ok()) << expected.error().sentence();
    ASSERT_EQ(turn_result->stats.prompt_tokens, expected->stats.prompt_tokens);
    if (reading_ == Reading::kExactly) {
      EXPECT_EQ(with_cache, fresh_->tokens());
      EXPECT_EQ(turn_result->answer, expected->answer);
      return;
    }
    if (with_cache == fresh_->tokens()) return;
    expect_tie(with_cache, fresh_->tokens(), expected->stats.prompt_tokens);
  }

  // The two texts part at a token that could as well have been the other one.
  void expect_tie(const Tokens& a, const Tokens& b, std::size_t prompt_tokens) {
    const auto limit = static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
    const auto at = static_cast<std::size_t>(std::mismatch(a.begin(), a.begin() + limit, b.begin()).first - a.begin());
    ASSERT_GE(at, prompt_tokens);
    const Tokens before(b.begin(), b.begin() + static_cast<std::ptrdiff_t>(at));
    fresh_->reset();
    ASSERT_TRUE(fresh_->prefill(std::span(before).first(prompt_tokens)).ok());
    for (std::size_t i = prompt_tokens; i < at; ++i) ASSERT_TRUE(fresh_->decode(before[i]).ok());
    std::vector<float> logits(fresh_->logits().begin(), fresh_->logits().end());
    std::partial_sort(logits.begin(), logits.begin() + 2, logits.end(), std::greater<>());
    EXPECT_LT(logits[0] - logits[1], kTie) << "the texts part at token " << at << " of " << b.size();
    ++ties_;
  }

  std::shared_ptr<const Model> model_;
  Reading reading_;
  std::mt19937_64 random_;
  std::unique_ptr<Responder> plain_;
  std::uint32_t context_ = 0;
  SessionOptions options_;
  std::string folder_;
  std::vector<Conversation> conversations_;
  std::size_t current_ = 0;
  bool thinking_ = true;
  std::unique_ptr<Timeline> fresh_;
  std::unique_ptr<Session> session_;
  std::string story_;
  int ties_ = 0;
  int answers_ = 0;
  std::size_t reused_ = 0;
};

class Equality : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void play(Reading reading) {
    const auto& [name, block] = GetParam();
    const auto model = mini_model(name);
    ASSERT_NE(model, nullptr);
    // KAZEIA_SEED: another set, or one scenario again.
    const char* wish = std::getenv("KAZEIA_SEED");
    const std::uint64_t first =
        wish != nullptr ? std::strtoull(wish, nullptr, 10) : static_cast<std::uint64_t>(block) * kScenariosPerBlock;
    int ties = 0, answers = 0;
    std::size_t reused = 0;
    for (int i = 0; i < kScenariosPerBlock; ++i) {
      const std::uint64_t seed = first + static_cast<std::uint64_t>(i);
      Scenario scenario(model, reading, seed);
      scenario.play(6);
      ties += scenario.ties();
      answers += scenario.answers();
      reused += scenario.reused();
      ASSERT_FALSE(HasFailure()) << "KAZEIA_SEED=" << seed << ": " << scenario.story();
    }
    RecordProperty("answers", answers);
    RecordProperty("ties", ties);
    EXPECT_GT(reused, 1000u) << "nothing was put to the test";
    EXPECT_LE(ties, answers / 20) << "ties are rare";
  }
};

TEST_P(Equality, OfEveryAnswerWithThatOfAFreshReadingExactly) {
  play(Reading::kExactly);
}

TEST_P(Equality, OfEveryAnswerWithThatOfAFreshReadingInPieces) {
  play(Reading::kInPieces);
}

// --checkpoint-f16 promises less: what it costs is counted here.
TEST_P(Equality, OfMostAnswersFromHalfCheckpoints) {
  if (std::get<0>(GetParam()) == kHybrid) play(Reading::kFromHalfCheckpoints);
}

INSTANTIATE_TEST_SUITE_P(Session, Equality,
                         testing::Combine(testing::Values(kDense, kHybrid), testing::Range(0, kBlocks)),
                         [](const auto& entry) {
                           return fmt::format("{}{}", std::get<0>(entry.param) == kDense ? "Dense" : "Hybrid",
                                              std::get<1>(entry.param));
                         });

}  // namespace
}  // namespace kazeia
