#include "npu/op_policy.h"

#include <memory>

#include <gtest/gtest.h>

#include "ggml.h"

namespace kazeia::npu {
namespace {

// The nodes of a gated-delta-net layer in the shape in which upstream's graph builder makes them, no data.
class OpPolicyTest : public testing::Test {
 protected:
  ggml_context* context() { return context_.get(); }
  ggml_tensor* matrix(int columns, int rows, const char* name = "") {
    ggml_tensor* tensor = ggml_new_tensor_2d(context(), GGML_TYPE_F32, columns, rows);
    ggml_set_name(tensor, name);
    return tensor;
  }

 private:
  std::unique_ptr<ggml_context, decltype(&ggml_free)> context_{ggml_init({1 << 20, nullptr, true}), &ggml_free};
};

TEST_F(OpPolicyTest, SendsMatrixProductsAndAttentionToTheNpuAndTheRecurrentLayersOwnOpsToTheCpu) {
  const OpPolicy policy;
  EXPECT_TRUE(policy.allows(OpClass::kMatmul));
  EXPECT_TRUE(policy.allows(OpClass::kAttention));
  EXPECT_FALSE(policy.allows(OpClass::kRecurrent));
}

TEST_F(OpPolicyTest, NamesEveryClassAndFindsItAgain) {
  for (std::size_t i = 0; i < kOpClasses; ++i) {
    EXPECT_EQ(op_class_of_name(op_class_name(op_class_at(i))), op_class_at(i));
  }
  EXPECT_EQ(op_class_of_name("everything"), std::nullopt);
}

TEST_F(OpPolicyTest, TellsTheClassesApart) {
  ggml_tensor* x = matrix(64, 8);
  EXPECT_EQ(classify(ggml_mul_mat(context(), matrix(64, 32), x)), OpClass::kMatmul);
  EXPECT_EQ(classify(ggml_rms_norm(context(), x, 1e-6f)), OpClass::kNorm);
  EXPECT_EQ(classify(ggml_add(context(), x, x)), OpClass::kElementwise);
  EXPECT_EQ(classify(ggml_silu(context(), x)), OpClass::kElementwise);
  EXPECT_EQ(classify(ggml_cont(context(), x)), OpClass::kCopy);
  ggml_tensor* rows = ggml_new_tensor_1d(context(), GGML_TYPE_I32, 4);
  EXPECT_EQ(classify(ggml_get_rows(context(), x, rows)), OpClass::kCopy);
  ggml_tensor* positions = ggml_new_tensor_1d(context(), GGML_TYPE_I32, 8);
  ggml_tensor* heads = ggml_new_tensor_3d(context(), GGML_TYPE_F32, 64, 2, 8);
  EXPECT_EQ(classify(ggml_rope(context(), heads, positions, 64, 0)), OpClass::kAttention);
}

TEST_F(OpPolicyTest, KeepsWhatReadsOrWritesTheRecurrentStateWithIt) {
  ggml_tensor* state = matrix(48, 1, "cache_r_l3");
  ggml_tensor* rows = ggml_new_tensor_1d(context(), GGML_TYPE_I32, 1);
  ggml_tensor* kept = ggml_get_rows(context(), ggml_reshape_2d(context(), state, 48, 1), rows);
  EXPECT_EQ(classify(kept), OpClass::kRecurrent);
  ggml_tensor* window =
      ggml_concat(context(), ggml_reshape_2d(context(), kept, 3, 16), ggml_transpose(context(), matrix(16, 8)), 0);
  EXPECT_EQ(classify(window), OpClass::kRecurrent);
  ggml_tensor* newest = ggml_view_1d(context(), window, 48, 0);
  EXPECT_EQ(classify(ggml_cpy(context(), newest, ggml_view_1d(context(), state, 48, 0))), OpClass::kRecurrent);
  EXPECT_EQ(classify(ggml_scale_inplace(context(), ggml_view_1d(context(), state, 48, 0), 0.0f)), OpClass::kRecurrent);
}

TEST_F(OpPolicyTest, KeepsWhatLiesBetweenTheConvolutionAndTheDeltaRuleWithThem) {
  ggml_tensor* window = ggml_new_tensor_3d(context(), GGML_TYPE_F32, 11, 16, 1);
  ggml_tensor* convolved = ggml_ssm_conv(context(), window, matrix(4, 16));
  EXPECT_EQ(classify(convolved), OpClass::kRecurrent);
  ggml_tensor* activated = ggml_silu(context(), convolved);
  EXPECT_EQ(classify(activated), OpClass::kRecurrent);
  ggml_tensor* part = ggml_view_2d(context(), activated, 8, 8, activated->nb[1], 0);
  EXPECT_EQ(classify(ggml_l2_norm(context(), part, 1e-6f)), OpClass::kRecurrent);
  EXPECT_EQ(classify(ggml_scale(context(), ggml_rms_norm(context(), part, 1e-6f), 0.5f)), OpClass::kRecurrent);
  // The projection behind them is a matrix product like any other.
  EXPECT_EQ(classify(ggml_mul_mat(context(), matrix(8, 32), part)), OpClass::kMatmul);
}

}  // namespace
}  // namespace kazeia::npu
