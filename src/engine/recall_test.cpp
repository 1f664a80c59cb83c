// Conversations over several turns: the model must find earlier facts in the state that the engine keeps for it.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/mini_models.h"

namespace kazeia {
namespace {

const std::vector<mini::Turn> kEnglish = {
    {"My name is Alice.", "Nice to meet you, Alice!"},
    {"The secret word is lantern. Remember it.", "I will remember it."},
    {"My favorite color is green.", "Green is a lovely color."},
    {"What is 3 + 4?", "3 + 4 = 7."},
    {"What is the secret word?", "The secret word is lantern."},
    {"What is my name?", "Your name is Alice."},
    {"What is my favorite color?", "Your favorite color is green."},
};
const std::vector<mini::Turn> kFrench = {
    {"Je m'appelle Hugo.", "Enchantée, Hugo !"},
    {"Le mot secret est falcon. Retiens-le.", "Je m'en souviendrai."},
    {"Mon numéro est le 57.", "Je note le numéro 57."},
    {"Quelle est la capitale de la France ?", "La capitale de la France est Paris."},
    {"Quel est le mot secret ?", "Le mot secret est falcon."},
    {"Quel est mon numéro ?", "Votre numéro est le 57."},
    {"Comment je m'appelle ?", "Vous vous appelez Hugo."},
};

class Recall : public mini::EachModel {
 protected:
  // Every turn reads the whole conversation so far.
  void converse(const std::vector<mini::Turn>& turns) {
    const auto timeline = mini::timeline(GetParam());
    const auto sampler = mini::sampler(GetParam());
    std::vector<mini::Turn> so_far;
    for (const auto& [user, expected] : turns) {
      const std::string prompt = mini::history(so_far) + mini::question(user);
      const GenerationResult result = mini::answer(*timeline, *sampler, GetParam(), prompt);
      EXPECT_EQ(result.text, expected) << user;
      so_far.emplace_back(user, result.text);
    }
  }
};

TEST_P(Recall, OfSevenTurnsInEnglish) {
  converse(kEnglish);
}
TEST_P(Recall, OfSevenTurnsInFrench) {
  converse(kFrench);
}

TEST_P(Recall, OfTwoConversationsThatShareAModelButNoState) {
  const auto first = mini::timeline(GetParam());
  const auto second = mini::timeline(GetParam());
  const auto sampler = mini::sampler(GetParam());
  const auto tell = [&](Timeline& timeline, const std::string& word) {
    ASSERT_TRUE(timeline
                    .prefill(mini::tokens(GetParam(), mini::history({{"The secret word is " + word + ". Remember it.",
                                                                      "I will remember it."}})))
                    .ok());
  };
  tell(*first, "comet");
  tell(*second, "violin");
  const auto ask = [&](Timeline& timeline) {
    EXPECT_TRUE(timeline.prefill(mini::tokens(GetParam(), mini::question("What is the secret word?"))).ok());
    const auto result = generate(timeline, *sampler, {});
    return result.ok() ? result.value().text : result.error().sentence();
  };
  EXPECT_EQ(ask(*first), "The secret word is comet.");
  EXPECT_EQ(ask(*second), "The secret word is violin.");
}

TEST_P(Recall, ForgetsAfterAReset) {
  const auto timeline = mini::timeline(GetParam());
  const auto sampler = mini::sampler(GetParam());
  const std::string told = mini::history({{"The secret word is comet. Remember it.", "I will remember it."}});
  const std::string ask = mini::question("What is the secret word?");
  EXPECT_EQ(mini::answer(*timeline, *sampler, GetParam(), told + ask).text, "The secret word is comet.");
  EXPECT_EQ(mini::answer(*timeline, *sampler, GetParam(), ask).text.find("comet"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Engine, Recall,
                         testing::Values(mini::kDense, mini::kHybrid, mini::kDenseF16, mini::kHybridF16),
                         mini::model_test_name);

TEST(RecallOnADenseModel, CutsTheThoughtOfTheLastTurnAndReadsOnlyWhatIsNew) {
  const auto timeline = mini::timeline(mini::kDense);
  const auto sampler = mini::sampler(mini::kDense);
  std::size_t read = 0;
  std::string text;  // what the timeline holds
  const auto append = [&](const std::string& more) {
    const Tokens tokens = mini::tokens(mini::kDense, more);
    ASSERT_TRUE(timeline->prefill(tokens).ok());
    read += tokens.size();
    text += more;
  };
  for (const auto& [user, expected] : kEnglish) {
    append("<|im_start|>user\n" + user + "<|im_end|>\n<|im_start|>assistant\n");
    const std::size_t before_the_thought = timeline->token_count();
    ASSERT_TRUE(timeline->prefill(mini::tokens(mini::kDense, mini::kNoThought)).ok());
    const auto result = generate(*timeline, *sampler, {});
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result.value().text, expected) << user;
    ASSERT_TRUE(timeline->truncate(before_the_thought).ok());
    append(result.value().text + "<|im_end|>\n");
  }
  EXPECT_EQ(timeline->tokens(), mini::tokens(mini::kDense, text));
  EXPECT_EQ(read, timeline->token_count());
}

}  // namespace
}  // namespace kazeia
