// Matrix products and fused ops through upstream's real host code, and its repack against two other readers.
#include <gtest/gtest.h>

#include "emulated_dsp/host_fixture.h"
#include "emulated_dsp/records.h"
#include "emulated_dsp/tile_comparison.h"
#include "tiles/pack.h"
#include "tiles/sample_blocks.h"

namespace kazeia::emulated_dsp {
namespace {

using Tensors = std::vector<ggml_tensor*>;
using tiles::Shape;
using tiles::WeightType;
constexpr auto kF32 = GGML_TYPE_F32;
constexpr auto kF16 = GGML_TYPE_F16;
// Weights and activations rounded to f16.
constexpr double kHalf = 2e-3;

// The error, after checking that the DSP executed `op` that many times more than before.
double error_of(const Build& build, htp_op_code op, std::uint64_t times = 1) {
  const auto before = dsp_counters();
  const Comparison result = compare(build);
  EXPECT_EQ(result.refused, "");
  EXPECT_EQ(dsp_counters().ops_by_opcode[op] - before.ops_by_opcode[op], times) << op_name(op);
  return result.error;
}

class HostTiles : public testing::TestWithParam<WeightType> {
 protected:
  void SetUp() override { ASSERT_NE(hexagon_device(), nullptr); }
  ggml_type type() const { return type_of(GetParam()); }
  std::int64_t unit() const { return tiles::layout(GetParam()).block_columns; }
};

TEST_P(HostTiles, UpstreamsRepackIsOurPackByteForByteAndOurReaderReadsIt) {
  tiles::samples::Random random(tiles::samples::seed());
  const Backend device(ggml_backend_dev_init(hexagon_device(), nullptr));
  for (const auto& [rows, units] : {std::pair{32, 1}, std::pair{1, 3}, std::pair{77, 2}, std::pair{160, 5}}) {
    const Shape shape{GetParam(), rows, unit() * units};
    SCOPED_TRACE(testing::Message() << rows << " x " << shape.columns);
    const auto blocks = tiles::samples::random_blocks(random, shape);
    const Context context(ggml_init({4 * ggml_tensor_overhead(), nullptr, true}));
    ggml_tensor* tensor = ggml_new_tensor_2d(context.get(), type(), shape.columns, rows);
    const Buffer buffer(ggml_backend_alloc_ctx_tensors(context.get(), device.get()));
    ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_tensor_set(tensor, blocks.data(), 0, blocks.size());

    std::vector<std::uint8_t> packed(shape.bytes());
    tiles::pack(shape, blocks.data(), packed.data(), 0, shape.row_tiles());
    const auto* theirs = static_cast<const std::uint8_t*>(tensor->data);
    ASSERT_EQ(std::vector<std::uint8_t>(theirs, theirs + packed.size()), packed);
    ASSERT_NO_FATAL_FAILURE(expect_tiles_mean_blocks(shape, theirs, blocks));

    if (!tiles::layout(GetParam()).exact) continue;
    std::vector<std::uint8_t> back(blocks.size());
    ggml_backend_tensor_get(tensor, back.data(), 0, back.size());
    EXPECT_EQ(back, blocks);
  }
}

TEST_P(HostTiles, AProductOfManyTokensAndOfOne) {
  for (const std::int64_t tokens : {1, 5, 64}) {
    SCOPED_TRACE(testing::Message() << tokens << " tokens");
    const auto build = [&](const Workshop& w) -> Tensors {
      return {ggml_mul_mat(w.values, w.weight(type(), {768, 100}), w.input("x", kF32, {768, tokens}))};
    };
    EXPECT_LE(error_of(build, HTP_OP_MUL_MAT), kHalf);
  }
}

TEST_P(HostTiles, AProductWithSeveralMatrices) {
  const auto build = [&](const Workshop& w) -> Tensors {
    return {ggml_mul_mat(w.values, w.weight(type(), {256, 64, 2}), w.input("x", kF32, {256, 40, 4, 3}))};
  };
  EXPECT_LE(error_of(build, HTP_OP_MUL_MAT), kHalf);
}

TEST_P(HostTiles, AProductAndASumAreOneOp) {
  for (const std::int64_t sum_rows : {1, 40}) {
    const auto build = [&](const Workshop& w) -> Tensors {
      ggml_tensor* product = ggml_mul_mat(w.values, w.weight(type(), {512, 96}), w.input("x", kF32, {512, 40}));
      return {ggml_add(w.values, product, w.input("b", kF32, {96, sum_rows}))};
    };
    EXPECT_LE(error_of(build, HTP_OP_MUL_MAT_ADD), kHalf);
  }
}

TEST_P(HostTiles, SeveralProductsOfOneInputAreOneOp) {
  for (const int count : {2, 3, 4}) {
    SCOPED_TRACE(count);
    const auto build = [&](const Workshop& w) -> Tensors {
      ggml_tensor* x = w.input("x", kF32, {512, 48});
      Tensors products;
      for (int i = 0; i < count; ++i) {
        products.push_back(ggml_mul_mat(w.values, w.weight(type(), {512, 64 + 32 * i}), x));
      }
      return products;
    };
    EXPECT_LE(error_of(build, HTP_OP_MUL_MAT_NX), kHalf);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryType, HostTiles, testing::ValuesIn(tiles::samples::all_types()), tiles::samples::name_of);

class HostProduct : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(hexagon_device(), nullptr); }
};

TEST_F(HostProduct, OfPlainMatricesInBatchesAndRepetitions) {
  for (const ggml_type type : {kF16, kF32}) {
    for (const std::int64_t tokens : {1, 33}) {
      SCOPED_TRACE(testing::Message() << ggml_type_name(type) << ", " << tokens << " tokens");
      const auto build = [&](const Workshop& w) -> Tensors {
        return {ggml_mul_mat(w.values, w.input("w", type, {128, 64, 2}), w.input("x", kF32, {128, tokens, 8, 2}))};
      };
      EXPECT_LE(error_of(build, HTP_OP_MUL_MAT), kHalf);
    }
  }
}

TEST_F(HostProduct, OfAPermutedCache) {
  const auto build = [](const Workshop& w) -> Tensors {
    ggml_tensor* keys = ggml_permute(w.values, w.input("k", kF16, {64, 2, 96}), 0, 2, 1, 3);
    ggml_tensor* queries = ggml_permute(w.values, w.input("q", kF32, {64, 8, 20}), 0, 2, 1, 3);
    return {ggml_mul_mat(w.values, keys, queries)};
  };
  EXPECT_LE(error_of(build, HTP_OP_MUL_MAT), kHalf);
}

TEST_F(HostProduct, ANormAndItsWeightAreOneOp) {
  for (const std::int64_t rows : {1, 30}) {
    const auto build = [&](const Workshop& w) -> Tensors {
      ggml_tensor* normed = ggml_rms_norm(w.values, w.input("a", kF32, {256, rows}), 1e-6F);
      return {ggml_mul(w.values, normed, w.weight(kF32, {256}))};
    };
    EXPECT_LE(error_of(build, HTP_OP_RMS_NORM_MUL), 2e-6);
  }
}

// A layer's worth of ops in one batch, in place where llama.cpp is: results of one op are inputs of the next.
TEST_F(HostProduct, AFeedForwardBlock) {
  const auto build = [](const Workshop& w) -> Tensors {
    ggml_tensor* x = w.input("x", kF32, {256, 40});
    ggml_tensor* normed = ggml_mul(w.values, ggml_rms_norm(w.values, x, 1e-6F), w.weight(kF32, {256}));
    ggml_tensor* gate = ggml_mul_mat(w.values, w.weight(GGML_TYPE_Q4_0, {256, 512}), normed);
    ggml_tensor* up = ggml_mul_mat(w.values, w.weight(GGML_TYPE_Q4_0, {256, 512}), normed);
    ggml_tensor* down =
        ggml_mul_mat(w.values, w.weight(GGML_TYPE_Q6_K, {512, 256}), ggml_swiglu_split(w.values, gate, up));
    return {ggml_add(w.values, down, x)};
  };
  EXPECT_LE(error_of(build, HTP_OP_MUL_MAT_NX), kHalf);
}

TEST_F(HostProduct, AnEventIsSignalledByTheDsp) {
  const Backend device(ggml_backend_dev_init(hexagon_device(), nullptr));
  const auto before = dsp_counters();
  ggml_backend_event_t event = ggml_backend_event_new(hexagon_device());
  ASSERT_NE(event, nullptr);
  ggml_backend_event_record(event, device.get());
  ggml_backend_event_synchronize(event);
  ggml_backend_event_free(event);
  EXPECT_EQ(dsp_counters().ops_by_opcode[HTP_OP_FENCE], before.ops_by_opcode[HTP_OP_FENCE] + 1);
}

TEST_F(HostProduct, BuffersAreGivenBack) {
  const Backend device(ggml_backend_dev_init(hexagon_device(), nullptr));
  const auto before = dsp_counters();
  for (int i = 0; i < 20; ++i) {
    const Buffer buffer(ggml_backend_alloc_buffer(device.get(), 1 << 20));
    ASSERT_NE(buffer, nullptr);
    EXPECT_EQ(dsp_counters().rpcmem_buffers, before.rpcmem_buffers + 1);
  }
  EXPECT_EQ(dsp_counters().rpcmem_bytes, before.rpcmem_bytes);
  EXPECT_EQ(dsp_counters().mapped_bytes, before.mapped_bytes);
  EXPECT_EQ(dsp_counters().freed_while_mapped, before.freed_while_mapped);
}

}  // namespace
}  // namespace kazeia::emulated_dsp
