// The buffer type and its operators as ggml's CPU backend runs them, beside ggml's own results from a plain buffer.
#include "tiles/operators.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "tiles/buffer_type.h"
#include "tiles/layout.h"
#include "tiles/sample_blocks.h"

namespace kazeia::tiles {
namespace {

struct Free {
  void operator()(ggml_context* context) const { ggml_free(context); }
  void operator()(ggml_backend_buffer* buffer) const { ggml_backend_buffer_free(buffer); }
  void operator()(ggml_backend* backend) const { ggml_backend_free(backend); }
};
using Context = std::unique_ptr<ggml_context, Free>;
using Buffer = std::unique_ptr<ggml_backend_buffer, Free>;
using Backend = std::unique_ptr<ggml_backend, Free>;

Context new_context() {
  return Context(ggml_init({1 << 20, nullptr, true}));
}

// Weights in a buffer of some type.
struct Weights {
  Context context = new_context();
  ggml_tensor* tensor = nullptr;
  Buffer buffer;

  Weights() = default;
  Weights(const Shape& shape, ggml_backend_buffer_type_t type) {
    register_buffer_type();
    tensor = ggml_new_tensor_2d(context.get(), static_cast<ggml_type>(shape.type), shape.columns, shape.rows);
    buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(context.get(), type));
    ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  }
  Weights(const Shape& shape, ggml_backend_buffer_type_t type, const std::vector<std::uint8_t>& blocks)
      : Weights(shape, type) {
    ggml_backend_tensor_set(tensor, blocks.data(), 0, blocks.size());
  }
  std::vector<std::uint8_t> read() const {
    std::vector<std::uint8_t> blocks(ggml_nbytes(tensor));
    ggml_backend_tensor_get(tensor, blocks.data(), 0, blocks.size());
    return blocks;
  }
};

// Where the activations of a product come from.
enum class View { kContiguous, kRowsApart, kPermuted };

struct Product {
  std::int64_t tokens = 1;  // ne1
  std::int64_t batch = 1;   // ne2
  View view = View::kContiguous;
  // Whole numbers with +-127 in every block: int8 with any scale per block holds them without rounding.
  bool integers = false;
  bool absolute = false;  // their absolute values
};

// The activations of `product` as the tensor that MUL_MAT is given; `base` receives the one that owns the data.
ggml_tensor* activations(ggml_context* context, std::int64_t columns, const Product& product, ggml_tensor*& base) {
  switch (product.view) {
    case View::kContiguous:
      return base = ggml_new_tensor_3d(context, GGML_TYPE_F32, columns, product.tokens, product.batch);
    case View::kRowsApart:
      base = ggml_new_tensor_3d(context, GGML_TYPE_F32, columns + 64, product.tokens, product.batch);
      return ggml_view_3d(context, base, columns, product.tokens, product.batch, base->nb[1], base->nb[2], 64);
    case View::kPermuted:
      base = ggml_new_tensor_3d(context, GGML_TYPE_F32, columns, product.batch, product.tokens);
      return ggml_permute(context, base, 0, 2, 1, 3);
  }
  return nullptr;
}

std::vector<float> run(ggml_context* context, ggml_tensor* result, int threads) {
  ggml_cgraph* graph = ggml_new_graph(context);
  ggml_build_forward_expand(graph, result);
  const Backend backend(ggml_backend_cpu_init());
  ggml_backend_cpu_set_n_threads(backend.get(), threads);
  EXPECT_EQ(ggml_backend_graph_compute(backend.get(), graph), GGML_STATUS_SUCCESS);
  std::vector<float> values(static_cast<std::size_t>(ggml_nelements(result)));
  ggml_backend_tensor_get(result, values.data(), 0, values.size() * sizeof(float));
  return values;
}

// The values of the activations, the same for the same `seed`; normally distributed if not integers.
std::vector<float> activation_values(std::size_t count, const Product& product, std::uint64_t seed) {
  samples::Random random(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = normal(random);
    if (product.integers) values[i] = std::clamp(std::round(values[i] * 40), -127.0f, 127.0f);
    if (product.integers && i % 16 == 0) values[i] = std::copysign(127.0f, values[i]);
    if (product.absolute) values[i] = std::abs(values[i]);
  }
  return values;
}

std::vector<float> multiply(const Weights& weights, const Product& product, int threads, std::uint64_t seed) {
  const Context context = new_context();
  ggml_tensor* base = nullptr;
  ggml_tensor* x = activations(context.get(), weights.tensor->ne[0], product, base);
  ggml_tensor* result = ggml_mul_mat(context.get(), weights.tensor, x);
  const Buffer buffer(ggml_backend_alloc_ctx_tensors_from_buft(context.get(), ggml_backend_cpu_buffer_type()));
  const std::vector<float> values = activation_values(static_cast<std::size_t>(ggml_nelements(base)), product, seed);
  ggml_backend_tensor_set(base, values.data(), 0, values.size() * sizeof(float));
  return run(context.get(), result, threads);
}

std::vector<float> rows_of(const Weights& weights, const std::vector<std::int32_t>& rows, int threads) {
  const Context context = new_context();
  ggml_tensor* indices = ggml_new_tensor_1d(context.get(), GGML_TYPE_I32, static_cast<std::int64_t>(rows.size()));
  ggml_tensor* result = ggml_get_rows(context.get(), weights.tensor, indices);
  const Buffer buffer(ggml_backend_alloc_ctx_tensors_from_buft(context.get(), ggml_backend_cpu_buffer_type()));
  ggml_backend_tensor_set(indices, rows.data(), 0, rows.size() * sizeof(std::int32_t));
  return run(context.get(), result, threads);
}

// The same matrix in floats: no rounding of weights or activations. `absolute` takes the weights' absolute values too.
std::vector<float> exact_product(const Shape& shape, const std::vector<std::uint8_t>& blocks, const Product& product,
                                 std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(shape.rows * shape.columns));
  ggml_get_type_traits(static_cast<ggml_type>(shape.type))
      ->to_float(blocks.data(), values.data(), static_cast<std::int64_t>(values.size()));
  if (product.absolute) {
    for (float& value : values) value = std::abs(value);
  }
  Weights weights;
  weights.tensor = ggml_new_tensor_2d(weights.context.get(), GGML_TYPE_F32, shape.columns, shape.rows);
  weights.buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(weights.context.get(), ggml_backend_cpu_buffer_type()));
  ggml_backend_tensor_set(weights.tensor, values.data(), 0, values.size() * sizeof(float));
  return multiply(weights, product, 1, seed);
}

// The largest difference in units of the largest expected value.
double largest_error(const std::vector<float>& expected, const std::vector<float>& actual) {
  EXPECT_EQ(expected.size(), actual.size());
  double top = 0, error = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    top = std::max<double>(top, std::abs(expected[i]));
    if (!std::isfinite(actual[i])) return HUGE_VAL;
    error = std::max<double>(error, std::abs(expected[i] - actual[i]));
  }
  return error / top;
}

double rms_error(const std::vector<float>& expected, const std::vector<float>& actual) {
  double squares = 0, errors = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    squares += static_cast<double>(expected[i]) * expected[i];
    errors += std::pow(static_cast<double>(expected[i]) - actual[i], 2);
  }
  return std::sqrt(errors / squares);
}

// Upstream multiplies these with activations of other rounding (one scale per 256 columns), and their tiles hold scales
// rounded to f16: they are compared on activations that need no rounding.
bool is_k_quant(WeightType type) {
  return type == WeightType::kQ4_K || type == WeightType::kQ6_K;
}

// Q4_1 products need the sum of a block's activations, which upstream rounds to f16.
double tolerance(WeightType type) {
  return type == WeightType::kQ4_1 ? 1e-3 : 1e-5;
}

class Operators : public testing::TestWithParam<WeightType> {
 protected:
  std::vector<std::uint8_t> blocks(const Shape& shape) {
    samples::Random random(samples::seed());
    return samples::random_blocks(random, shape);
  }

  // Byte for byte; of the types whose block scales are chosen anew, the quants.
  static void expect_same_weights(const Shape& shape, const std::vector<std::uint8_t>& expected,
                                  const std::vector<std::uint8_t>& actual) {
    if (layout(shape.type).exact) {
      EXPECT_EQ(actual, expected);
      return;
    }
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      const std::size_t at = static_cast<std::size_t>(r) * shape.block_row_bytes();
      for (std::int64_t k = 0; k < shape.columns; ++k) {
        ASSERT_EQ(samples::block_quant(shape.type, actual.data() + at, k),
                  samples::block_quant(shape.type, expected.data() + at, k))
            << "row " << r << " column " << k;
      }
    }
  }

  void expect_upstreams_product(const Shape& shape, Product product, int threads) {
    SCOPED_TRACE(std::to_string(shape.rows) + " x " + std::to_string(shape.columns) + ", " +
                 std::to_string(product.tokens) + " tokens x " + std::to_string(product.batch) + ", " +
                 std::to_string(threads) + " threads");
    product.integers = is_k_quant(shape.type);
    const std::vector<std::uint8_t> data = blocks(shape);
    const Weights plain(shape, ggml_backend_cpu_buffer_type(), data), tiles(shape, buffer_type(), data);
    const std::uint64_t seed = samples::seed() + 1;
    const std::vector<float> expected = multiply(plain, product, 1, seed);
    const std::vector<float> actual = multiply(tiles, product, threads, seed);
    ASSERT_EQ(actual.size(), expected.size());
    if (!is_k_quant(shape.type)) {
      EXPECT_LE(largest_error(expected, actual), tolerance(shape.type));
      return;
    }
    product.absolute = true;
    const std::vector<float> bound = exact_product(shape, data, product, seed);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_LE(std::abs(expected[i] - actual[i]), 0x1p-10f * bound[i]) << "output " << i;
    }
  }
};

TEST_P(Operators, AProductIsUpstreamsForEveryTokenCountAndTeam) {
  for (const std::int64_t tokens : {1, 2, 7, 48, 130}) {
    for (const int threads : {1, 2, 3, 4}) {
      expect_upstreams_product(Shape{GetParam(), 77, 512}, Product{.tokens = tokens}, threads);
    }
  }
}

TEST_P(Operators, AProductIsUpstreamsForRowsThatEndInsideATile) {
  for (const std::int64_t rows : {1, 8, 31, 32, 33, 64, 300}) {
    for (const std::int64_t tokens : {1, 9, 50}) {
      expect_upstreams_product(Shape{GetParam(), rows, 256}, Product{.tokens = tokens}, 2);
    }
  }
}

TEST_P(Operators, AProductReadsBatchesAndRowsThatLieApart) {
  for (const View view : {View::kContiguous, View::kRowsApart, View::kPermuted}) {
    for (const Product& product :
         {Product{1, 3, view}, Product{5, 1, view}, Product{7, 4, view}, Product{1, 1, view}}) {
      expect_upstreams_product(Shape{GetParam(), 45, 256}, product, 2);
    }
  }
}

TEST_P(Operators, RowsAreWhatUpstreamReads) {
  const Shape shape{GetParam(), 77, 512};
  const std::vector<std::uint8_t> data = blocks(shape);
  const Weights plain(shape, ggml_backend_cpu_buffer_type(), data), tiles(shape, buffer_type(), data);
  const std::vector<std::int32_t> rows = {0, 76, 31, 32, 5, 5, 64, 1};
  const std::vector<float> expected = rows_of(plain, rows, 1);
  for (const int threads : {1, 3}) {
    const std::vector<float> actual = rows_of(tiles, rows, threads);
    if (layout(GetParam()).exact) {
      EXPECT_EQ(actual, expected);
    } else {
      EXPECT_LE(largest_error(expected, actual), 0x1p-10);
    }
  }
}

TEST_P(Operators, ATensorComesBackAsItWasSet) {
  const Shape shape{GetParam(), 77, 256};
  const std::vector<std::uint8_t> data = blocks(shape);
  const Weights tiles(shape, buffer_type(), data);
  const std::vector<std::uint8_t> whole = tiles.read();
  expect_same_weights(shape, data, whole);
  // Pieces that begin and end inside rows and blocks.
  for (const std::size_t offset : {std::size_t{0}, std::size_t{1}, shape.block_row_bytes() + 3}) {
    for (const std::size_t size : {std::size_t{1}, std::size_t{40}, 3 * shape.block_row_bytes() + 5}) {
      std::vector<std::uint8_t> piece(size);
      ggml_backend_tensor_get(tiles.tensor, piece.data(), offset, size);
      EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + static_cast<std::ptrdiff_t>(offset)));
    }
  }
}

TEST_P(Operators, ATensorSetInPiecesIsTheWholeTensor) {
  const Shape shape{GetParam(), 40, 512};
  const std::vector<std::uint8_t> data = blocks(shape);
  const std::size_t step = shape.block_row_bytes() * 3 + 7;
  const Weights tiles(shape, buffer_type());
  for (std::size_t offset = 0; offset < data.size(); offset += step) {
    ggml_backend_tensor_set(tiles.tensor, data.data() + offset, offset, std::min(step, data.size() - offset));
  }
  expect_same_weights(shape, data, tiles.read());
  // A piece of it changes later.
  std::vector<std::uint8_t> changed = data;
  const int block = layout(GetParam()).block_bytes;
  std::rotate(changed.begin(), changed.begin() + block, changed.begin() + 2 * block);
  ggml_backend_tensor_set(tiles.tensor, changed.data(), 0, 2 * static_cast<std::size_t>(block));
  expect_same_weights(shape, changed, tiles.read());
}

TEST_P(Operators, ABufferHasTheSizeOfItsTilesAndIsCounted) {
  const Shape shape{GetParam(), 77, 512};
  const std::uint64_t before = resident_tile_bytes();
  {
    const Weights tiles(shape, buffer_type());
    EXPECT_EQ(ggml_backend_buft_get_alloc_size(buffer_type(), tiles.tensor), shape.bytes());
    EXPECT_EQ(resident_tile_bytes() - before, shape.bytes());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tiles.tensor->data) % kTileAlignment, 0u);
    EXPECT_FALSE(ggml_backend_buffer_is_host(tiles.buffer.get()));
  }
  EXPECT_EQ(resident_tile_bytes(), before);
}

INSTANTIATE_TEST_SUITE_P(Tiles, Operators, testing::ValuesIn(samples::all_types()), samples::name_of);

// The measure of a Q6_K product is the product in floats: one scale per 32 activations is no coarser than upstream's
// one per 256, also when a few activations are large, as they are in real models.
TEST(OperatorsOfQ6K, ErrNoMoreThanUpstream) {
  samples::Random random(samples::seed());
  const Shape shape{WeightType::kQ6_K, 320, 1024};
  const std::vector<std::uint8_t> data = samples::random_blocks(random, shape);
  const Weights plain(shape, ggml_backend_cpu_buffer_type(), data), tiles(shape, buffer_type(), data);
  const Product product{.tokens = 16};
  const std::vector<float> exact = exact_product(shape, data, product, 1);
  const double upstream = rms_error(exact, multiply(plain, product, 1, 1));
  const double ours = rms_error(exact, multiply(tiles, product, 2, 1));
  RecordProperty("upstream_rms_error", std::to_string(upstream));
  RecordProperty("tiles_rms_error", std::to_string(ours));
  EXPECT_LE(ours, upstream);
}

// What the backend is asked before a weight is put into tiles.
class Support : public testing::Test {
 protected:
  bool supports_op(ggml_tensor* op) {
    return ggml_backend_dev_supports_op(ggml_backend_buft_get_device(buffer_type()), op);
  }
  Weights weights_{Shape{WeightType::kQ4_0, 64, 256}, buffer_type()};
  Context context_ = new_context();
};

TEST_F(Support, IsForProductsAndRows) {
  ggml_tensor* x = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, 256, 3);
  ggml_tensor* indices = ggml_new_tensor_1d(context_.get(), GGML_TYPE_I32, 3);
  EXPECT_TRUE(supports_op(ggml_mul_mat(context_.get(), weights_.tensor, x)));
  EXPECT_TRUE(supports_op(ggml_get_rows(context_.get(), weights_.tensor, indices)));
}

TEST_F(Support, IsNotForActivationsOfAnotherTypeOrOtherOperators) {
  ggml_tensor* half = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F16, 256, 3);
  EXPECT_FALSE(supports_op(ggml_mul_mat(context_.get(), weights_.tensor, half)));
  EXPECT_FALSE(supports_op(
      ggml_cpy(context_.get(), weights_.tensor, ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, 256, 64))));
}

TEST_F(Support, EndsWhileUpstreamsOwnLayoutsAreAskedFor) {
  ggml_tensor* x = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, 256, 3);
  ggml_tensor* product = ggml_mul_mat(context_.get(), weights_.tensor, x);
  {
    const WithoutTiles without;
    EXPECT_FALSE(supports_op(product));
  }
  EXPECT_TRUE(supports_op(product));
}

}  // namespace
}  // namespace kazeia::tiles
