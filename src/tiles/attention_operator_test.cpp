// FLASH_ATTN_EXT as ggml's CPU backend runs it, with our kernels and with its own.
#include "tiles/attention_operator.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "tiles/buffer_type.h"

namespace kazeia::tiles {
namespace {

struct Free {
  void operator()(ggml_context* context) const { ggml_free(context); }
  void operator()(ggml_backend_buffer* buffer) const { ggml_backend_buffer_free(buffer); }
  void operator()(ggml_backend* backend) const { ggml_backend_free(backend); }
};

struct Shape {
  std::int64_t heads = 8, kv_heads = 2, dimension = 256, positions = 512, rows = 1;
  bool mask = true;
  ggml_type cache = GGML_TYPE_F16;
  float bias = 0, soft_cap = 0;
  bool sinks = false;
};

// One attention as llama.cpp builds it: views of a cache in which the heads of a position lie side by side.
class Graph {
 public:
  explicit Graph(const Shape& shape) : context_(ggml_init({1 << 20, nullptr, true})) {
    register_buffer_type();
    ggml_context* context = context_.get();
    ggml_tensor* q = ggml_new_tensor_3d(context, GGML_TYPE_F32, shape.dimension, shape.heads, shape.rows);
    ggml_tensor* k = ggml_new_tensor_3d(context, shape.cache, shape.dimension, shape.kv_heads, shape.positions);
    ggml_tensor* v = ggml_new_tensor_3d(context, shape.cache, shape.dimension, shape.kv_heads, shape.positions);
    ggml_tensor* mask = nullptr;
    if (shape.mask) mask = ggml_new_tensor_2d(context, GGML_TYPE_F16, shape.positions, shape.rows);
    ggml_tensor* sinks = nullptr;
    if (shape.sinks) sinks = ggml_new_tensor_1d(context, GGML_TYPE_F32, shape.heads);
    const auto turned = [&](ggml_tensor* tensor) { return ggml_permute(context, tensor, 0, 2, 1, 3); };
    result_ = ggml_flash_attn_ext(context, turned(q), turned(k), turned(v), mask,
                                  1 / std::sqrt(static_cast<float>(shape.dimension)), shape.bias, shape.soft_cap);
    if (sinks != nullptr) ggml_flash_attn_ext_add_sinks(result_, sinks);
    graph_ = ggml_new_graph(context);
    ggml_build_forward_expand(graph_, result_);
    buffer_.reset(ggml_backend_alloc_ctx_tensors_from_buft(context, ggml_backend_cpu_buffer_type()));
    for (ggml_tensor* tensor : {q, k, v, sinks}) {
      if (tensor != nullptr) fill(tensor);
    }
    if (mask != nullptr) hide_the_future(mask);
  }

  ggml_tensor* op() { return result_; }

  // With our kernels, upstream's, or without anybody having said anything.
  std::vector<float> run(std::optional<bool> own, int threads = 2) {
    const std::unique_ptr<ggml_backend, Free> backend(ggml_backend_cpu_init());
    ggml_backend_cpu_set_n_threads(backend.get(), threads);
    std::optional<AttentionChoice> choice;
    if (own) choice.emplace(*own);
    EXPECT_EQ(ggml_backend_graph_compute(backend.get(), graph_), GGML_STATUS_SUCCESS);
    std::vector<float> values(static_cast<std::size_t>(ggml_nelements(result_)));
    ggml_backend_tensor_get(result_, values.data(), 0, values.size() * sizeof(float));
    return values;
  }

 private:
  void fill(ggml_tensor* tensor) {
    std::vector<float> values(static_cast<std::size_t>(ggml_nelements(tensor)));
    for (float& value : values) value = normal_(random_);
    if (tensor->type == GGML_TYPE_F32) {
      ggml_backend_tensor_set(tensor, values.data(), 0, values.size() * sizeof(float));
      return;
    }
    std::vector<std::uint8_t> bytes(ggml_nbytes(tensor));
    ggml_quantize_chunk(tensor->type, values.data(), bytes.data(), 0, ggml_nrows(tensor), tensor->ne[0], nullptr);
    ggml_backend_tensor_set(tensor, bytes.data(), 0, bytes.size());
  }
  // Row r ends a tenth of the cache before its end, with some older positions left out.
  static void hide_the_future(ggml_tensor* mask) {
    std::vector<ggml_fp16_t> values;
    for (std::int64_t r = 0; r < mask->ne[1]; ++r) {
      for (std::int64_t p = 0; p < mask->ne[0]; ++p) {
        const bool hidden = p > mask->ne[0] * 9 / 10 - mask->ne[1] + r || p % 97 == 13;
        values.push_back(ggml_fp32_to_fp16(hidden ? -std::numeric_limits<float>::infinity() : 0));
      }
    }
    ggml_backend_tensor_set(mask, values.data(), 0, values.size() * sizeof(ggml_fp16_t));
  }

  std::mt19937_64 random_{20};
  std::normal_distribution<float> normal_;
  std::unique_ptr<ggml_context, Free> context_;
  std::unique_ptr<ggml_backend_buffer, Free> buffer_;
  ggml_cgraph* graph_ = nullptr;
  ggml_tensor* result_ = nullptr;
};

double largest_error(const std::vector<float>& expected, const std::vector<float>& actual) {
  double top = 0, error = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    top = std::max<double>(top, std::abs(expected[i]));
    if (!std::isfinite(actual[i])) return HUGE_VAL;
    error = std::max<double>(error, std::abs(expected[i] - actual[i]));
  }
  return error / top;
}

TEST(AttentionOperator, AgreesWithUpstreamsUpToItsF16Sums) {
  for (const Shape& shape : {Shape{}, Shape{.heads = 16, .kv_heads = 8, .dimension = 128, .positions = 2304},
                             Shape{.positions = 256, .rows = 5}, Shape{.heads = 4, .kv_heads = 4, .dimension = 64},
                             Shape{.mask = false}, Shape{.heads = 16, .kv_heads = 1, .positions = 768, .rows = 8},
                             Shape{.rows = 9}, Shape{.heads = 16, .kv_heads = 4, .positions = 1024, .rows = 130},
                             Shape{.heads = 32, .kv_heads = 8, .dimension = 128, .positions = 640, .rows = 512}}) {
    SCOPED_TRACE(testing::Message() << shape.heads << " on " << shape.kv_heads << " of " << shape.dimension << ", "
                                    << shape.rows << " rows on " << shape.positions);
    Graph graph(shape);
    ASSERT_TRUE(is_attention(graph.op()));
    const std::vector<float> upstream = graph.run(false), ours = graph.run(true);
    EXPECT_NE(upstream, ours) << "the same kernels were at work";
    EXPECT_LT(largest_error(upstream, ours), 2e-2);
  }
}

TEST(AttentionOperator, HasTheSameBitsForAnyNumberOfThreads) {
  for (const std::int64_t rows : {2, 100}) {
    Graph graph({.positions = 1280, .rows = rows});
    const std::vector<float> one = graph.run(true, 1);
    for (int threads = 2; threads <= 8; ++threads) EXPECT_EQ(graph.run(true, threads), one) << threads;
  }
}

TEST(AttentionOperator, IsUpstreamsIfNobodyChoseOtherwise) {
  Graph graph({});
  const std::vector<float> upstream = graph.run(false);
  EXPECT_EQ(graph.run(std::nullopt), upstream);
  EXPECT_NE(graph.run(true), upstream);
  EXPECT_EQ(graph.run(std::nullopt), upstream) << "the choice outlived its scope";
}

TEST(AttentionOperator, IsChosenByEachThreadForItself) {
  Graph ours({}), theirs({});
  const std::vector<float> expected = ours.run(true), upstream = theirs.run(false);
  std::thread other([&] {
    for (int i = 0; i < 20; ++i) EXPECT_EQ(theirs.run(std::nullopt), upstream);
  });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(ours.run(true), expected);
  other.join();
}

TEST(AttentionOperator, LeavesToUpstreamWhatItCannotDo) {
  for (const Shape& shape :
       {Shape{.heads = 97, .kv_heads = 1, .dimension = 64, .rows = 9}, Shape{.dimension = 80},
        Shape{.cache = GGML_TYPE_Q8_0}, Shape{.bias = 8}, Shape{.soft_cap = 30}, Shape{.sinks = true}}) {
    Graph graph(shape);
    EXPECT_FALSE(is_attention(graph.op()));
    EXPECT_EQ(graph.run(true), graph.run(false));
  }
}

}  // namespace
}  // namespace kazeia::tiles
