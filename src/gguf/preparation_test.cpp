#include "gguf/preparation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "gguf/test_file.h"

namespace kazeia::gguf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t kQ5_K = 13;
constexpr std::uint32_t kIQ2_XXS = 16;

std::uint32_t id(TypeId type) {
  return static_cast<std::uint32_t>(type);
}

// Keeps the bytes that the views point into.
struct Parsed {
  explicit Parsed(const TestFile& file) : bytes(file.bytes()), result(parse(view(bytes))) {
    EXPECT_TRUE(result.ok()) << result.error().sentence();
  }
  std::span<const File> parts() const { return {&*result, 1}; }
  std::string bytes;
  Result<File> result;
};

Preparation plan(const Parsed& file, const PreparationOptions& options = {}) {
  Result<Preparation> result = plan_preparation(file.parts(), options);
  EXPECT_TRUE(result.ok()) << result.error().sentence();
  return result.ok() ? *std::move(result) : Preparation{};
}

// What one tensor becomes.
PreparedTensor becomes(const std::string& name, std::vector<std::uint64_t> dims, std::uint32_t type,
                       const PreparationOptions& options = {}) {
  static std::vector<std::unique_ptr<Parsed>> kept;  // the answer points into it
  kept.push_back(std::make_unique<Parsed>(TestFile().tensor(name, std::move(dims), type)));
  return plan(*kept.back(), options).tensors.at(0);
}

TEST(Preparation, MakesMatricesQ4AndTablesQ6WhateverTheyWere) {
  for (const TensorType& type : all_tensor_types()) {
    if (type.id == TypeId::kQ8_1 || type.id == TypeId::kQ8_K || type.id == TypeId::kF64) continue;
    if (type.id >= TypeId::kI8 && type.id <= TypeId::kI64) continue;
    const std::uint32_t from = id(type.id);
    EXPECT_EQ(becomes("blk.0.attn_q.weight", {256, 32}, from).type, TypeId::kQ4_0) << type.name;
    EXPECT_EQ(becomes("blk.0.ffn_down_exps.weight", {256, 32, 4}, from).type, TypeId::kQ4_0) << type.name;
    EXPECT_EQ(becomes("blk.0.ssm_alpha.weight", {256, 32}, from).type, TypeId::kQ4_0) << type.name;
    EXPECT_EQ(becomes("token_embd.weight", {256, 32}, from).type, TypeId::kQ6_K) << type.name;
    EXPECT_EQ(becomes("output.weight", {256, 32}, from).type, TypeId::kQ6_K) << type.name;
  }
}

TEST(Preparation, LeavesVectorsConvolutionsAndIntegersAlone) {
  for (const char* name : {"output_norm.weight", "blk.0.ssm_a", "blk.0.ssm_dt.bias", "blk.0.attn_q.bias"}) {
    const PreparedTensor tensor = becomes(name, {64}, id(TypeId::kF32));
    EXPECT_FALSE(tensor.changes()) << name;
    EXPECT_EQ(tensor.role, TensorRole::kVector) << name;
  }
  EXPECT_FALSE(becomes("blk.0.ssm_conv1d.weight", {4, 512}, id(TypeId::kF32)).changes());
  EXPECT_FALSE(becomes("blk.0.attn_q_norm.weight", {64, 8}, id(TypeId::kF32)).changes());
  EXPECT_FALSE(becomes("blk.0.ffn_gate_inp.weight", {256, 8}, id(TypeId::kF16)).changes());
  EXPECT_FALSE(becomes("blk.0.ffn_gate_tid2eid.weight", {8, 512}, id(TypeId::kI8) + 2).changes());
}

TEST(Preparation, WidensSmallTensorsOnlyWhereTheNpuRefusesTheirType) {
  EXPECT_EQ(becomes("blk.0.ffn_gate_inp.weight", {256, 8}, id(TypeId::kBF16)).type, TypeId::kF32);
  EXPECT_EQ(becomes("blk.0.ffn_gate_inp.weight", {256, 8}, id(TypeId::kQ8_0)).type, TypeId::kQ8_0);
  const PreparedTensor vector = becomes("rope_freqs.weight", {64}, id(TypeId::kF16));
  EXPECT_EQ(vector.type, TypeId::kF32);
  EXPECT_EQ(vector.bytes, 256u);
  EXPECT_THAT(vector.note, HasSubstr("NPU refuses F16"));
}

TEST(Preparation, FallsBackToATypeThatFitsTheColumnsAndSaysSo) {
  const PreparedTensor table = becomes("token_embd.weight", {96, 10}, id(TypeId::kF32));
  EXPECT_EQ(table.type, TypeId::kQ8_0);
  EXPECT_EQ(table.note, "Q8_0 instead of Q6_K: 96 columns are not a multiple of 256");
  EXPECT_EQ(becomes("token_embd.weight", {40, 10}, id(TypeId::kF32)).type, TypeId::kF16);
  const PreparedTensor matrix = becomes("blk.0.attn_q.weight", {40, 10}, id(TypeId::kBF16));
  EXPECT_EQ(matrix.type, TypeId::kF16);
  EXPECT_EQ(matrix.bytes, 800u);
  EXPECT_EQ(matrix.note, "F16 instead of Q4_0: 40 columns are not a multiple of 32");
}

TEST(Preparation, TakesOtherTargetsAndLeavesWhatItIsTold) {
  PreparationOptions options;
  options.weights = TypeId::kQ8_0;
  options.embedding = TypeId::kQ4_0;
  options.keep = [](std::string_view name) { return name.find("attn_v") != std::string_view::npos; };
  EXPECT_EQ(becomes("blk.0.attn_q.weight", {256, 8}, kQ5_K, options).type, TypeId::kQ8_0);
  EXPECT_EQ(becomes("output.weight", {256, 8}, kQ5_K, options).type, TypeId::kQ4_0);
  const PreparedTensor kept = becomes("blk.0.attn_v.weight", {256, 8}, kQ5_K, options);
  EXPECT_EQ(id(kept.type), kQ5_K);
  EXPECT_EQ(kept.note, "kept as asked");
}

TEST(Preparation, CanChangeOnlyWhatTheNpuRefuses) {
  PreparationOptions options;
  options.only_refused = true;
  EXPECT_EQ(becomes("blk.0.ssm_out.weight", {256, 8}, kQ5_K, options).type, TypeId::kQ4_0);
  // No other type brings the head or the experts of a mixture to the NPU: changing them would only cost quality.
  EXPECT_FALSE(becomes("output.weight", {256, 8}, kIQ2_XXS, options).changes());
  EXPECT_FALSE(becomes("blk.0.ffn_up_exps.weight", {256, 8, 4}, kQ5_K, options).changes());
  for (const TypeId type : {TypeId::kQ4_K, TypeId::kQ6_K, TypeId::kMXFP4, TypeId::kF16}) {
    EXPECT_FALSE(becomes("blk.0.attn_q.weight", {256, 8}, id(type), options).changes());
  }
}

TEST(Preparation, KnowsWhatTheNpuRefusesAndWhy) {
  const PreparedTensor out = becomes("blk.0.ssm_out.weight", {256, 8}, kQ5_K);
  EXPECT_EQ(npu_refusal(*out.source, out.source->type->id), "Q5_K has no tile layout");
  EXPECT_EQ(npu_refusal(*out.source, out.type), "");
  EXPECT_EQ(npu_refusal(*out.source, TypeId::kBF16), "BF16 has no tile layout");
  EXPECT_EQ(npu_refusal(*out.source, TypeId::kF16), "");
  const PreparedTensor experts = becomes("blk.0.ffn_up_exps.weight", {256, 8, 4}, kQ5_K);
  EXPECT_EQ(npu_refusal(*experts.source, experts.type), "experts stay with the CPU");
  // Not an operand of a matrix product.
  const PreparedTensor norm = becomes("blk.0.attn_norm.weight", {256}, id(TypeId::kBF16));
  EXPECT_EQ(npu_refusal(*norm.source, TypeId::kBF16), "");
}

TEST(Preparation, RefusesATypeThatNothingCanBeComputedFrom) {
  const Parsed file(TestFile().tensor("blk.0.attn_q.weight", {32, 4}, id(TypeId::kQ8_1)));
  const Result<Preparation> result = plan_preparation(file.parts(), {});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kUnsupported);
  EXPECT_THAT(result.error().sentence(), HasSubstr("'blk.0.attn_q.weight' has the type Q8_1"));
}

TEST(Preparation, CountsBytesAndKnowsWhatIsQuantisedTwice) {
  const Parsed twice(TestFile().tensor("a.weight", {256, 2}, kQ5_K).tensor("output_norm.weight", {4}));
  const Preparation preparation = plan(twice);
  EXPECT_EQ(preparation.changed(), 1u);
  EXPECT_EQ(preparation.bytes_before, 2 * 176u + 16);
  EXPECT_EQ(preparation.bytes_after, 2 * 8 * 18u + 16);
  EXPECT_TRUE(preparation.requantises());
  EXPECT_FALSE(plan(Parsed(TestFile().tensor("a.weight", {256, 2}, id(TypeId::kBF16)))).requantises());
  EXPECT_FALSE(plan(Parsed(TestFile().tensor("a.weight", {256, 2}, id(TypeId::kQ4_0)))).requantises());
}

TEST(PreparedHeader, KeepsTheMetadataInOrderAndBringsTheTypesUpToDate) {
  const Parsed file(TestFile()
                        .alignment(64)
                        .string("general.architecture", "qwen3")
                        .u32("general.file_type", 17)
                        .u16("split.count", 1)
                        .strings("tokenizer.ggml.tokens", {"a", "", "\xff"})
                        .u32("general.quantization_version", 1)
                        .string("kazeia.prepared.source", "older.gguf")
                        .f32("last", 0.5f)
                        .tensor("a.weight", {64, 3}, id(TypeId::kF16))
                        .tensor("b_norm.weight", {5}));
  const Header header =
      prepared_header(file.parts(), plan(file), {"kazeia 1.2.3", "llama.cpp 4", "model.gguf", 123456789012});
  const std::string bytes = header.serialise() + std::string(header.file_bytes() - header.serialise().size(), 'x');
  const Result<File> made = parse(view(bytes));
  ASSERT_TRUE(made.ok()) << made.error().sentence();
  std::vector<std::string_view> keys;
  for (const Entry& entry : made->metadata()) keys.push_back(entry.key);
  EXPECT_THAT(keys,
              ElementsAre("general.alignment", "general.architecture", "general.file_type", "tokenizer.ggml.tokens",
                          "general.quantization_version", "last", "kazeia.prepared.engine", "kazeia.prepared.upstream",
                          "kazeia.prepared.source", "kazeia.prepared.source_bytes"));
  EXPECT_EQ(made->alignment(), 32u);
  EXPECT_EQ(made->find("general.file_type")->as_unsigned(), 2u);
  EXPECT_EQ(made->find("general.quantization_version")->as_unsigned(), 2u);
  EXPECT_THAT(made->find("tokenizer.ggml.tokens")->strings(), ElementsAre("a", "", "\xff"));
  EXPECT_EQ(made->find("last")->as_real(), 0.5);
  EXPECT_EQ(made->find("kazeia.prepared.source")->as_string(), "model.gguf");
  EXPECT_EQ(made->find("kazeia.prepared.source_bytes")->as_unsigned(), 123456789012u);
  ASSERT_EQ(made->tensors().size(), 2u);
  EXPECT_EQ(made->tensors()[0].type->id, TypeId::kQ4_0);
  EXPECT_EQ(made->tensors()[1].dimension_count, 1u);
}

TEST(PreparedHeader, AddsTheTypesIfTheSourceDoesNotSayThem) {
  const Parsed file(TestFile().tensor("a.weight", {64, 3}, id(TypeId::kF16)));
  PreparationOptions options;
  options.weights = TypeId::kQ8_0;
  const Header header = prepared_header(file.parts(), plan(file, options), {"k", "u", "m", 1});
  const std::string bytes = header.serialise() + std::string(header.file_bytes() - header.serialise().size(), 'x');
  const Result<File> made = parse(view(bytes));
  ASSERT_TRUE(made.ok()) << made.error().sentence();
  EXPECT_EQ(made->find("general.file_type")->as_unsigned(), 7u);
  EXPECT_EQ(made->find("general.quantization_version")->as_unsigned(), 2u);
}

}  // namespace
}  // namespace kazeia::gguf
