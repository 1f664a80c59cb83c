#include "gguf/loadable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include <fmt/format.h>

#include "gguf/test_file.h"

namespace kazeia::gguf {
namespace {

using ::testing::HasSubstr;

TestFile vocabulary(TestFile file) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 16; ++i) tokens.push_back(fmt::format("t{}", i));
  file.string("tokenizer.ggml.model", "gpt2").string("tokenizer.ggml.pre", "qwen2");
  file.strings("tokenizer.ggml.tokens", tokens).i32s("tokenizer.ggml.token_type", std::vector<std::int32_t>(16, 1));
  file.strings("tokenizer.ggml.merges", {"a b"});
  return file;
}

TestFile dense_model() {
  TestFile file;
  file.string("general.architecture", "qwen3");
  file.u32("qwen3.block_count", 2).u32("qwen3.context_length", 128).u32("qwen3.embedding_length", 64);
  file.u32("qwen3.feed_forward_length", 64).u32("qwen3.attention.head_count", 4);
  file.u32("qwen3.attention.head_count_kv", 2).u32("qwen3.attention.key_length", 32);
  file.u32("qwen3.attention.value_length", 32).f32("qwen3.attention.layer_norm_rms_epsilon", 1e-6f);
  file.f32("qwen3.rope.freq_base", 1e6f);
  file.tensor("token_embd.weight", {64, 16}, 2).tensor("output_norm.weight", {64});
  return vocabulary(file);
}

TestFile hybrid_model() {
  TestFile file;
  file.string("general.architecture", "qwen35");
  file.u32("qwen35.block_count", 2).u32("qwen35.context_length", 128).u32("qwen35.embedding_length", 64);
  file.u32("qwen35.attention.head_count", 4).u32("qwen35.attention.head_count_kv", 2);
  file.u32("qwen35.attention.key_length", 32).u32("qwen35.attention.value_length", 32);
  file.f32("qwen35.attention.layer_norm_rms_epsilon", 1e-6f).u32("qwen35.full_attention_interval", 2);
  file.i32s("qwen35.rope.dimension_sections", {3, 3, 2, 0}).u32("qwen35.rope.dimension_count", 16);
  file.u32("qwen35.ssm.conv_kernel", 4).u32("qwen35.ssm.inner_size", 128).u32("qwen35.ssm.state_size", 32);
  file.u32("qwen35.ssm.time_step_rank", 4).u32("qwen35.ssm.group_count", 2);
  file.tensor("token_embd.weight", {64, 16}, 2);
  file.tensor("blk.0.attn_qkv.weight", {64, 32}, 2).tensor("blk.0.attn_gate.weight", {64, 32}, 2);
  return vocabulary(file);
}

std::string problem(const TestFile& builder) {
  const std::string bytes = builder.bytes();
  const Result<File> file = parse(view(bytes));
  if (!file.ok()) return "does not even parse: " + file.error().message();
  const Status status = check_loadable({&*file, 1});
  return status.ok() ? "" : status.error().message();
}

TEST(Loadable, AcceptsSoundModels) {
  EXPECT_EQ(problem(dense_model()), "");
  EXPECT_EQ(problem(hybrid_model()), "");
}

TEST(Loadable, LeavesArchitecturesItDoesNotKnowToUpstream) {
  EXPECT_EQ(problem(dense_model().string("general.architecture", "brand-new")), "");
}

TEST(Loadable, RefusesAFileWithoutAnArchitecture) {
  EXPECT_THAT(problem(dense_model().without("general.architecture")), HasSubstr("general.architecture"));
  EXPECT_THAT(problem(dense_model().u32("general.architecture", 3)), HasSubstr("not a string"));
}

TEST(Loadable, RefusesAnImageEncoder) {
  EXPECT_THAT(problem(dense_model().string("general.architecture", "clip")), HasSubstr("image encoder"));
}

TEST(Loadable, RefusesLayerCountsThatUpstreamAsserts) {
  EXPECT_THAT(problem(dense_model().u32("qwen3.block_count", 0)), HasSubstr("must be 1 to 512"));
  EXPECT_THAT(problem(dense_model().u32("qwen3.block_count", 513)), HasSubstr("must be 1 to 512"));
  EXPECT_THAT(problem(dense_model().without("qwen3.block_count")), HasSubstr("'qwen3.block_count' is missing"));
  EXPECT_THAT(problem(dense_model().i32("qwen3.block_count", 2)), HasSubstr("is i32, it must be u32"));
  EXPECT_THAT(problem(dense_model().u32("qwen3.nextn_predict_layers", 3)), HasSubstr("must be 0 to 2"));
  EXPECT_THAT(problem(dense_model().u32("qwen3.nextn_predict_layers", 2)), HasSubstr("all 2 layers"));
}

TEST(Loadable, RefusesSizesOfZero) {
  EXPECT_THAT(problem(dense_model().u32("qwen3.context_length", 0)), HasSubstr("context_length"));
  EXPECT_THAT(problem(dense_model().u32("qwen3.embedding_length", 0)), HasSubstr("embedding_length"));
  EXPECT_THAT(problem(dense_model().u32("qwen3.attention.head_count", 0)), HasSubstr("0 query heads"));
  EXPECT_THAT(problem(dense_model().u32("qwen3.attention.head_count_kv", 0)), HasSubstr("0 key-value heads"));
  EXPECT_THAT(problem(dense_model().u32("qwen3.attention.key_length", 0)), HasSubstr("key_length"));
}

TEST(Loadable, RefusesHeadsThatDoNotDivide) {
  EXPECT_THAT(problem(dense_model().u32("qwen3.attention.head_count_kv", 3)), HasSubstr("4 query heads over 3"));
  EXPECT_THAT(problem(dense_model().i32s("qwen3.attention.head_count_kv", {2, 3})),
              HasSubstr("layer 1 has 4 query heads"));
  EXPECT_EQ(problem(dense_model().i32s("qwen3.attention.head_count_kv", {2, 4})), "");
}

TEST(Loadable, RefusesPerLayerListsOfAnotherLength) {
  EXPECT_THAT(problem(dense_model().i32s("qwen3.attention.head_count", {4, 4, 4})), HasSubstr("3 values of type i32"));
  EXPECT_THAT(problem(dense_model().i32s("qwen3.attention.head_count", {4, -4})), HasSubstr("negative for layer 1"));
}

TEST(Loadable, RefusesHeadLengthsThatTheGraphAsserts) {
  EXPECT_THAT(problem(dense_model().u32("qwen3.attention.value_length", 64)), HasSubstr("needs them equal"));
  EXPECT_THAT(problem(dense_model().u32("qwen3.rope.dimension_count", 16)), HasSubstr("16 of the 32 elements"));
  EXPECT_THAT(problem(hybrid_model().u32("qwen35.rope.dimension_count", 64)), HasSubstr("64 of the 32 elements"));
  EXPECT_THAT(problem(hybrid_model().u32("qwen35.rope.dimension_count", 0)), HasSubstr("0 of the 32 elements"));
  EXPECT_THAT(problem(hybrid_model().u32("qwen35.rope.dimension_count", 15)), HasSubstr("15 of the 32 elements"));
}

TEST(Loadable, RefusesRealsThatMakeNoSense) {
  EXPECT_THAT(problem(dense_model().f32("qwen3.attention.layer_norm_rms_epsilon", -1)), HasSubstr("finite positive"));
  EXPECT_THAT(problem(dense_model().f32("qwen3.rope.freq_base", NAN)), HasSubstr("finite positive"));
  EXPECT_THAT(problem(dense_model().f32("qwen3.rope.freq_base", 0)), HasSubstr("finite positive"));
  EXPECT_THAT(problem(dense_model().string("qwen3.rope.scaling.type", "spiral")), HasSubstr("none, linear, yarn"));
}

TEST(Loadable, RefusesExpertCountsThatUpstreamAsserts) {
  EXPECT_THAT(problem(dense_model().u32("qwen3.expert_count", 2000)), HasSubstr("must be 0 to 1024"));
  EXPECT_THAT(problem(dense_model().u32("qwen3.expert_used_count", 2)), HasSubstr("2 of 0 experts"));
  EXPECT_THAT(problem(dense_model().u32("qwen3.expert_count", 8)), HasSubstr("0 of 8 experts"));
  TestFile grouped = dense_model().u32("qwen3.expert_count", 8).u32("qwen3.expert_used_count", 2);
  EXPECT_EQ(problem(grouped), "");
  EXPECT_THAT(problem(grouped.u32("qwen3.expert_group_count", 3)), HasSubstr("expert groups"));
}

TEST(Loadable, RefusesRecurrentSizesThatUpstreamDividesBy) {
  EXPECT_THAT(problem(hybrid_model().u32("qwen35.ssm.time_step_rank", 0)), HasSubstr("time_step_rank"));
  EXPECT_THAT(problem(hybrid_model().u32("qwen35.ssm.group_count", 0)), HasSubstr("group_count"));
  EXPECT_THAT(problem(hybrid_model().u32("qwen35.ssm.group_count", 3)), HasSubstr("4 value heads of 32 over 3"));
  EXPECT_THAT(problem(hybrid_model().u32("qwen35.ssm.inner_size", 96)), HasSubstr("inner size of 96"));
  EXPECT_THAT(problem(hybrid_model().u32("qwen35.ssm.conv_kernel", 0)), HasSubstr("conv_kernel"));
  EXPECT_THAT(problem(hybrid_model().u32("qwen35.full_attention_interval", 0)), HasSubstr("full_attention_interval"));
}

TEST(Loadable, RefusesRopeSectionsThatAreAllZeroOrMissing) {
  EXPECT_THAT(problem(hybrid_model().i32s("qwen35.rope.dimension_sections", {0, 0, 0, 0})), HasSubstr("sections"));
  EXPECT_THAT(problem(hybrid_model().i32s("qwen35.rope.dimension_sections", {3, 3})), HasSubstr("sections"));
  EXPECT_THAT(problem(hybrid_model().i32s("qwen35.rope.dimension_sections", {3, -3, 2, 0})), HasSubstr("sections"));
  EXPECT_THAT(problem(hybrid_model().without("qwen35.rope.dimension_sections")), HasSubstr("sections"));
}

TEST(Loadable, RefusesARecurrentLayerWithoutItsProjection) {
  TestFile file = hybrid_model().u32("qwen35.full_attention_interval", 3);
  EXPECT_THAT(problem(file), HasSubstr("'blk.1.attn_qkv.weight' of a recurrent layer is missing"));
}

// ---- tensors ----

TEST(Loadable, RefusesGapsBetweenTensors) {
  TestFile file = dense_model().tensor("x.weight", {4}).tensor("y.weight", {4});
  EXPECT_EQ(problem(file), "");
  EXPECT_THAT(problem(file.without_tensor("x.weight")), HasSubstr("directly behind the ones before"));
}

TEST(Loadable, RefusesAModelWithoutTensors) {
  TestFile file = dense_model();
  file.without_tensor("token_embd.weight").without_tensor("output_norm.weight");
  EXPECT_THAT(problem(file), HasSubstr("no tensors"));
}

TEST(Loadable, RefusesTypesThatCannotBeComputedWith) {
  EXPECT_THAT(problem(dense_model().tensor("blk.0.attn_norm.weight", {64}, 1)), HasSubstr("type F16"));
  EXPECT_THAT(problem(dense_model().tensor("blk.0.attn_q.weight", {64, 64}, 26)), HasSubstr("type I32"));
  EXPECT_THAT(problem(dense_model().tensor("blk.0.ffn_up.weight", {64, 64}, 9)), HasSubstr("type Q8_1"));
  EXPECT_THAT(problem(dense_model().tensor("blk.0.ssm_conv1d.weight", {4, 64}, 1)), HasSubstr("type F16"));
  EXPECT_EQ(problem(dense_model().tensor("blk.0.attn_q.weight", {64, 64}, 30)), "");
}

// ---- vocabulary ----

TEST(Vocabulary, RefusesATokenThatAppearsTwice) {
  std::vector<std::string> tokens(16);
  for (int i = 0; i < 16; ++i) tokens[static_cast<std::size_t>(i)] = fmt::format("t{}", i);
  tokens[15] = "t3";
  EXPECT_THAT(problem(dense_model().strings("tokenizer.ggml.tokens", tokens)), HasSubstr("token 't3' appears twice"));
  tokens[15] = "";
  EXPECT_EQ(problem(dense_model().strings("tokenizer.ggml.tokens", tokens)), "");
  tokens[3] = "[EMPTY_15]";  // the name that upstream gives to the empty one
  EXPECT_THAT(problem(dense_model().strings("tokenizer.ggml.tokens", tokens)), HasSubstr("appears twice"));
}

TEST(Vocabulary, RefusesListsOfDifferentLength) {
  EXPECT_THAT(problem(dense_model().i32s("tokenizer.ggml.token_type", {1, 1})),
              HasSubstr("has 2 entries for 16 tokens"));
  EXPECT_THAT(problem(dense_model().array("tokenizer.ggml.scores", ValueType::kF32, 1, raw(1.0f))),
              HasSubstr("has 1 entries for 16 tokens"));
}

TEST(Vocabulary, RefusesListsOfAnotherType) {
  EXPECT_THAT(problem(dense_model().u32("tokenizer.ggml.tokens", 1)), HasSubstr("must be an array of string"));
  EXPECT_THAT(problem(dense_model().i32s("tokenizer.ggml.merges", {1})), HasSubstr("must be an array of string"));
  EXPECT_THAT(problem(dense_model().strings("tokenizer.ggml.tokens", {})), HasSubstr("0 entries"));
  EXPECT_THAT(problem(dense_model().without("tokenizer.ggml.tokens")), HasSubstr("is missing"));
  EXPECT_THAT(problem(dense_model().u32("tokenizer.chat_template", 1)), HasSubstr("must be a string"));
}

TEST(Vocabulary, RefusesABeginTokenThatIsAskedForButAbsent) {
  TestFile file = dense_model().strings("tokenizer.ggml.tokens", {"a", "b"}).i32s("tokenizer.ggml.token_type", {1, 1});
  EXPECT_THAT(problem(file), HasSubstr("add_bos_token"));
  EXPECT_EQ(problem(file.boolean("tokenizer.ggml.add_bos_token", false)), "");
  EXPECT_THAT(problem(file.boolean("tokenizer.ggml.add_bos_token", true)), HasSubstr("add_bos_token"));
  EXPECT_EQ(problem(file.u32("tokenizer.ggml.bos_token_id", 1)), "");
  EXPECT_THAT(problem(file.boolean("tokenizer.ggml.add_eos_token", true)), HasSubstr("add_eos_token"));
}

}  // namespace
}  // namespace kazeia::gguf
