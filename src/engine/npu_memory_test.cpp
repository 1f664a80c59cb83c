// One copy of the weights, no copies at a switch, no leak over many.
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "engine/npu_models.h"
#include "ggml.h"
#include "gguf/shapes.h"
#include "gguf/synth.h"
#include "npu/device.h"
#include "npu/gate.h"
#include "npu/shared_memory.h"
#include "tiles/buffer_type.h"
#include "tiles/layout.h"

namespace kazeia {
namespace {

// Kilobytes of a line of /proc/self/status.
std::uint64_t status_kb(const std::string& name) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1));
  }
  return 0;
}

class NpuMemory : public mini::EachModel {};

TEST_P(NpuMemory, HoldsTheWeightsOnce) {
  const auto model = mini::npu_model(GetParam());
  ASSERT_NE(model, nullptr);
  const npu::MemoryCounters counters = npu::memory_counters();
  // The table and the head are the CPU's alone; everything else lies in the shared buffers, once.
  EXPECT_GT(counters.weight_bytes_resident, 0u);
  EXPECT_LE(static_cast<double>(counters.weight_bytes_resident),
            1.05 * static_cast<double>(model->npu_placement().shared_bytes));
  // As the kernel counts it: the driver's memory is shared memory, and holds the weights, the state and the queue.
  const auto timeline = mini::npu_timeline(GetParam());
  ASSERT_NE(timeline, nullptr);
  ASSERT_TRUE(timeline->prefill(mini::long_text(GetParam(), 200)).ok());
  const NpuUse use = timeline->npu_use();
  const std::uint64_t shared = status_kb("RssShmem") * 1024;
  const std::uint64_t queue_bytes = std::uint64_t{44} << 20;
  EXPECT_LE(shared, use.weight_bytes_resident + use.state_bytes_resident + queue_bytes);
  EXPECT_EQ(use.weight_bytes_copied, 0u);
}

TEST_P(NpuMemory, IsReservedForBothProcessorsBeforeTheFirstToken) {
  TimelineOptions options = mini::small_context();
  options.ubatch_tokens = 256;
  const auto timeline = mini::npu_timeline(GetParam(), options);
  ASSERT_NE(timeline, nullptr);
  const std::uint64_t reserved = timeline->npu_use().state_bytes_resident;
  const Tokens text = mini::long_text(GetParam(), 600);
  ASSERT_TRUE(timeline->prefill(text).ok());
  ASSERT_TRUE(timeline->decode(text.back()).ok());
  npu::Guard::declare_failed(npu::FailureKind::kError, "for this test");
  ASSERT_TRUE(timeline->prefill(std::span(text).first(300)).ok());  // wide pieces on the CPU
  // The rows of logits are upstream's to allocate when the first piece asks for two of them.
  const std::uint64_t logits = 2 * sizeof(float) * static_cast<std::uint64_t>(timeline->model().vocabulary_size());
  EXPECT_LE(timeline->npu_use().state_bytes_resident, reserved + logits + 8192);
}

TEST_P(NpuMemory, ChecksEveryMatrixAgainstUpstreamAndTheFile) {
  const auto model = mini::npu_model(GetParam());
  ASSERT_NE(model, nullptr);
  EXPECT_GT(model->npu_placement().checked_matrices, 10u);
}

// Swaps the nibbles of every byte of quants: what a table with the wrong nibble order would pack.
void pack_with_swapped_nibbles(const ggml_tensor* tensor, const void* blocks) {
  tiles::place_tensor(tensor, blocks);
  const auto type = *tiles::weight_type_of(static_cast<std::uint32_t>(tensor->type));
  const tiles::Layout& layout = tiles::layout(type);
  const tiles::Shape shape{type, tensor->ne[1], tensor->ne[0]};
  auto* bytes = static_cast<std::uint8_t*>(tensor->data);
  for (std::size_t tile = 0; tile < shape.bytes(); tile += static_cast<std::size_t>(layout.tile_bytes)) {
    for (int i = 0; i < layout.quant_bytes; ++i) {
      std::uint8_t& byte = bytes[tile + static_cast<std::size_t>(i)];
      byte = static_cast<std::uint8_t>(byte << 4 | byte >> 4);
    }
  }
}

TEST_P(NpuMemory, NoticesALayoutThatIsNotUpstreams) {
  ASSERT_TRUE(npu::Device::open().ok());
  // What Model::load does, with a packer that gets the nibbles wrong.
  ggml_init_params params{ggml_tensor_overhead() * 2, nullptr, true};
  ggml_context* context = ggml_init(params);
  ggml_tensor* matrix = ggml_new_tensor_2d(context, GGML_TYPE_Q4_0, 256, 64);
  ggml_set_name(matrix, "blk.0.attn_q.weight");
  ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(context, npu::weights_type());
  ASSERT_NE(buffer, nullptr);
  ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  std::vector<std::uint8_t> blocks(ggml_nbytes(matrix));
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::uint8_t>(i * 37 % 251);
  {
    const npu::WeightLoad right;
    ggml_backend_tensor_set(matrix, blocks.data(), 0, blocks.size());
    // And the counter of copies counts: what is read out of the shared weights is a copy.
    std::vector<std::uint8_t> copy(blocks.size());
    ggml_backend_tensor_get(matrix, copy.data(), 0, copy.size());
    EXPECT_EQ(copy, blocks);
    EXPECT_EQ(npu::memory_counters().weight_bytes_copied, blocks.size());
    EXPECT_TRUE(right.check().agrees());
    EXPECT_EQ(right.check().matrices, 1u);
  }
  {
    const npu::WeightLoad wrong(pack_with_swapped_nibbles);
    ggml_backend_tensor_set(matrix, blocks.data(), 0, blocks.size());
    EXPECT_FALSE(wrong.check().agrees());
    ASSERT_EQ(wrong.check().mismatched.size(), 1u);
    EXPECT_EQ(wrong.check().mismatched[0], "blk.0.attn_q.weight");
  }
  ggml_backend_buffer_free(buffer);
  ggml_free(context);
}

// Upstream keeps a record per tensor of every graph that it ever planned in a buffer. Ours are reused.
TEST_P(NpuMemory, StaysTheSameOverTenThousandSwitches) {
  TimelineOptions options = mini::small_context(512);
  options.npu.witness = Witness::kNever;
  const auto timeline = mini::npu_timeline(GetParam(), options);
  ASSERT_NE(timeline, nullptr);
  const Tokens text = mini::long_text(GetParam(), 33);
  const std::span<const Token> prompt = std::span(text).first(32);
  const auto turn = [&] {
    timeline->reset();
    ASSERT_TRUE(timeline->prefill(prompt).ok());
    ASSERT_TRUE(timeline->decode(text.back()).ok());
  };
  for (int i = 0; i < 200; ++i) turn();
  const std::uint64_t records = timeline->npu_use().tensor_records;
  const std::uint64_t resident = status_kb("VmRSS");
  const std::uint64_t switches = timeline->npu_use().switches;
  const char* scale = std::getenv("KAZEIA_TEST_SCALE");
  const int turns = scale != nullptr ? static_cast<int>(5000 * std::atof(scale)) : 5000;
  for (int i = 0; i < turns; ++i) turn();
  const NpuUse use = timeline->npu_use();
  EXPECT_GE(use.switches - switches, static_cast<std::uint64_t>(turns) * 2 - 2);
  EXPECT_EQ(use.tensor_records, records);
  EXPECT_LE(status_kb("VmRSS"), resident + 2048);
  EXPECT_EQ(use.weight_bytes_copied, 0u);
  EXPECT_EQ(use.failure, "");
  RecordProperty("switch_us_mean", std::to_string(use.switch_us_mean));
}

// As above with the tensors of a real model, several buffers and a table of 248k rows. What it says is noise, and so is
// what the emulated device costs.
TEST(NpuMemoryOfARealShape, HoldsTheWeightsOfA800MModelOnce) {
  const std::string file = mini::own_path("qwen3.5-0.8b.gguf");
  const auto written = gguf::write_synthetic(*gguf::find_shape("qwen3.5-0.8b"), file, {});
  ASSERT_TRUE(written.ok()) << written.error().sentence();
  const auto loaded = mini::try_load_npu(file);
  ASSERT_TRUE(loaded.ok()) << loaded.error().sentence();
  const npu::MemoryCounters counters = npu::memory_counters();
  EXPECT_GT((*loaded)->npu_placement().shared_bytes, std::uint64_t{200} << 20);
  EXPECT_LE(static_cast<double>(counters.weight_bytes_resident),
            1.05 * static_cast<double>((*loaded)->npu_placement().shared_bytes));
  EXPECT_TRUE((*loaded)->npu_placement().refused.empty());
  auto timeline = Timeline::create(*loaded, mini::small_context(256));
  ASSERT_TRUE(timeline.ok()) << timeline.error().sentence();
  Tokens text(40);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<Token>(1000 + i * 37);
  ASSERT_TRUE((*timeline)->prefill(text).ok());
  ASSERT_TRUE((*timeline)->decode(text.back()).ok());
  const NpuUse use = (*timeline)->npu_use();
  EXPECT_EQ(use.failure, "");
  EXPECT_EQ(use.prefill_tokens, 40u);
  EXPECT_EQ(use.weight_bytes_copied, 0u);
  // The file's pages are gone; what is resident is the driver's memory and the table in tiles.
  const std::uint64_t shared = status_kb("RssShmem") * 1024;
  EXPECT_LE(shared, use.weight_bytes_resident + use.state_bytes_resident + (std::uint64_t{44} << 20));
}

INSTANTIATE_TEST_SUITE_P(Engine, NpuMemory, testing::Values(mini::kDense, mini::kHybrid), mini::model_test_name);

}  // namespace
}  // namespace kazeia
