// State files: what was written comes back, and what is damaged, foreign or hostile is refused.
#include "session/state_file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kazeia {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::int32_t kF32 = 0, kF16 = 1, kQ8 = 8;  // ggml's numbers

// Offsets of docs/session_format.md.
constexpr std::size_t kVersionAt = 8, kKindAt = 12, kFlagsAt = 16, kContextAt = 20, kFromAt = 24, kToAt = 32;
constexpr std::size_t kBeforeAt = 40, kAfterAt = 56, kAttentionAt = 72, kRecurrentAt = 76, kTokenCountAt = 80;
constexpr std::size_t kNameBytesAt = 84, kTensorsAt = 96, kPage = 4096;

template <typename T>
void put(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}
std::string flipped(std::string bytes, std::size_t at, int change) {
  bytes[at] = static_cast<char>(bytes[at] ^ change);
  return bytes;
}
std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// Makes the checksums of a file with at most one chunk right again.
void seal(std::string& bytes, std::size_t head = kPage) {
  const std::uint64_t head_sum = XXH3_64bits(bytes.data(), head - 8);
  put(bytes, head - 8, head_sum);
  const std::size_t sums = bytes.size() - head == 8 ? 0 : 8;
  const std::size_t payload = bytes.size() - head - sums - 8;
  if (sums != 0) put(bytes, head + payload, XXH3_64bits(bytes.data() + head, payload));
  put(bytes, bytes.size() - 8, XXH3_64bits_withSeed(bytes.data() + head + payload, sums, head_sum));
}

struct Part {
  StateOrigin origin;
  PartHeader header;
  Tokens tokens;

  std::size_t bytes() const { return payload_bytes(header, origin.layout); }
};

std::string noise(std::size_t bytes) {
  std::string text(bytes, '\0');
  std::uint64_t state = 1;
  for (char& byte : text) byte = static_cast<char>((state = state * 6364136223846793005u + 1) >> 56);
  return text;
}

// Rows of tokens 0 to 4, of sizes that fit no alignment: 5 * (7 + 34) bytes.
Part attention() {
  Part part;
  part.origin = {"0123456789abcdef0123456789abcdef",
                 "0.1.0",
                 "llama.cpp 0.5.0, ggml 0.24.0",
                 {{{kF16, 7}, {kQ8, 34}}, {{kF32, 12}}}};
  part.tokens = {3, 0, 151643, 1, 2147483647};
  part.header = {PartKind::kAttention, 0, 5, hash_of_prefix({}), hash_of_prefix(part.tokens), false, 8192};
  return part;
}
// The state after 77 tokens: 20 bytes as f32, which halve, and 9 of another type.
Part recurrent(bool half = false) {
  Part part = attention();
  part.origin.layout = {{{kF16, 7}}, {{kF32, 12}, {kQ8, 9}, {kF32, 8}}};
  part.tokens = {};
  part.header = {PartKind::kRecurrent, 77, 77, {1, 2}, {1, 2}, half, 0};
  return part;
}
// Two whole chunks and 17 bytes.
Part large() {
  Part part = attention();
  part.origin.layout.attention = {{kF16, 2 * kMiB + 17}};
  part.tokens = {42};
  part.header = {PartKind::kAttention, 9, 10, {5, 6}, {7, 8}, false, 1};
  return part;
}

class StateFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "kazeia-states-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    ::chmod(folder_.c_str(), 0700);
    std::filesystem::remove_all(folder_);
  }
  std::string at(const std::string& name) const { return folder_ + "/" + name; }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) found.push_back(entry.path().filename());
    return found;
  }
  std::string read(const std::string& name) const {
    std::ifstream in(at(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  Result<StateFileWriter> begin(const std::string& name, const Part& part) const {
    return StateFileWriter::create(at(name), part.origin, part.header, part.tokens);
  }
  Status write(const std::string& name, const Part& part, const std::string& payload,
               std::size_t piece = std::numeric_limits<std::size_t>::max()) const {
    KAZEIA_ASSIGN(StateFileWriter writer, begin(name, part));
    for (std::size_t done = 0; done < payload.size(); done += std::min(piece, payload.size() - done)) {
      KAZEIA_TRY(writer.write(as_bytes(payload).subspan(done, std::min(piece, payload.size() - done))));
    }
    return writer.commit();
  }
  std::string file_of(const Part& part) const {
    const Status written = write("made", part, noise(part.bytes()));
    EXPECT_TRUE(written.ok()) << written.error().sentence();
    return read("made");
  }
  void expect_round_trip(const Part& part) const {
    const std::string payload = noise(part.bytes());
    const Status written = write("part", part, payload);
    ASSERT_TRUE(written.ok()) << written.error().sentence();
    Result<StateFile> opened = StateFile::open(at("part"));
    ASSERT_TRUE(opened.ok()) << opened.error().sentence();
    StateFile file = std::move(opened).value();  // the mapping moves along
    EXPECT_EQ(file.origin(), part.origin);
    EXPECT_EQ(file.header(), part.header);
    EXPECT_EQ(file.tokens(), part.tokens);
    EXPECT_EQ(file.path(), at("part"));
    ASSERT_TRUE(file.check().ok());
    EXPECT_TRUE(std::ranges::equal(file.payload(), as_bytes(payload)));
  }
  std::string folder_;
};

// The whole way of a caller who uses the payload. The copy ends where the file does, so that a sanitizer sees a read
// behind it.
std::string verdict(const std::string& file) {
  const std::vector<std::byte> bytes(as_bytes(file).begin(), as_bytes(file).end());
  Result<StateFile> parsed = StateFile::parse(bytes, "x");
  const Status status = parsed.ok() ? parsed->check() : parsed.error();
  EXPECT_TRUE(status.ok() || status.error().code() == ErrorCode::kFile);
  return status.ok() ? "accepted" : status.error().message();
}

// Runs `check` in a child process that may lower its own limits or rights; true if it returned true.
template <typename Check>
bool in_child(const Check& check) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(check() ? 0 : 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(StateFiles, GiveBackWhatWasWritten) {
  expect_round_trip(attention());
  expect_round_trip(recurrent());
  expect_round_trip(recurrent(true));
  expect_round_trip(large());
  Part later = attention();  // its hashes are the caller's to compare
  later.header = {PartKind::kAttention, 1000, 1005, {1, 2}, {3, 4}, false, 4294967295};
  later.origin.model_hash = later.origin.engine_version = later.origin.upstream_version = "";
  expect_round_trip(later);
  Part longest = attention();
  longest.origin.upstream_version = std::string(256, 'u');
  longest.tokens = Tokens(5000, 1);  // a head of several pages
  longest.header.to = 5000;
  longest.header.after = hash_of_prefix(longest.tokens);
  expect_round_trip(longest);
}

TEST_F(StateFiles, CountTheirPayloadAsTheLayoutSays) {
  EXPECT_EQ(attention().bytes(), 5u * (7 + 34));
  EXPECT_EQ(recurrent().bytes(), 12u + 9 + 8);
  EXPECT_EQ(recurrent(true).bytes(), 6u + 9 + 4) << "only f32 is halved";
}

TEST_F(StateFiles, AreTheSameInManySmallWritesAsInALargeOne) {
  const std::string payload = noise(large().bytes());
  ASSERT_TRUE(write("whole", large(), payload).ok());
  for (const std::size_t piece : {std::size_t{1}, std::size_t{4099}, kMiB - 1, kMiB, kMiB + 1}) {
    ASSERT_TRUE(write("pieces", large(), payload, piece).ok());
    EXPECT_TRUE(read("pieces") == read("whole")) << piece;
  }
}

TEST_F(StateFiles, LieOnTheDiskAsTheDocumentSays) {
  // The other numbers' places are where the hostile ones below are put.
  const Part part = attention();
  const std::string file = file_of(part);
  EXPECT_EQ(file.substr(0, kKindAt), std::string("KZSTATE\n\1\0\0\0", 12));
  EXPECT_EQ(file.substr(kContextAt, 4), std::string("\0\x20\0\0", 4));                         // 8192
  EXPECT_EQ(file.substr(kTensorsAt + 12, 12), std::string("\10\0\0\0\42\0\0\0\0\0\0\0", 12));  // q8_0, 34
  EXPECT_EQ(file.substr(kTensorsAt + 3 * 12 + 2 * 4, 4), std::string("\x5b\x50\2\0", 4));      // 151643
  EXPECT_EQ(file.substr(kTensorsAt + 3 * 12 + 5 * 4, 37), part.origin.model_hash + part.origin.engine_version);
  EXPECT_EQ(file.substr(kPage, part.bytes()), noise(part.bytes()));
  // All of it at once. If this changes, the format has changed: a new version number.
  EXPECT_EQ(XXH3_64bits(file.data(), file.size()), 0x3d2a8d5c6c4b40a1u);
}

TEST_F(StateFiles, AreRefusedAtEveryLengthButTheirOwn) {
  for (const Part& part : {attention(), recurrent()}) {
    const std::string file = file_of(part);
    ASSERT_EQ(verdict(file), "accepted");
    for (std::size_t length = 0; length < file.size(); ++length) {
      ASSERT_EQ(verdict(file.substr(0, length)), "the state file 'x' is truncated") << length;
    }
    EXPECT_THAT(verdict(file + '\0'), HasSubstr("damaged (longer than its header says)"));
  }
}

TEST_F(StateFiles, AreRefusedWithAnyByteChanged) {
  for (const Part& part : {attention(), recurrent(true)}) {
    const std::string file = file_of(part);
    for (std::size_t i = 0; i < file.size(); ++i) {
      for (const int change : {0x01, 0x80, 0xff}) {
        ASSERT_NE(verdict(flipped(file, i, change)), "accepted") << i;
      }
    }
  }
}

TEST_F(StateFiles, OpenWithADamagedPayloadThatTheCheckFinds) {
  const std::string file = file_of(large());
  for (const std::size_t where : {std::size_t{0}, kMiB - 1, kMiB, 2 * kMiB - 1, 2 * kMiB, 2 * kMiB + 16}) {
    const std::string wrong = flipped(file, kPage + where, 4);
    Result<StateFile> opened = StateFile::parse(as_bytes(wrong), "x");
    ASSERT_TRUE(opened.ok()) << where;
    EXPECT_EQ(opened->check().error().message(), "the state file 'x' is damaged (payload)") << where;
    EXPECT_FALSE(opened->check().ok()) << "a failure is not forgotten";
  }
}

TEST_F(StateFiles, AreCheckedOnce) {
  std::string file = file_of(attention());
  Result<StateFile> opened = StateFile::parse(as_bytes(file), "x");
  ASSERT_TRUE(opened.ok() && opened->check().ok());
  put(file, kPage, 0);
  EXPECT_TRUE(opened->check().ok());
  EXPECT_NE(verdict(file), "accepted");
}

TEST_F(StateFiles, AreRefusedWithTheHeaderOfOneAndThePayloadOfAnother) {
  Part other = attention();
  other.header.context_tokens = 4096;
  const std::string mixed = file_of(other).substr(0, kPage) + file_of(attention()).substr(kPage);
  EXPECT_EQ(verdict(mixed), "the state file 'x' is damaged (checksums)");
}

TEST_F(StateFiles, ThatAreNotOursOrOfAnotherVersionSaySo) {
  std::string file = file_of(attention());
  put<std::uint32_t>(file, kVersionAt, 2);
  std::ofstream(at("newer"), std::ios::binary) << file;
  const auto newer = StateFile::open(at("newer"));
  ASSERT_FALSE(newer.ok());
  EXPECT_EQ(newer.error().code(), ErrorCode::kFile);
  EXPECT_EQ(newer.error().message(), "the state file '" + at("newer") +
                                         "' was written by another version of the format (2, this program reads 1)");
  EXPECT_THAT(verdict(file.substr(0, 12)), HasSubstr("another version of the format (2"));
  EXPECT_EQ(verdict("GGUF and so on"), "the file 'x' is not a state file");
  EXPECT_THAT(StateFile::open(at("none")).error().message(), HasSubstr("no file at"));
  std::ofstream(at("empty")).flush();
  EXPECT_THAT(StateFile::open(at("empty")).error().message(), HasSubstr("is truncated"));
}

// A number of a file, what it becomes one after another, and why that is refused.
struct Hostile {
  std::string reason;
  std::size_t at, bytes;
  std::vector<std::uint64_t> values;
};
std::string verdict_once_sealed(std::string file) {
  seal(file);
  return verdict(file);
}
void expect_refused(const std::string& file, const std::vector<Hostile>& cases) {
  EXPECT_EQ(verdict_once_sealed(file), "accepted") << "the checksums of this test are not those of the format";
  for (const Hostile& hostile : cases) {
    for (const std::uint64_t value : hostile.values) {
      std::string changed = file;
      std::memcpy(changed.data() + hostile.at, &value, hostile.bytes);
      EXPECT_THAT(verdict_once_sealed(changed), HasSubstr(hostile.reason)) << value;
    }
  }
}

TEST_F(StateFiles, AreRefusedForHostileNumbersUnderRightChecksums) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  constexpr std::size_t kTypeAt = kTensorsAt + 12, kRowAt = kTensorsAt + 4, kTokenAt = kTensorsAt + 3 * 12;
  const std::string file = file_of(attention());
  expect_refused(file, {
                           {"header: kind", kKindAt, 4, {0, 3, 0x10001, kMost}},
                           {"header: flags", kFlagsAt, 4, {1, 2, kMost}},
                           {"header: token range", kFromAt, 8, {5, 6, kMost}},
                           {"header: token range", kToAt, 8, {0, (1 << 24) + 1, kMost}},
                           {"header: token count", kFromAt, 8, {1, 4}},
                           {"header: token count", kToAt, 8, {4, 6, 1 << 24}},
                           {"header: token count", kTokenCountAt, 4, {0, 4, 6, kMost}},
                           {"header: tensor count", kAttentionAt, 4, {0, 4097, kMost}},
                           {"header: tensor count", kRecurrentAt, 4, {4097, kMost}},
                           {"header: name length", kNameBytesAt, 4, {257, kMost}},
                           {"header: name length", kNameBytesAt + 8, 4, {257, kMost}},
                           {"header: padding", kNameBytesAt, 4, {0, 31}},
                           {"header: padding", kPage - 9, 1, {1}},
                           {"header: tensor type", kTypeAt, 4, {256, kMost}},
                           {"header: row size", kRowAt, 8, {0, (std::uint64_t{1} << 32) + 1, kMost}},
                           {"header: token", kTokenAt, 4, {kMost}},
                           {"header: prefix hash", kTokenAt, 4, {4}},
                           {"header: prefix hash", kBeforeAt, 8, {1}},
                           {"header: prefix hash", kAfterAt + 8, 8, {1}},
                           // Plausible, but not the size of this file.
                           {"is truncated", kAttentionAt, 4, {4096}},
                           {"is truncated", kRowAt, 8, {8, std::uint64_t{1} << 32}},
                           {"longer than its header says", kRowAt, 8, {1, 6}},
                       });
  std::string vast = file;
  put<std::uint64_t>(vast, kToAt, 1 << 24);
  put<std::uint32_t>(vast, kTokenCountAt, 1 << 24);
  EXPECT_THAT(verdict_once_sealed(vast), HasSubstr("is truncated"));
}

TEST_F(StateFiles, OfARecurrentStateAreRefusedForHostileNumbersToo) {
  const std::string file = file_of(recurrent(true));
  expect_refused(file, {
                           {"header: token range", kFromAt, 8, {0, 76, 78}},
                           {"header: token count", kTokenCountAt, 4, {1}},
                           {"header: tensor count", kRecurrentAt, 4, {0}},
                           {"header: prefix hash", kAfterAt, 8, {9}},
                           {"header: row size", kTensorsAt + 12 + 4, 8, {14}},  // f32, halved
                           {"header: flags", kFlagsAt, 4, {2, 3, 0x10001}},
                           {"is truncated", kFlagsAt, 4, {0}},  // not halved
                       });
  std::string after_nothing = file;
  put<std::uint64_t>(after_nothing, kFromAt, 0);
  put<std::uint64_t>(after_nothing, kToAt, 0);
  EXPECT_THAT(verdict_once_sealed(after_nothing), HasSubstr("header: token range"));
}

TEST_F(StateFiles, WhosePayloadWouldWrapToNothingAreRefused) {
  // 4096 tensors, 2^20 tokens, rows of 2^32 bytes: 2^64, the payload of a file that ends behind its head.
  constexpr std::uint32_t kTensors = 4096, kTokens = 1 << 20;
  std::string file = file_of(attention()).substr(0, kTensorsAt);
  put<std::uint64_t>(file, kFromAt, 1);
  put<std::uint64_t>(file, kToAt, kTokens + 1);
  put(file, kAttentionAt, kTensors);
  put<std::uint32_t>(file, kRecurrentAt, 0);
  put(file, kTokenCountAt, kTokens);
  for (std::size_t name = 0; name < 3; ++name) put<std::uint32_t>(file, kNameBytesAt + name * 4, 0);
  for (std::uint32_t i = 0; i < kTensors; ++i) file += std::string("\1\0\0\0\0\0\0\0\1\0\0\0", 12);
  file.resize((file.size() + kTokens * sizeof(Token) + 8 + kPage - 1) / kPage * kPage);
  const std::size_t head = file.size();
  file.resize(head + 8);
  seal(file, head);
  EXPECT_EQ(verdict(file), "the state file 'x' is damaged (header: payload size)");
}

TEST_F(StateFiles, AreNotWrittenIfTheyWouldNotBeRead) {
  const std::pair<std::string, void (*)(Part&)> cases[] = {
      {"token count", [](Part& part) { part.tokens.pop_back(); }},
      {"token range", [](Part& part) { part.header.from = 5; }},
      {"token", [](Part& part) { part.tokens[1] = -1; }},
      {"flags", [](Part& part) { part.header.half = true; }},
      {"prefix hash", [](Part& part) { part.header.after[0] ^= 1; }},
      {"row size", [](Part& part) { part.origin.layout.attention[0].row_bytes = 0; }},
      {"tensor count", [](Part& part) { part.origin.layout.attention.clear(); }},
      {"name length", [](Part& part) { part.origin.engine_version.resize(257); }},
      {"payload size", [](Part& part) {
         part.header = {PartKind::kAttention, 1, 18, {}, {}, false, 0};
         part.tokens.resize(17);
         part.origin.layout.attention.assign(4096, {kF16, std::uint64_t{1} << 32});
       }}};
  for (const auto& [fault, change] : cases) {
    Part part = attention();
    change(part);
    const auto writer = begin("part", part);
    ASSERT_FALSE(writer.ok()) << fault;
    EXPECT_EQ(writer.error().code(), ErrorCode::kUsage);
    EXPECT_EQ(writer.error().message(), "the state file '" + at("part") + "' cannot have such a " + fault);
  }
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(StateFiles, ThatTheDiskCannotHoldAreNotBegun) {
  Part part = attention();
  part.origin.layout.attention.assign(4096, {kF16, std::uint64_t{1} << 32});
  if (std::filesystem::space(folder_).available > part.bytes()) GTEST_SKIP() << "this disk holds 80 TiB";
  const auto writer = begin("part", part);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().code(), ErrorCode::kWrite);
  EXPECT_THAT(writer.error().message(), HasSubstr(" are free there"));
}

TEST_F(StateFiles, GetTheirNameOnlyWhenTheyAreWhole) {
  const Part part = attention();
  const std::string payload = noise(part.bytes());
  {
    auto writer = begin("part", part);
    ASSERT_TRUE(writer.ok() && writer->write(as_bytes(payload).first(payload.size() - 1)).ok());
    EXPECT_THAT(writer->commit().error().message(), HasSubstr("lacks 1 bytes of its payload"));
    EXPECT_FALSE(writer->write(as_bytes(payload).last(1)).ok()) << "too late";
  }
  {
    auto writer = begin("part", part);
    EXPECT_THAT(writer->write(as_bytes(payload + "x")).error().message(), HasSubstr("more than its payload"));
    EXPECT_EQ(writer->commit().error().code(), ErrorCode::kWrite);
  }
  EXPECT_THAT(names(), IsEmpty());
  auto writer = begin("part", part);
  ASSERT_TRUE(writer.ok());
  StateFileWriter moved = std::move(writer).value();
  ASSERT_TRUE(moved.write(as_bytes(payload)).ok());
  EXPECT_FALSE(std::filesystem::exists(at("part")));
  ASSERT_TRUE(moved.commit().ok());
  EXPECT_THAT(names(), UnorderedElementsAre("part"));
  EXPECT_EQ(std::filesystem::status(at("part")).permissions(), std::filesystem::perms(0600));
}

TEST_F(StateFiles, OnAFullDiskAreAWriteErrorAndLeaveNothing) {
  const Part part = large();
  const std::string payload = noise(part.bytes());
  // In the head, in the payload, and in the checksums behind it.
  for (const std::size_t room : {std::size_t{100}, kPage + kMiB / 2, kPage + payload.size() + 3}) {
    EXPECT_TRUE(in_child([&] {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{room, room};
      if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
      const auto full = [](const auto& status) {
        return !status.ok() && status.error().code() == ErrorCode::kWrite &&
               status.error().message().find("no space left") != std::string::npos;
      };
      auto writer = begin("part", part);
      if (room == 100) return full(writer);
      if (!writer.ok()) return false;
      const Status written = writer->write(as_bytes(payload));
      if (room < kPage + kMiB) return full(written) && full(writer->write({})) && full(writer->commit());
      return written.ok() && full(writer->commit());
    })) << room;
    EXPECT_THAT(names(), IsEmpty()) << room;
  }
}

TEST_F(StateFiles, InAFolderThatIsReadOnlyOrMissingAreAWriteError) {
  const Part part = attention();
  const auto missing = begin("none/part", part);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), ErrorCode::kWrite);
  ::chmod(folder_.c_str(), 0555);
  EXPECT_TRUE(in_child([&] {
    // Root may write anywhere; nobody may not.
    if (::geteuid() == 0 && ::setuid(65534) != 0) return false;
    const auto denied = begin("part", part);
    return !denied.ok() && denied.error().code() == ErrorCode::kWrite;
  }));
  EXPECT_THAT(names(), IsEmpty());
}

// Every file on every disk is named by these. If they change, no state is found again.
TEST(PrefixHashes, StayWhatTheyAre) {
  EXPECT_EQ(hash_of_prefix({}), (PrefixHash{0x6001c324468d497f, 0x99aa06d3014798d8}));
  EXPECT_EQ(hash_of_prefix(Tokens{1, 2, 3, 151643}), (PrefixHash{0xfa95bde7db3bda6f, 0xcd43be8248f4b442}));
}

TEST(PrefixHashes, OfManyPrefixesAreThoseOfEach) {
  Tokens tokens;
  for (Token i = 0; i < 3000; ++i) tokens.push_back(i * 7919 % 151643);
  std::vector<std::size_t> positions = {0};
  for (std::size_t at = 0; at < tokens.size(); at += 1 + at / 9) positions.push_back(at);
  positions.push_back(tokens.size());
  const std::vector<PrefixHash> hashes = hashes_of_prefixes(tokens, positions);
  ASSERT_EQ(hashes.size(), positions.size());
  for (std::size_t i = 0; i < positions.size(); ++i) {
    EXPECT_EQ(hashes[i], hash_of_prefix(std::span(tokens).first(positions[i]))) << positions[i];
  }
}

}  // namespace
}  // namespace kazeia
