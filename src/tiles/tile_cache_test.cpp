// Tile cache files: what is written comes back, and what is damaged, foreign or hostile is refused.
#include "tiles/tile_cache.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tiles/sample_blocks.h"

namespace kazeia::tiles {
namespace {

namespace fs = std::filesystem;

const std::string kKey = "0123456789abcdef0123456789abcdef";
const std::string kOtherKey = "0123456789abcdef0123456789abcdee";
constexpr std::uint64_t kImageBytes = (std::uint64_t{16} << 20) + 4096 * 3;  // two checksums
constexpr std::size_t kImageAt = 4096;

// Offsets of the header, docs/tile_cache_format.md.
constexpr std::size_t kTrailerBytesAt = 56, kTensorCountAt = 64, kTrailerSumAt = 72, kHeaderSumAt = 80;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}
void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}
template <typename T>
T get(const std::string& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
template <typename T>
void put(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

class TileCache : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "kazeia-tiles-" + std::to_string(::getpid()) + "-" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<CachedTensor> tensors() const {
    return {{"token_embd.weight", WeightType::kQ6_K, 320, 256, 0},
            {"blk.0.attn_q.weight", WeightType::kQ4_0, 77, 512, 128 * 1024}};
  }
  static void fill(std::byte* image, std::uint64_t seed) {
    samples::Random random(seed);
    for (std::uint64_t i = 0; i + 8 <= kImageBytes; i += 8) {
      const std::uint64_t value = random();
      std::memcpy(image + i, &value, 8);
    }
  }
  static std::string content(const std::byte* image) { return {reinterpret_cast<const char*>(image), kImageBytes}; }
  static std::string content_of(std::uint64_t seed) {
    std::string bytes(kImageBytes, '\0');
    fill(reinterpret_cast<std::byte*>(bytes.data()), seed);
    return bytes;
  }

  Status write(std::uint64_t seed = 1, const std::string& key = kKey) {
    KAZEIA_ASSIGN(const auto image, CacheImage::create(folder_, key, kImageBytes));
    fill(image->base(), seed);
    for (CachedTensor& tensor : tensors()) image->note(std::move(tensor));
    return image->commit(2);
  }
  Result<std::unique_ptr<CacheImage>> open(const std::string& key = kKey, std::uint64_t bytes = kImageBytes) {
    return CacheImage::open(folder_, key, bytes, 2);
  }
  void expect_refused(const std::string& reason) {
    const auto image = open();
    ASSERT_FALSE(image.ok()) << reason;
    EXPECT_EQ(image.error().code(), ErrorCode::kFile);
    EXPECT_NE(image.error().message().find(reason), std::string::npos) << image.error().message();
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(folder_)) all.push_back(entry.path());
    return all;
  }
  // The only file in the folder.
  fs::path file() const {
    const auto all = files();
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? fs::path() : all.front();
  }

  // Gives the file another trailer, with checksums that are right.
  void replace_trailer(const std::function<void(std::string& trailer, std::uint64_t& count)>& change) {
    std::string bytes = read_file(file());
    std::string trailer = bytes.substr(kImageAt + kImageBytes);
    auto count = get<std::uint64_t>(bytes, kTensorCountAt);
    change(trailer, count);
    bytes.resize(kImageAt + kImageBytes);
    bytes += trailer;
    put<std::uint64_t>(bytes, kTrailerBytesAt, trailer.size());
    put<std::uint64_t>(bytes, kTensorCountAt, count);
    put<std::uint64_t>(bytes, kTrailerSumAt, XXH3_64bits(trailer.data(), trailer.size()));
    seal_header(bytes);
    write_file(file(), bytes);
  }
  static void seal_header(std::string& bytes) {
    put<std::uint64_t>(bytes, kHeaderSumAt, XXH3_64bits(bytes.data(), kHeaderSumAt));
  }

  std::string folder_;
};

TEST_F(TileCache, GivesBackWhatWasCommitted) {
  ASSERT_TRUE(write(7).ok());
  const auto image = open();
  ASSERT_TRUE(image.ok()) << image.error().sentence();
  EXPECT_EQ(content((*image)->base()), content_of(7));
  for (const CachedTensor& tensor : tensors()) EXPECT_TRUE((*image)->holds(tensor)) << tensor.name;
  EXPECT_TRUE((*image)->commit(1).ok());
  EXPECT_EQ(file().filename(), kKey + "-layout1.tiles");
}

TEST_F(TileCache, HoldsATensorOnlyIfEverythingAboutItIsTheSame) {
  ASSERT_TRUE(write().ok());
  const auto image = open();
  ASSERT_TRUE(image.ok());
  const CachedTensor tensor = tensors()[1];
  const auto changed = [&](const std::function<void(CachedTensor&)>& change) {
    CachedTensor other = tensor;
    change(other);
    return (*image)->holds(other);
  };
  EXPECT_FALSE(changed([](CachedTensor& t) { t.name += "x"; }));
  EXPECT_FALSE(changed([](CachedTensor& t) { t.type = WeightType::kIQ4_NL; }));
  EXPECT_FALSE(changed([](CachedTensor& t) { t.rows += 1; }));
  EXPECT_FALSE(changed([](CachedTensor& t) { t.columns += 32; }));
  EXPECT_FALSE(changed([](CachedTensor& t) { t.offset += 128; }));
}

TEST_F(TileCache, ANewImageHoldsNothing) {
  const auto image = CacheImage::create(folder_, kKey, kImageBytes);
  ASSERT_TRUE(image.ok());
  (*image)->note(tensors()[0]);
  EXPECT_FALSE((*image)->holds(tensors()[0]));
}

TEST_F(TileCache, WritingIntoAnOpenImageLeavesItsFileAlone) {
  ASSERT_TRUE(write(7).ok());
  {
    const auto image = open();
    ASSERT_TRUE(image.ok());
    std::memset((*image)->base(), 0, 4096);
    ASSERT_TRUE((*image)->commit(1).ok());
  }
  const auto image = open();
  ASSERT_TRUE(image.ok());
  EXPECT_EQ(content((*image)->base()), content_of(7));
}

TEST_F(TileCache, AMissingFileAndFolderAreAMiss) {
  EXPECT_EQ(open().error().code(), ErrorCode::kFile);
  folder_ += "/none";
  EXPECT_EQ(open().error().code(), ErrorCode::kFile);
}

TEST_F(TileCache, ADamagedByteIsFoundWhereverItIs) {
  ASSERT_TRUE(write().ok());
  const std::string good = read_file(file());
  const std::size_t trailer = kImageAt + kImageBytes;
  std::vector<std::size_t> places = {kImageAt,       kImageAt + kImageBytes / 2, trailer - 1, trailer, trailer + 40,
                                     good.size() - 1};
  for (std::size_t at = 0; at < kHeaderSumAt + 8; ++at) places.push_back(at);
  for (const std::size_t at : places) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    write_file(file(), bytes);
    EXPECT_FALSE(open().ok()) << "byte " << at;
  }
  write_file(file(), good);
  EXPECT_TRUE(open().ok());
}

TEST_F(TileCache, ATruncatedOrLongerFileIsRefused) {
  ASSERT_TRUE(write().ok());
  const std::string good = read_file(file());
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{87}, kImageAt, kImageAt + 4096,
                                 kImageAt + kImageBytes, good.size() - 1}) {
    write_file(file(), good.substr(0, size));
    EXPECT_FALSE(open().ok()) << size << " bytes";
  }
  write_file(file(), good + "x");
  expect_refused("truncated");
}

TEST_F(TileCache, AnotherKeyOrSizeIsAMiss) {
  ASSERT_TRUE(write().ok());
  EXPECT_FALSE(open(kOtherKey).ok());
  EXPECT_FALSE(open(kKey, kImageBytes + 4096).ok());
  EXPECT_FALSE(open(kKey, kImageBytes - 4096).ok());
  // Under the wrong name.
  fs::rename(file(), folder_ + "/" + kOtherKey + "-layout1.tiles");
  const auto image = open(kOtherKey);
  ASSERT_FALSE(image.ok());
  EXPECT_NE(image.error().message().find("another version or model"), std::string::npos) << image.error().message();
}

TEST_F(TileCache, AnotherFormatOrLayoutIsAMiss) {
  ASSERT_TRUE(write().ok());
  const std::string good = read_file(file());
  for (const std::size_t at : {std::size_t{8}, std::size_t{12}}) {
    std::string bytes = good;
    put<std::uint32_t>(bytes, at, 2);
    seal_header(bytes);
    write_file(file(), bytes);
    expect_refused("another version");
  }
}

// Checksums do not protect from somebody who computes them.
TEST_F(TileCache, AHostileDirectoryIsRefused) {
  ASSERT_TRUE(write().ok());
  const std::string good = read_file(file());
  using Change = std::function<void(std::string & trailer, std::uint64_t & count)>;
  const std::vector<Change> changes = {
      [](std::string&, std::uint64_t& count) { count += 1; },
      [](std::string&, std::uint64_t& count) { count -= 1; },
      [](std::string&, std::uint64_t& count) { count = 99'999; },
      [](std::string&, std::uint64_t& count) { count = ~std::uint64_t{0}; },
      [](std::string& trailer, std::uint64_t&) { trailer.pop_back(); },
      [](std::string& trailer, std::uint64_t&) { trailer += std::string(8, 'x'); },
      [](std::string& trailer, std::uint64_t&) { trailer.clear(); },
      [](std::string& trailer, std::uint64_t&) { put<std::uint32_t>(trailer, 0, 0xffffffffu); },   // name bytes
      [](std::string& trailer, std::uint64_t&) { put<std::uint32_t>(trailer, 4, 1); },             // type
      [](std::string& trailer, std::uint64_t&) { put<std::int64_t>(trailer, 8, 0); },              // rows
      [](std::string& trailer, std::uint64_t&) { put<std::int64_t>(trailer, 8, -1); },             //
      [](std::string& trailer, std::uint64_t&) { put<std::int64_t>(trailer, 8, INT64_MAX); },      //
      [](std::string& trailer, std::uint64_t&) { put<std::int64_t>(trailer, 16, INT64_MAX); },     // columns
      [](std::string& trailer, std::uint64_t&) { put<std::int64_t>(trailer, 16, INT64_MIN); },     //
      [](std::string& trailer, std::uint64_t&) { put<std::uint64_t>(trailer, 24, kImageBytes); },  // offset
      [](std::string& trailer, std::uint64_t&) { put<std::uint64_t>(trailer, 24, ~std::uint64_t{0}); },
      [](std::string& trailer, std::uint64_t&) {  // rows and columns at their limit: the product must not wrap
        put<std::int64_t>(trailer, 8, std::int64_t{1} << 32);
        put<std::int64_t>(trailer, 16, std::int64_t{1} << 32);
      },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE("change " + std::to_string(i));
    write_file(file(), good);
    replace_trailer(changes[i]);
    const auto image = open();
    EXPECT_FALSE(image.ok());
  }
  write_file(file(), good);
  replace_trailer([](std::string&, std::uint64_t&) {});
  EXPECT_TRUE(open().ok()) << "the helper itself must not damage the file";
}

TEST_F(TileCache, WritersAndReadersAtOnceLeaveOneValidFile) {
  std::atomic<int> written{0}, opened{0};
  std::vector<std::thread> team;
  for (std::uint64_t writer = 0; writer < 2; ++writer) {
    team.emplace_back([&, writer] {
      for (int round = 0; round < 4; ++round) written += write(100 + writer).ok() ? 1 : 0;
    });
  }
  team.emplace_back([&] {
    for (int round = 0; round < 8; ++round) {
      const auto image = open();
      if (!image.ok()) continue;  // before the first commit
      ++opened;
      const std::string seen = content((*image)->base());
      EXPECT_TRUE(seen == content_of(100) || seen == content_of(101));
    }
  });
  for (std::thread& member : team) member.join();
  EXPECT_EQ(written, 8);
  EXPECT_EQ(files().size(), 1u);
  EXPECT_TRUE(open().ok());
}

// An image that is in use keeps its bytes when another process replaces the file.
TEST_F(TileCache, AnOpenImageSurvivesItsReplacement) {
  ASSERT_TRUE(write(1).ok());
  const auto image = open();
  ASSERT_TRUE(image.ok());
  ASSERT_TRUE(write(2).ok());
  fs::remove(file());
  EXPECT_EQ(content((*image)->base()), content_of(1));
}

// A disk that is full, for this process: no file may grow beyond `bytes`.
class FileLimit {
 public:
  explicit FileLimit(std::uint64_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    (void)std::signal(SIGXFSZ, handler_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit old_{};
};

TEST_F(TileCache, AFullDiskIsAnErrorBeforeAnythingIsPacked) {
  {
    const FileLimit limit(1 << 20);
    const auto image = CacheImage::create(folder_, kKey, kImageBytes);
    ASSERT_FALSE(image.ok());
    EXPECT_EQ(image.error().code(), ErrorCode::kWrite);
    EXPECT_NE(image.error().message().find("no space left"), std::string::npos) << image.error().message();
  }
  EXPECT_TRUE(files().empty());
}

TEST_F(TileCache, ADiskThatFillsUpBeforeTheCommitCostsTheFileAndNotTheImage) {
  {
    const FileLimit limit(kImageAt + kImageBytes);
    const auto image = CacheImage::create(folder_, kKey, kImageBytes);
    ASSERT_TRUE(image.ok()) << image.error().sentence();
    fill((*image)->base(), 5);
    (*image)->note(tensors()[0]);
    const Status status = (*image)->commit(2);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code(), ErrorCode::kWrite);
    EXPECT_EQ(content((*image)->base()), content_of(5));
  }
  EXPECT_TRUE(files().empty());
}

TEST_F(TileCache, AnUnwritableFolderIsAnError) {
  write_file(folder_ + "/file", "");
  const auto image = CacheImage::create(folder_ + "/file", kKey, kImageBytes);
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code(), ErrorCode::kWrite);
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(TileCache, AFolderThatIsNotThereIsMade) {
  folder_ += "/a/b";
  EXPECT_TRUE(write().ok());
  EXPECT_TRUE(open().ok());
}

TEST_F(TileCache, AWriterAtWorkIsNotTakenForACrashedOne) {
  const auto image = CacheImage::create(folder_, kKey, kImageBytes);
  ASSERT_TRUE(image.ok());
  fill((*image)->base(), 1);
  ASSERT_TRUE(write(2, kOtherKey).ok());
  ASSERT_TRUE(write(3).ok());
  ASSERT_TRUE((*image)->commit(1).ok());
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(TileCache, AnImageThatIsNotCommittedDisappears) {
  {
    const auto image = CacheImage::create(folder_, kKey, kImageBytes);
    ASSERT_TRUE(image.ok());
    fill((*image)->base(), 1);
  }
  EXPECT_TRUE(files().empty());
}

TEST_F(TileCache, ACrashBeforeTheCommitLeavesNoTileFileAndTheNextWriterCleansUp) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto image = CacheImage::create(folder_, kKey, kImageBytes);
    if (image.ok()) std::memset((*image)->base(), 1, kImageBytes);
    _exit(image.ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_FALSE(open().ok());
  for (const fs::path& path : files()) EXPECT_NE(path.extension(), ".tiles") << path;
  EXPECT_TRUE(write(3).ok());
  EXPECT_EQ(files().size(), 1u);
  const auto image = open();
  ASSERT_TRUE(image.ok());
  EXPECT_EQ(content((*image)->base()), content_of(3));
}

}  // namespace
}  // namespace kazeia::tiles
