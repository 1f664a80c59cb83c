#include "gguf/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf/test_file.h"

namespace kazeia::gguf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TestFile small_file() {
  TestFile file;
  file.string("general.architecture", "qwen3").u32("qwen3.block_count", 1);
  file.tensor("a.weight", {4, 2}).tensor("b.weight", {32, 3}, 2);
  return file;
}

// ---- what is accepted ----

TEST(Reader, ReadsMetadataAndTensors) {
  const std::string bytes = small_file().bytes();
  const Result<File> file = parse(view(bytes));
  ASSERT_TRUE(file.ok()) << file.error().sentence();
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->find("general.architecture")->as_string(), "qwen3");
  EXPECT_EQ(file->find("qwen3.block_count")->as_unsigned(), 1u);
  EXPECT_EQ(file->find("no.such.key"), nullptr);
  const Tensor* tensor = file->find_tensor("b.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->type->name, "Q4_0");
  EXPECT_THAT(tensor->dims, ElementsAre(32, 3, 1, 1));
  EXPECT_EQ(tensor->elements, 96u);
  EXPECT_EQ(tensor->bytes, 54u);
  EXPECT_EQ(tensor->offset, file->data_offset() + 32);
  EXPECT_EQ(file->data(*tensor).size(), 54u);
  EXPECT_EQ(file->find_tensor("c.weight"), nullptr);
}

TEST(Reader, ReadsVersionTwoLikeVersionThree) {
  const std::string bytes = small_file().version(2).bytes();
  const Result<File> file = parse(view(bytes));
  ASSERT_TRUE(file.ok()) << file.error().sentence();
  EXPECT_EQ(file->version(), 2u);
  EXPECT_EQ(file->tensors().size(), 2u);
}

TEST(Reader, ReadsEveryValueType) {
  TestFile builder;
  builder.entry("u8", ValueType::kU8, raw(std::uint8_t{200})).entry("i8", ValueType::kI8, raw(std::int8_t{-1}));
  builder.u16("u16", 60000).entry("i16", ValueType::kI16, raw(std::int16_t{5})).i32("i32", 7).f32("f32", 0.5f);
  builder.boolean("yes", true).string("s", "text").entry("u64", ValueType::kU64, raw(std::uint64_t{1} << 40));
  builder.entry("i64", ValueType::kI64, raw(std::int64_t{9})).entry("f64", ValueType::kF64, raw(0.25));
  builder.strings("list", {"", "b", "cc"}).i32s("numbers", {3, -4}).strings("none", {});
  const std::string bytes = builder.bytes();
  const Result<File> file = parse(view(bytes));
  ASSERT_TRUE(file.ok()) << file.error().sentence();
  EXPECT_EQ(file->find("u8")->as_unsigned(), 200u);
  EXPECT_EQ(file->find("i8")->as_unsigned(), std::nullopt);
  EXPECT_EQ(file->find("i8")->number_at(0), -1.0);
  EXPECT_EQ(file->find("u16")->as_unsigned(), 60000u);
  EXPECT_EQ(file->find("i16")->as_unsigned(), 5u);
  EXPECT_EQ(file->find("i32")->as_unsigned(), 7u);
  EXPECT_EQ(file->find("f32")->as_real(), 0.5);
  EXPECT_EQ(file->find("f32")->as_unsigned(), std::nullopt);
  EXPECT_EQ(file->find("yes")->as_bool(), true);
  EXPECT_EQ(file->find("s")->as_string(), "text");
  EXPECT_EQ(file->find("u64")->as_unsigned(), std::uint64_t{1} << 40);
  EXPECT_EQ(file->find("i64")->as_unsigned(), 9u);
  EXPECT_EQ(file->find("f64")->as_real(), 0.25);
  EXPECT_THAT(file->find("list")->strings(), ElementsAre("", "b", "cc"));
  EXPECT_THAT(file->find("none")->strings(), ElementsAre());
  EXPECT_EQ(file->find("numbers")->unsigned_at(0), 3u);
  EXPECT_EQ(file->find("numbers")->unsigned_at(1), std::nullopt);
  EXPECT_EQ(file->find("numbers")->number_at(1), -4.0);
  EXPECT_EQ(file->find("numbers")->number_at(2), std::nullopt);
}

TEST(Reader, AcceptsUnknownKeysAndNestedArrays) {
  const std::string inner = raw(ValueType::kU8) + raw(std::uint64_t{2}) + "ab";
  TestFile builder = small_file().array("vendor.table", ValueType::kArray, 2, inner + inner);
  EXPECT_EQ(refusal(builder.bytes()), "");
}

TEST(Reader, PlacesDataByTheFilesOwnAlignment) {
  TestFile builder;
  builder.alignment(128).tensor("a", {4}).tensor("b", {4});
  const std::string bytes = builder.bytes();
  const Result<File> file = parse(view(bytes));
  ASSERT_TRUE(file.ok()) << file.error().sentence();
  EXPECT_EQ(file->data_offset() % 128, 0u);
  EXPECT_EQ(file->tensors()[1].offset - file->tensors()[0].offset, 128u);
}

TEST(Reader, AcceptsAFileWithoutTensors) {
  EXPECT_EQ(refusal(TestFile().string("a", "b").bytes()), "");
}

// ---- what is refused: the preamble ----

TEST(Reader, RefusesEveryTruncationOfAValidFile) {
  const std::string bytes = small_file().bytes();
  ASSERT_EQ(refusal(bytes), "");
  // The last 10 bytes are padding behind the 54 bytes of the last tensor.
  for (std::size_t size = 0; size < bytes.size() - 10; ++size) {
    EXPECT_THAT(refusal(bytes.substr(0, size)), HasSubstr(size == 0 ? "empty" : "GGUF file at byte")) << size;
  }
}

TEST(Reader, RefusesOtherFormats) {
  EXPECT_THAT(refusal("PK\x03\x04 something else"), HasSubstr("not a GGUF file"));
  EXPECT_THAT(refusal("G?"), HasSubstr("not a GGUF file"));
}

TEST(Reader, RefusesVersionsItDoesNotKnow) {
  EXPECT_THAT(refusal(small_file().version(1).bytes()), HasSubstr("version 1, which is obsolete"));
  EXPECT_THAT(refusal(small_file().version(4).bytes()), HasSubstr("version 4"));
  EXPECT_THAT(refusal(small_file().version(0).bytes()), HasSubstr("version 0"));
}

TEST(Reader, RecognisesBigEndianFiles) {
  EXPECT_THAT(refusal(small_file().version(0x03000000).bytes()), HasSubstr("big-endian"));
  EXPECT_EQ(parse(view(small_file().version(0x03000000).bytes())).error().code(), ErrorCode::kUnsupported);
}

TEST(Reader, RefusesAbsurdCountsWithoutAllocatingForThem) {
  std::string bytes = small_file().bytes();
  bytes.replace(8, 8, raw(std::uint64_t{1} << 60));
  EXPECT_THAT(refusal(bytes), HasSubstr("byte 8: it claims 1152921504606846976 tensors"));
  bytes = small_file().bytes();
  bytes.replace(16, 8, raw(UINT64_MAX));
  EXPECT_THAT(refusal(bytes), HasSubstr("byte 16: it claims 18446744073709551615 metadata entries"));
}

// ---- metadata ----

TEST(Reader, RefusesAStringLongerThanTheFile) {
  EXPECT_THAT(refusal(TestFile().entry("k", ValueType::kString, raw(UINT64_MAX)).bytes()),
              HasSubstr("claims 18446744073709551615 bytes"));
  EXPECT_THAT(refusal(TestFile().array("k", ValueType::kString, 1, raw(std::uint64_t{5}) + "abcd").bytes()),
              HasSubstr("claims 5 bytes, but only 4 are left"));
}

TEST(Reader, RefusesAnArrayLongerThanTheFile) {
  EXPECT_THAT(refusal(TestFile().array("k", ValueType::kU64, std::uint64_t{1} << 61, "").bytes()),
              HasSubstr("claims 2305843009213693952 values of type u64"));
}

TEST(Reader, RefusesBadKeys) {
  EXPECT_THAT(refusal(TestFile().u32("", 1).bytes()), HasSubstr("byte 24: metadata entry 0 has an empty key"));
  EXPECT_THAT(refusal(TestFile().u32(std::string(65536, 'k'), 1).bytes()), HasSubstr("has 65536 bytes"));
  EXPECT_THAT(refusal(TestFile().u32("a\0b"_s, 1).bytes()), HasSubstr("NUL"));
}

TEST(Reader, RefusesADuplicateKey) {
  EXPECT_THAT(refusal(small_file().again("qwen3.block_count").bytes()),
              HasSubstr("metadata key 'qwen3.block_count' appears twice"));
}

TEST(Reader, RefusesUnknownValueTypes) {
  EXPECT_THAT(refusal(TestFile().entry("k", static_cast<ValueType>(13), raw(1)).bytes()),
              HasSubstr("unknown value type 13"));
  EXPECT_THAT(refusal(TestFile().array("k", static_cast<ValueType>(99), 1, raw(1)).bytes()),
              HasSubstr("unknown value type 99"));
}

TEST(Reader, RefusesABooleanThatIsNeitherTrueNorFalse) {
  EXPECT_THAT(refusal(TestFile().entry("k", ValueType::kBool, "\x02").bytes()), HasSubstr("neither 0 nor 1"));
}

TEST(Reader, RefusesArraysNestedTooDeep) {
  std::string nested = raw(ValueType::kU8) + raw(std::uint64_t{1}) + "x";
  for (int i = 0; i < 2; ++i) nested = raw(ValueType::kArray) + raw(std::uint64_t{1}) + nested;
  EXPECT_EQ(refusal(TestFile().array("k", ValueType::kArray, 1, nested).bytes()), "");
  nested = raw(ValueType::kArray) + raw(std::uint64_t{1}) + nested;
  EXPECT_THAT(refusal(TestFile().array("k", ValueType::kArray, 1, nested).bytes()), HasSubstr("nests arrays deeper"));
}

TEST(Reader, RefusesBadAlignments) {
  EXPECT_THAT(refusal(TestFile().u32("general.alignment", 0).bytes()), HasSubstr("power of two"));
  EXPECT_THAT(refusal(TestFile().u32("general.alignment", 48).bytes()), HasSubstr("power of two"));
  EXPECT_THAT(refusal(TestFile().u32("general.alignment", 1u << 31).bytes()), HasSubstr("power of two"));
  EXPECT_THAT(refusal(TestFile().i32("general.alignment", 32).bytes()), HasSubstr("must be u32"));
}

// ---- tensors ----

TEST(Reader, RefusesBadTensorNames) {
  EXPECT_THAT(refusal(TestFile().tensor("", {4}).bytes()), HasSubstr("tensor 0 has an empty name"));
  EXPECT_THAT(refusal(TestFile().tensor(std::string(64, 'n'), {4}).bytes()), HasSubstr("has 64 bytes, at most 63"));
  EXPECT_EQ(refusal(TestFile().tensor(std::string(63, 'n'), {4}).bytes()), "");
  EXPECT_THAT(refusal(TestFile().tensor("a\0"_s, {4}).bytes()), HasSubstr("NUL"));
}

TEST(Reader, RefusesADuplicateTensor) {
  EXPECT_THAT(refusal(TestFile().tensor("a", {4}).tensor("b", {4}).tensor("a", {4}).bytes()),
              HasSubstr("tensor 'a' appears twice"));
}

TEST(Reader, RefusesBadDimensions) {
  EXPECT_THAT(refusal(TestFile().tensor("a", {}).tensor("b", {4}).bytes()), HasSubstr("0 dimensions"));
  EXPECT_THAT(refusal(TestFile().tensor("a", {1, 1, 1, 1, 1}).bytes()), HasSubstr("5 dimensions"));
  EXPECT_THAT(refusal(TestFile().tensor("a", {4, 0}).bytes()), HasSubstr("dimension 1 of tensor 'a' is 0"));
}

TEST(Reader, RefusesShapesThatOverflow) {
  const std::uint64_t half = std::uint64_t{1} << 32;
  EXPECT_THAT(refusal(TestFile().tensor("a", {half, half}).bytes()), HasSubstr("more elements than 63 bits"));
  EXPECT_THAT(refusal(TestFile().tensor("a", {std::uint64_t{1} << 63}).bytes()),
              HasSubstr("more elements than 63 bits"));
  EXPECT_THAT(refusal(TestFile().tensor("a", {std::uint64_t{1} << 62}).bytes()), HasSubstr("more bytes than 63 bits"));
}

TEST(Reader, RefusesTensorTypesThatAreUnknownOrRemoved) {
  EXPECT_THAT(refusal(TestFile().tensor("a", {32}, 4).bytes()), HasSubstr("type Q4_2, which was removed"));
  EXPECT_THAT(refusal(TestFile().tensor("a", {32}, 31).bytes()), HasSubstr("type Q4_0_4_4, which was removed"));
  EXPECT_THAT(refusal(TestFile().tensor("a", {32}, 4711).bytes()), HasSubstr("type number 4711"));
  EXPECT_EQ(parse(view(TestFile().tensor("a", {32}, 4711).bytes())).error().code(), ErrorCode::kUnsupported);
}

TEST(Reader, RefusesARowThatIsNotAWholeNumberOfBlocks) {
  EXPECT_THAT(refusal(TestFile().tensor("a", {48, 2}, 2).bytes()),
              HasSubstr("48 elements, not a multiple of Q4_0's 32"));
}

TEST(Reader, RefusesAMisalignedTensor) {
  EXPECT_THAT(refusal(TestFile().tensor("a", {4}, 0, 8).bytes()), HasSubstr("offset 8, which is not a multiple of 32"));
}

TEST(Reader, RefusesATensorThatEndsPastTheFile) {
  EXPECT_THAT(refusal(TestFile().tensor("a", {4}).tensor("b", {4}, 0, 64).bytes()),
              HasSubstr("tensor 'b' has 16 bytes at data offset 64, but the file has only 64 bytes of data"));
}

TEST(Reader, RefusesAnOffsetThatWouldWrapAround) {
  EXPECT_THAT(refusal(TestFile().tensor("a", {4}, 0, UINT64_MAX - 31).bytes()),
              HasSubstr("data offset 18446744073709551584"));
}

TEST(Reader, RefusesOverlappingTensors) {
  EXPECT_THAT(refusal(TestFile().tensor("a", {64}).tensor("b", {4}, 0, 32).bytes()),
              HasSubstr("tensors 'a' and 'b' overlap"));
  EXPECT_THAT(refusal(TestFile().tensor("a", {4}).tensor("b", {4}, 0, 0).bytes()), HasSubstr("overlap"));
}

// ---- names in messages ----

TEST(Printable, NeutralisesWhatATerminalWouldObey) {
  EXPECT_EQ(printable("\x1b[31mred\n"), "?[31mred?");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "??31m");  // the one-character form of the same sequence
  EXPECT_EQ(printable("été \xff"), "été ?");
  EXPECT_EQ(printable(std::string(200, 'x'), 10), "xxxxxxxxxx...");
}

TEST(Types, KnowNameAndSizeOfEveryTypeOnce) {
  std::uint32_t before = 0;
  for (const TensorType& type : all_tensor_types()) {
    const auto id = static_cast<std::uint32_t>(type.id);
    EXPECT_TRUE(id == 0 || id > before) << type.name;
    before = id;
    EXPECT_EQ(find_tensor_type(id), &type);
    EXPECT_EQ(removed_tensor_type(id), "") << type.name;
  }
  EXPECT_EQ(find_tensor_type(4), nullptr);
  EXPECT_EQ(find_tensor_type(1000), nullptr);
}

}  // namespace
}  // namespace kazeia::gguf
