#include "gguf/inspection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf/test_file.h"

namespace kazeia::gguf {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Inspection facts_of(const TestFile& builder) {
  const std::string bytes = builder.bytes();
  const Result<File> file = parse(view(bytes));
  EXPECT_TRUE(file.ok()) << file.error().sentence();
  return inspect({&*file, 1});
}

TestFile named(std::string_view architecture) {
  TestFile file;
  file.string("general.architecture", architecture);
  return file;
}

TEST(Inspection, MapsLayersByTheirTensors) {
  TestFile file = named("odd").u32("odd.block_count", 6).u32("odd.nextn_predict_layers", 1);
  file.tensor("blk.0.attn_qkv.weight", {4}).tensor("blk.0.ssm_a", {4});
  file.tensor("blk.1.attn_k.weight", {4}).tensor("blk.2.ffn_up.weight", {4});
  file.tensor("blk.3.attn_k.weight", {4}).tensor("blk.3.ssm_in.weight", {4});
  file.tensor("blk.4.attn_qkv.weight", {4}).tensor("blk.5.attn_k.weight", {4});
  // Not layers of this model, whatever their names look like.
  file.tensor("blk.6.attn_k.weight", {4}).tensor("blk.x.attn_k.weight", {4}).tensor("blk.2", {4});
  const Inspection facts = facts_of(file);
  EXPECT_THAT(facts.layers, ElementsAre(LayerKind::kRecurrent, LayerKind::kAttention, LayerKind::kNeither,
                                        LayerKind::kBoth, LayerKind::kAttention, LayerKind::kNextToken));
  EXPECT_EQ(facts.layer_count(LayerKind::kAttention), 2u);
}

TEST(Inspection, SharesBytesByType) {
  TestFile file = named("x");
  file.tensor("a", {4}).tensor("b", {32, 2}, 2).tensor("c", {64}, 0);
  const Inspection facts = facts_of(file);
  ASSERT_EQ(facts.types.size(), 2u);
  EXPECT_EQ(facts.types[0].type, "F32");
  EXPECT_EQ(facts.types[0].tensors, 2u);
  EXPECT_EQ(facts.types[0].bytes, 272u);
  EXPECT_EQ(facts.types[1].bytes, 36u);
  EXPECT_EQ(facts.parameters, 132u);
  EXPECT_DOUBLE_EQ(facts.bits_per_weight(), 8.0 * 308 / 132);
}

TEST(Inspection, SeesWhetherTheHeadIsTied) {
  TestFile file = named("x");
  file.tensor("token_embd.weight", {4, 4});
  EXPECT_TRUE(facts_of(file).tied_embeddings);
  EXPECT_FALSE(facts_of(file.tensor("output.weight", {4, 4})).tied_embeddings);
}

TEST(Inspection, DerivesTheHeadLengthWhenTheFileDoesNotSayIt) {
  TestFile file = named("x").u32("x.embedding_length", 64).u32("x.attention.head_count", 4);
  const Inspection facts = facts_of(file);
  EXPECT_EQ(facts.key_length, 16u);
  EXPECT_THAT(facts.kv_heads, ElementsAre(4));
}

TEST(Inspection, NamesSpecialTokensAndTemplateAbilities) {
  TestFile file = named("x").strings("tokenizer.ggml.tokens", {"a", "<eos>"}).u32("tokenizer.ggml.eos_token_id", 1);
  file.u32("tokenizer.ggml.bos_token_id", 7).string("tokenizer.chat_template", "{% if tools %}{{ enable_thinking }}");
  const Inspection facts = facts_of(file);
  ASSERT_EQ(facts.special_tokens.size(), 2u);
  EXPECT_EQ(facts.special_tokens[0].role, "eos");
  EXPECT_EQ(facts.special_tokens[0].text, "<eos>");
  EXPECT_EQ(facts.special_tokens[1].text, "");
  EXPECT_TRUE(facts.template_has_thinking);
  EXPECT_TRUE(facts.template_has_tools);
}

TEST(Inspection, LeavesOutWhatHasTheWrongType) {
  TestFile file = named("x").string("x.block_count", "many").strings("x.attention.head_count", {"4"});
  file.u32("general.name", 5).u32("tokenizer.ggml.tokens", 5);
  const Inspection facts = facts_of(file);
  EXPECT_THAT(facts.layers, IsEmpty());
  EXPECT_THAT(facts.heads, IsEmpty());
  EXPECT_EQ(facts.name, "");
  EXPECT_EQ(facts.vocabulary, 0u);
}

TEST(Inspection, DoesNotBelieveAnAbsurdLayerCount) {
  EXPECT_LE(facts_of(named("x").u32("x.block_count", UINT32_MAX)).layers.size(), 512u);
}

}  // namespace
}  // namespace kazeia::gguf
