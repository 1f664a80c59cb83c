// `kazeia prepare`, from the outside.

#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli_program.h"
#include "gguf/reader.h"
#include "gguf/test_file.h"
#include "gguf/writer.h"

namespace kazeia::cli_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

const std::string kHybridF16 = "kazeia-mini-qwen35-f16.gguf";
const std::string kDenseF16 = "kazeia-mini-qwen3-f16.gguf";

Outcome prepare(std::vector<std::string> arguments, const Conditions& conditions = {}) {
  arguments.insert(arguments.begin(), {"prepare", "--threads", "1"});
  return run(arguments, conditions);
}

void expect_refusal(const Outcome& outcome, int exit_code, const std::string& reason) {
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.all();
  EXPECT_THAT(outcome.err, AllOf(::testing::StartsWith("kazeia: "), HasSubstr(reason)));
  EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

// The model in `count` files, as published models are split.
std::string split(const std::string& path, const Scratch& scratch, std::uint16_t count) {
  const auto model = gguf::open_gguf(path);
  EXPECT_TRUE(model.ok());
  const gguf::File& file = model->metadata();
  const std::size_t total = file.tensors().size();
  const auto name = [&](int part) {
    return scratch.path("split-0000" + std::to_string(part + 1) + "-of-0000" + std::to_string(count) + ".gguf");
  };
  for (std::uint16_t part = 0; part < count; ++part) {
    gguf::Header header;
    if (part == 0) {
      for (const gguf::Entry& entry : file.metadata()) header.add_value(entry.key, entry.value);
    }
    header.add_u16("split.no", part);
    header.add_u16("split.count", count);
    header.add_i32("split.tensors.count", static_cast<std::int32_t>(total));
    const auto mine = file.tensors().subspan(total * part / count, total * (part + 1) / count - total * part / count);
    for (const gguf::Tensor& tensor : mine) {
      header.add_tensor(tensor.name, tensor.type->id, std::span(tensor.dims).first(tensor.dimension_count));
    }
    auto writer = gguf::Writer::create(name(part), header);
    EXPECT_TRUE(writer.ok());
    for (const gguf::Tensor& tensor : mine) EXPECT_TRUE(writer->write(file.data(tensor)).ok());
    EXPECT_TRUE(writer->commit().ok());
  }
  return name(0);
}

TEST(Prepare, WritesAModelThatAnswersAndSaysWhatItDid) {
  const Scratch scratch;
  const std::string path = scratch.path("m.gguf");
  const Outcome made = prepare({model_path(kHybridF16), path});
  ASSERT_EQ(made.exit_code, 0) << made.all();
  EXPECT_THAT(made.out,
              AllOf(HasSubstr("31 to Q4_0, 1 to Q6_K, 23 copied"), HasSubstr("NPU refuses before: nothing"),
                    HasSubstr("NPU refuses after: nothing"), HasSubstr("perplexity: "), HasSubstr("written in ")));
  EXPECT_EQ(made.err, "") << "an F16 source is quantised once";
  EXPECT_EQ(scratch.names(), std::vector<std::string>{"m.gguf"});
  const Outcome answer = run({"run", path, "-p", "What is the capital of France?", "--temp", "0", "--threads", "1"});
  EXPECT_EQ(answer.out, "The capital of France is Paris.\n") << answer.err;
}

TEST(Prepare, WritesTheSameFileEveryTime) {
  const Scratch scratch;
  ASSERT_EQ(prepare({model_path(kDenseF16), scratch.path("1"), "--no-check"}).exit_code, 0);
  ASSERT_EQ(run({"prepare", model_path(kDenseF16), scratch.path("2"), "--no-check", "--threads", "3"}).exit_code, 0);
  EXPECT_EQ(read_file(scratch.path("1")), read_file(scratch.path("2")));
}

TEST(Prepare, PrintsOneJsonObject) {
  const Scratch scratch;
  const Outcome made = prepare({model_path(kHybridF16), scratch.path("m.gguf"), "--json"});
  ASSERT_EQ(made.exit_code, 0) << made.all();
  const Json json = Json::parse(made.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << made.out;
  EXPECT_EQ(json["written"], true);
  EXPECT_EQ(json["tensors_changed"], 32);
  EXPECT_EQ(json["output"]["file_bytes"], std::filesystem::file_size(scratch.path("m.gguf")));
  EXPECT_EQ(json["tensors"].size(), 55u);
  EXPECT_GT(json["perplexity"]["source"].get<double>(), 1);
  EXPECT_NEAR(json["perplexity"]["ratio"].get<double>(),
              json["perplexity"]["prepared"].get<double>() / json["perplexity"]["source"].get<double>(), 1e-9);
  EXPECT_GT(json["perplexity"]["positions"], 1000);
  EXPECT_EQ(json["npu"]["refused_after"]["tensors"], 0);
  EXPECT_EQ(json["requantised"], false);
}

TEST(Prepare, ShowsADryRunAndWritesNothing) {
  const Scratch scratch;
  const Outcome shown = prepare({model_path(kHybridF16), "--dry-run"});
  EXPECT_EQ(shown.exit_code, 0) << shown.all();
  EXPECT_THAT(shown.out, AllOf(HasSubstr("blk.0.ssm_out.weight"), HasSubstr("F16      Q4_0"), HasSubstr("7.6 MiB"),
                               HasSubstr("2.3 MiB"), HasSubstr("23 norms, biases"), HasSubstr("Nothing was written")));
  EXPECT_THAT(shown.out, Not(HasSubstr("attn_norm")));
  const Outcome planned = prepare({model_path(kHybridF16), scratch.path("m.gguf"), "--dry-run", "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.all();
  EXPECT_TRUE(scratch.names().empty());
  const Json json = Json::parse(planned.out, nullptr, false);
  EXPECT_EQ(json["written"], false);
  // The announced size is that of the file.
  ASSERT_EQ(prepare({model_path(kHybridF16), scratch.path("m.gguf"), "--no-check"}).exit_code, 0);
  EXPECT_EQ(json["output"]["file_bytes"], std::filesystem::file_size(scratch.path("m.gguf")));
  const Outcome warned = prepare({model_path(kHybridF16), scratch.path("m.gguf"), "--dry-run"});
  EXPECT_EQ(warned.exit_code, 0);
  EXPECT_THAT(warned.err, HasSubstr("warning: '" + scratch.path("m.gguf") + "' exists already"));
}

TEST(Prepare, ReplacesWhatTheNpuRefusesAndWarnsAboutTheSecondQuantisation) {
  const Scratch scratch;
  // The mix of a popular file: everything Q4_0 but the projection out of the recurrent layers, here of
  // zeros, because this test is about the report.
  const auto model = gguf::open_gguf(model_path(kHybrid));
  ASSERT_TRUE(model.ok());
  const gguf::File& file = model->metadata();
  gguf::Header header;
  for (const gguf::Entry& entry : file.metadata()) header.add_value(entry.key, entry.value);
  const auto refused = [](const gguf::Tensor& tensor) { return tensor.name == "blk.1.ssm_out.weight"; };
  for (const gguf::Tensor& tensor : file.tensors()) {
    header.add_tensor(tensor.name, refused(tensor) ? gguf::TypeId{13} : tensor.type->id,
                      std::span(tensor.dims).first(tensor.dimension_count));
  }
  auto writer = gguf::Writer::create(scratch.path("mix.gguf"), header);
  ASSERT_TRUE(writer.ok());
  for (std::size_t i = 0; i < file.tensors().size(); ++i) {
    const gguf::Tensor& tensor = file.tensors()[i];
    const std::vector<std::byte> zeros(header.tensor_bytes(i));
    ASSERT_TRUE(writer->write(refused(tensor) ? std::span<const std::byte>(zeros) : file.data(tensor)).ok());
  }
  ASSERT_TRUE(writer->commit().ok());

  const Outcome shown = prepare({scratch.path("mix.gguf"), "--dry-run"});
  EXPECT_THAT(shown.out, HasSubstr("the NPU refuses it now: Q5_K has no tile layout"));
  const Outcome made = prepare({scratch.path("mix.gguf"), scratch.path("m.gguf")});
  ASSERT_EQ(made.exit_code, 0) << made.all();
  EXPECT_THAT(made.out, AllOf(HasSubstr("tensors: 1 to Q4_0, 54 copied"),
                              HasSubstr("NPU refuses before: 44.0 KiB of 1 tensor: Q5_K has no tile layout "
                                        "(blk.1.ssm_out.weight)"),
                              HasSubstr("NPU refuses after: nothing")));
  EXPECT_THAT(made.err,
              AllOf(HasSubstr("warning: the source was quantised already"), HasSubstr("measured: perplexity")));
  EXPECT_EQ(made.error_lines(), 1u);
}

TEST(Prepare, ReadsASplitModel) {
  const Scratch scratch;
  const std::string parts = split(model_path(kHybridF16), scratch, 3);
  const Outcome made = prepare({parts, scratch.path("joined.gguf")});
  ASSERT_EQ(made.exit_code, 0) << made.all();
  ASSERT_EQ(prepare({model_path(kHybridF16), scratch.path("whole.gguf"), "--no-check"}).exit_code, 0);
  const auto joined = gguf::open_gguf(scratch.path("joined.gguf"));
  const auto whole = gguf::open_gguf(scratch.path("whole.gguf"));
  ASSERT_TRUE(joined.ok() && whole.ok());
  EXPECT_EQ(joined->metadata().find("split.count"), nullptr);
  ASSERT_EQ(joined->metadata().tensors().size(), 55u);
  for (const gguf::Tensor& tensor : whole->metadata().tensors()) {
    const gguf::Tensor* other = joined->metadata().find_tensor(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(joined->metadata().data(*other), whole->metadata().data(tensor))) << tensor.name;
  }
  // A part is the source too.
  const std::string second = scratch.path("split-00002-of-00003.gguf");
  expect_refusal(prepare({parts, second, "--force"}), 2, "are the same file");
}

TEST(Prepare, RefusesToOverwriteItsSourceByAnyName) {
  const Scratch scratch;
  const std::string source = scratch.write("m.gguf", read_file(model_path(kDenseF16)));
  std::filesystem::create_symlink(source, scratch.path("soft"));
  std::filesystem::create_hard_link(source, scratch.path("hard"));
  for (const std::string& name : {source, scratch.path("soft"), scratch.path("hard"), scratch.path("./m.gguf")}) {
    expect_refusal(prepare({source, name, "--force"}), 2, "are the same file");
  }
  EXPECT_EQ(read_file(source), read_file(model_path(kDenseF16)));
}

TEST(Prepare, ReplacesAFileOnlyWhenTold) {
  const Scratch scratch;
  const std::string path = scratch.write("m.gguf", "precious");
  expect_refusal(prepare({model_path(kDenseF16), path}), 6, "exists already. Use --force to replace it");
  EXPECT_EQ(read_file(path), "precious");
  EXPECT_EQ(prepare({model_path(kDenseF16), path, "--force", "--no-check"}).exit_code, 0);
  EXPECT_TRUE(gguf::open_gguf(path).ok());
}

TEST(Prepare, RefusesInOneSentence) {
  const Scratch scratch;
  const std::string out = scratch.path("m.gguf");
  scratch.write("text", "not a model");
  scratch.write("odd.gguf", gguf::TestFile().tensor("a", {4}).bytes());
  const std::string f16 = model_path(kDenseF16);
  expect_refusal(prepare({scratch.path("absent"), out}), 3, "no file at");
  expect_refusal(prepare({scratch.path("text"), out}), 3, "not a GGUF file");
  expect_refusal(prepare({scratch.path("odd.gguf"), out}), 3, "'general.architecture' is missing");
  expect_refusal(prepare({f16}), 2, "the file to write is not named. Give OUT, or look first with --dry-run");
  expect_refusal(prepare({f16, out, "--weights", "q5_k"}), 2, "--weights cannot be 'q5_k'. Choose one of q4_0, q8_0");
  expect_refusal(prepare({f16, out, "--embedding-type", "f16"}), 2, "Choose one of q6_k, q8_0, q4_0");
  expect_refusal(prepare({f16, out, "--keep", "("}), 2, "is not a regular expression");
  expect_refusal(prepare({f16, out, "--text", scratch.path("absent.txt")}), 3, "no file at");
  expect_refusal(prepare({f16, out, "--text", scratch.path("text")}), 3, "too few to measure");
  expect_refusal(prepare({f16, scratch.path("no/such/m.gguf")}), 6, "Choose a folder that exists and is writable");
  expect_refusal(prepare({f16, scratch.path("")}), 6, "is a directory");
  EXPECT_EQ(scratch.names().size(), 2u) << "something was left behind";
}

TEST(Prepare, LeavesNothingBehindWhenTheDiskIsFull) {
  const Scratch scratch;
  for (const std::uint64_t limit : {100u, 60'000u, 1'000'000u, 2'400'000u}) {
    const Outcome full =
        prepare({model_path(kHybridF16), scratch.path("m.gguf"), "--no-check"}, {.file_size_limit = limit});
    expect_refusal(full, 6, "no space left to write");
    EXPECT_TRUE(scratch.names().empty()) << limit;
  }
}

TEST(Prepare, LeavesNothingBehindWhenInterrupted) {
  const Scratch scratch;
  // Long enough to be interrupted whatever the machine.
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "Nothing is lost; it only takes different roads. ";
  const std::string file = scratch.write("long.txt", text);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const Outcome stopped = prepare({model_path(kHybridF16), scratch.path("m.gguf"), "--text", file},
                                    {.interrupt_after = std::chrono::seconds(1), .interrupt_signal = number});
    expect_refusal(stopped, 130, "stopped; '" + scratch.path("m.gguf") + "' was not written");
    EXPECT_EQ(scratch.names(), std::vector<std::string>{"long.txt"}) << number;
  }
}

TEST(Prepare, WritesNothingThatPredictsTooBadly) {
  const Scratch scratch;
  const Outcome worse = prepare({model_path(kHybridF16), scratch.path("m.gguf"), "--max-perplexity-ratio", "0.5"});
  EXPECT_EQ(worse.exit_code, 7) << worse.all();
  EXPECT_THAT(worse.err,
              AllOf(HasSubstr("times the source's (at most 0.50 are accepted)"), HasSubstr("was not written")));
  EXPECT_EQ(worse.error_lines(), 1u);
  EXPECT_THAT(worse.out, HasSubstr("perplexity: "));
  EXPECT_THAT(worse.out, Not(HasSubstr("written in")));
  EXPECT_TRUE(scratch.names().empty());
}

TEST(Prepare, WritesNothingThatPredictsSomethingElse) {
  const Scratch scratch;
  const Outcome worse = prepare({model_path(kHybridF16), scratch.path("m.gguf"), "--max-divergence", "0.001"});
  EXPECT_EQ(worse.exit_code, 7) << worse.all();
  EXPECT_THAT(worse.err, AllOf(HasSubstr("diverge from the source's by 0.0"), HasSubstr("was not written")));
  EXPECT_EQ(worse.error_lines(), 1u);
  EXPECT_TRUE(scratch.names().empty());
}

TEST(Prepare, FollowsItsOptions) {
  const Scratch scratch;
  ASSERT_EQ(prepare({model_path(kHybridF16), scratch.path("m.gguf"), "--no-check", "--weights", "q8_0",
                     "--embedding-type", "q4_0", "--keep", "attn_v|ssm_(alpha|beta)"})
                .exit_code,
            0);
  const auto model = gguf::open_gguf(scratch.path("m.gguf"));
  ASSERT_TRUE(model.ok());
  const auto type = [&](const char* name) { return model->metadata().find_tensor(name)->type->name; };
  EXPECT_EQ(type("blk.0.ffn_up.weight"), "Q8_0");
  EXPECT_EQ(type("token_embd.weight"), "Q4_0");
  EXPECT_EQ(type("blk.3.attn_v.weight"), "F16");
  EXPECT_EQ(type("blk.1.ssm_beta.weight"), "F16");
  const Outcome nothing = prepare({model_path(kHybridF16), scratch.path("same.gguf"), "--only-refused"});
  EXPECT_EQ(nothing.exit_code, 0) << nothing.all();
  EXPECT_THAT(nothing.out, AllOf(HasSubstr("tensors: 55 copied"), HasSubstr("nothing to measure")));
}

}  // namespace
}  // namespace kazeia::cli_test
