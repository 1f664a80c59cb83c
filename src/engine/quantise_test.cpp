#include "engine/quantise.h"

#include <cstring>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/mini_models.h"
#include "engine/prepared_models.h"
#include "ggml.h"
#include "gguf/loadable.h"
#include "gguf/preparation.h"
#include "gguf/test_file.h"
#include "tiles/layout.h"

namespace kazeia {
namespace {

using gguf::TypeId;
using ::testing::HasSubstr;

gguf::ModelFile open(const std::string& path) {
  Result<gguf::ModelFile> model = gguf::open_gguf(path);
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().sentence());
  return *std::move(model);
}

std::string data_of(const gguf::ModelFile& model, const gguf::Tensor& tensor) {
  for (const gguf::File& part : model.parts()) {
    if (part.find_tensor(tensor.name) == nullptr) continue;
    const auto bytes = part.data(*part.find_tensor(tensor.name));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  ADD_FAILURE() << tensor.name;
  return {};
}

// The plan may not include the tiles or ggml, so it has a list of its own.
TEST(Preparation, RefusesForTheNpuWhatHasNoTileLayoutAndIsNotAPlainFloat) {
  gguf::Tensor matrix;
  matrix.name = "blk.0.attn_q.weight";
  matrix.dimension_count = 2;
  matrix.dims = {256, 8, 1, 1};
  for (const gguf::TensorType& type : gguf::all_tensor_types()) {
    const bool plain = type.id == TypeId::kF16 || type.id == TypeId::kF32;
    matrix.type = &type;
    if (gguf::tensor_role(matrix) != gguf::TensorRole::kMatrix) continue;  // integers
    EXPECT_EQ(gguf::npu_refusal(matrix, type.id).empty(),
              plain || tiles::weight_type_of(static_cast<std::uint32_t>(type.id)).has_value())
        << type.name;
  }
}

class EachF16 : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(EachF16, BecomesWhatUpstreamsOwnQuantiserMadeOfIt) {
  const gguf::TestFolder folder;
  const Status made = mini::prepare(mini::path(GetParam().first), folder.at("m.gguf"));
  ASSERT_TRUE(made.ok()) << made.error().sentence();
  const gguf::ModelFile ours = open(folder.at("m.gguf"));
  const gguf::ModelFile shipped = open(mini::path(GetParam().second));  // made by upstream's program
  ASSERT_EQ(ours.metadata().tensors().size(), shipped.metadata().tensors().size());
  for (const gguf::Tensor& tensor : ours.metadata().tensors()) {
    const gguf::Tensor* theirs = shipped.metadata().find_tensor(tensor.name);
    ASSERT_NE(theirs, nullptr) << tensor.name;
    EXPECT_EQ(tensor.type->name, theirs->type->name) << tensor.name;
    EXPECT_EQ(data_of(ours, tensor), data_of(shipped, *theirs)) << tensor.name;
  }
}

TEST_P(EachF16, IsPreparedFromEveryType) {
  // One that must be refused could not be quantised without an importance matrix.
  const gguf::TestFolder folder;
  int tried = 0;
  for (const gguf::TensorType& type : gguf::all_tensor_types()) {
    const auto ggml = static_cast<ggml_type>(type.id);
    const bool float_or_readable = type.block_elements == 1 || ggml_get_type_traits(ggml)->to_float != nullptr;
    const bool number = type.id < TypeId::kI8 || type.id > TypeId::kF64;
    if (!float_or_readable || !number || ggml_quantize_requires_imatrix(ggml)) continue;
    ++tried;
    const std::string source = folder.at("source.gguf");
    ASSERT_TRUE(mini::convert(mini::path(GetParam().first), source, type.id).ok()) << type.name;
    const Status made = mini::prepare(source, folder.at("m.gguf"));
    ASSERT_TRUE(made.ok()) << type.name << ": " << made.error().sentence();
    const gguf::ModelFile before = open(source);
    const gguf::ModelFile after = open(folder.at("m.gguf"));
    ASSERT_TRUE(gguf::check_loadable(after.parts()).ok()) << type.name;
    for (const gguf::Tensor& tensor : after.metadata().tensors()) {
      const gguf::Tensor& was = *before.metadata().find_tensor(tensor.name);
      const bool table = tensor.name == "token_embd.weight";
      const bool vector = was.type->id == TypeId::kF32 && gguf::tensor_role(was) != gguf::TensorRole::kMatrix && !table;
      const TypeId expected = vector ? TypeId::kF32 : table ? TypeId::kQ6_K : TypeId::kQ4_0;
      EXPECT_EQ(tensor.type->id, expected) << type.name << " " << tensor.name;
      if (expected == was.type->id) {
        EXPECT_EQ(data_of(after, tensor), data_of(before, was)) << type.name << " " << tensor.name;
      } else {
        EXPECT_EQ(data_of(after, tensor), mini::quantised_whole(before.metadata(), was, expected))
            << type.name << " " << tensor.name;
      }
    }
  }
  EXPECT_GE(tried, 18);
}

INSTANTIATE_TEST_SUITE_P(Quantise, EachF16,
                         testing::Values(std::pair(mini::kHybridF16, mini::kHybrid),
                                         std::pair(mini::kDenseF16, mini::kDense)),
                         [](const auto& one) { return one.index == 0 ? "Hybrid" : "Dense"; });

TEST(Quantise, GivesAModelThatAnswersAsBefore) {
  const gguf::TestFolder folder;
  for (const TypeId type : {TypeId::kF16, TypeId::kBF16, TypeId::kQ8_0, TypeId::kQ4_K, mini::kQ5_K, TypeId::kQ6_K}) {
    ASSERT_TRUE(mini::convert(mini::path(mini::kHybridF16), folder.at("source.gguf"), type).ok());
    ASSERT_TRUE(mini::prepare(folder.at("source.gguf"), folder.at("m.gguf")).ok());
    const auto model = Model::load(folder.at("m.gguf"), {});
    ASSERT_TRUE(model.ok()) << model.error().sentence();
    EXPECT_EQ((*model)->tile_bytes() > 0, true);
    const auto timeline = Timeline::create(*model, mini::small_context());
    const auto sampler = Sampler::create(*model, mini::greedy());
    ASSERT_TRUE(timeline.ok() && sampler.ok());
    const Tokens prompt = mini::tokens(mini::kHybrid, mini::question("What is the capital of Norway?"));
    ASSERT_TRUE((*timeline)->prefill(prompt).ok());
    const auto answer = generate(**timeline, **sampler, {}, {});
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->text, "The capital of Norway is Oslo.") << gguf::tensor_type(type).name;
  }
}

TEST(Quantise, WritesTheSameBytesWithAnyNumberOfThreads) {
  const gguf::TestFolder folder;
  QuantiseOptions options;
  for (const int threads : {1, 2, 5}) {
    options.threads = threads;
    ASSERT_TRUE(mini::prepare(mini::path(mini::kHybridF16), folder.at(std::to_string(threads)), options).ok());
  }
  EXPECT_EQ(gguf::file_text(folder.at("1")), gguf::file_text(folder.at("2")));
  EXPECT_EQ(gguf::file_text(folder.at("1")), gguf::file_text(folder.at("5")));
}

TEST(Quantise, CopiesAPreparedModelByteForByte) {
  const gguf::TestFolder folder;
  ASSERT_TRUE(mini::prepare(mini::path(mini::kHybrid), folder.at("m.gguf")).ok());
  const gguf::ModelFile before = open(mini::path(mini::kHybrid));
  const gguf::ModelFile after = open(folder.at("m.gguf"));
  for (const gguf::Tensor& tensor : after.metadata().tensors()) {
    EXPECT_EQ(data_of(after, tensor), data_of(before, tensor)) << tensor.name;
  }
}

TEST(Quantise, RefusesAWeightThatIsNotANumber) {
  const gguf::TestFolder folder;
  for (const std::uint16_t bad : std::initializer_list<std::uint16_t>{0x7E00, 0xFC00}) {  // NaN, -infinity as f16
    std::string bytes = gguf::file_text(mini::path(mini::kHybridF16));
    const gguf::ModelFile model = open(mini::path(mini::kHybridF16));
    const gguf::Tensor& tensor = *model.metadata().find_tensor("blk.3.ffn_up.weight");
    std::memcpy(bytes.data() + tensor.offset + 2 * 777, &bad, 2);
    folder.put("bad.gguf", bytes);
    const Status made = mini::prepare(folder.at("bad.gguf"), folder.at("m.gguf"));
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code(), ErrorCode::kFile);
    EXPECT_THAT(made.error().sentence(), HasSubstr("'blk.3.ffn_up.weight' holds values that are not finite"));
    EXPECT_EQ(folder.count(), 1u);
  }
}

TEST(Quantise, LeavesNothingBehindWhenCancelled) {
  const gguf::TestFolder folder;
  CancelFlag cancel;
  QuantiseOptions options;
  options.cancel = &cancel;
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_LE(done, total);
    cancel.request();
  };
  const Status made = mini::prepare(mini::path(mini::kDenseF16), folder.at("m.gguf"), options);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code(), ErrorCode::kCancelled);
  EXPECT_EQ(folder.count(), 0u);
}

TEST(Quantise, ReadsEveryTypeThatAPlanAllows) {
  for (const gguf::TensorType& type : gguf::all_tensor_types()) {
    const std::string bytes =
        gguf::TestFile().tensor("blk.0.attn_q.weight", {256, 2}, static_cast<std::uint32_t>(type.id)).bytes();
    const Result<gguf::File> file = gguf::parse(gguf::view(bytes));
    ASSERT_TRUE(file.ok()) << type.name;
    const Result<gguf::Preparation> plan = gguf::plan_preparation({&*file, 1}, {});
    if (!plan.ok() || !plan->tensors[0].changes() || type.id == TypeId::kF32) continue;
    EXPECT_NE(ggml_get_type_traits(static_cast<ggml_type>(type.id))->to_float, nullptr) << type.name;
  }
}

}  // namespace
}  // namespace kazeia
