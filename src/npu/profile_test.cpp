#include "npu/profile.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace kazeia::npu {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class ProfileFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "kazeia-profile-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = (folder_ / "profile.json").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void put(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  std::string get(const std::string& path) const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_;
  std::string path_;
};

SelfCheckVerdict good_check() {
  return {true, "", "2026-11-30T20:15:00Z", "0.1.0", "b11118", "abc"};
}

Profile filled() {
  Profile profile;
  profile.device = {"v79"};
  profile.prefill_min_tokens = 64;
  profile.placement.set(OpClass::kNorm, false);
  profile.placement.set(OpClass::kRecurrent, true);
  profile.self_check = good_check();
  profile.self_check->passed = false;
  profile.self_check->finding = "logits differ";
  profile.failures = {9, 3, 2, "the session was lost", "2026-11-29T08:00:00Z"};
  return profile;
}

TEST(Profile, SendsTheRecurrentOperationsToTheCpuByDefault) {
  const Profile profile;
  EXPECT_EQ(profile.prefill_min_tokens, 32);
  for (std::size_t i = 0; i < kOpClasses; ++i)
    EXPECT_EQ(profile.placement.allows(op_class_at(i)), op_class_at(i) != OpClass::kRecurrent);
}

TEST_F(ProfileFile, ComesBackAsItWasWritten) {
  ASSERT_TRUE(write_profile(path_, filled()).ok());
  const LoadedProfile loaded = read_profile(path_);
  EXPECT_EQ(loaded.note, "");
  const Profile& profile = loaded.profile;
  EXPECT_EQ(profile.device, filled().device);
  EXPECT_EQ(profile.prefill_min_tokens, 64);
  EXPECT_EQ(profile.placement.on_npu, filled().placement.on_npu);
  ASSERT_TRUE(profile.self_check.has_value());
  EXPECT_FALSE(profile.self_check->passed);
  EXPECT_EQ(profile.self_check->finding, "logits differ");
  EXPECT_EQ(profile.self_check->time, "2026-11-30T20:15:00Z");
  EXPECT_EQ(profile.self_check->engine_version, "0.1.0");
  EXPECT_EQ(profile.self_check->upstream_version, "b11118");
  EXPECT_EQ(profile.self_check->model_hash, "abc");
  EXPECT_EQ(profile.failures.count, 9u);
  EXPECT_EQ(profile.failures.consecutive, 3u);
  EXPECT_EQ(profile.failures.starts_since, 2u);
  EXPECT_EQ(profile.failures.last_reason, "the session was lost");
  EXPECT_EQ(profile.failures.last_time, "2026-11-29T08:00:00Z");
  EXPECT_THAT(get(path_), HasSubstr("\"recurrent\": \"npu\""));
}

TEST_F(ProfileFile, IsForItsOwnerOnly) {
  const mode_t before = ::umask(0);
  ASSERT_TRUE(write_profile(path_, {}).ok());
  ::umask(before);
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
}

TEST_F(ProfileFile, IsMadeWithItsFolder) {
  const std::string path = (folder_ / "a" / "b" / "profile.json").string();
  EXPECT_EQ(update_profile(path, record_skip).note, "");
  EXPECT_EQ(read_profile(path).profile.failures.starts_since, 1u);
}

TEST_F(ProfileFile, GivesDefaultsAndALineWhenItIsMissing) {
  const LoadedProfile loaded = read_profile(path_);
  EXPECT_THAT(loaded.note, HasSubstr("no NPU profile at"));
  EXPECT_EQ(loaded.profile.prefill_min_tokens, 32);
}

TEST_F(ProfileFile, GivesDefaultsAndALineWhenItIsDamaged) {
  const std::string bad[] = {
      "",
      "{",
      "[]",
      "null",
      "{}",
      "\xff\xfe\x00",
      std::string(200'000, '['),
      R"({"format": "1"})",
      R"({"format": 0})",
      R"({"format": 1, "prefill_min_tokens": 0})",
      R"({"format": 1, "prefill_min_tokens": 70000})",
      R"({"format": 1, "prefill_min_tokens": 1e300})",
      R"({"format": 1, "placement": {"matmull": "npu"}})",
      R"({"format": 1, "placement": {"matmul": "gpu"}})",
      R"({"format": 1, "placement": {"matmul": true}})",
      R"({"format": 1, "placement": []})",
      R"({"format": 1, "device": "v79"})",
      R"({"format": 1, "device": {"arch": 79}})",
      R"({"format": 1, "self_check": null})",
      R"({"format": 1, "self_check": {"passed": 1}})",
      R"({"format": 1, "failures": {"consecutive": -1}})",
      R"({"format": 1, "failures": {"count": 1.5}})",
  };
  for (const std::string& text : bad) {
    put(text);
    const LoadedProfile loaded = read_profile(path_);
    EXPECT_THAT(loaded.note, HasSubstr("damaged")) << text.substr(0, 80);
    EXPECT_EQ(loaded.note.find('\n'), std::string::npos);
    EXPECT_EQ(loaded.profile.failures.count, 0u);
    EXPECT_TRUE(loaded.profile.placement.allows(OpClass::kMatmul));
    EXPECT_TRUE(should_try(loaded.profile).should_try);
  }
}

TEST_F(ProfileFile, NamesWhatIsDamaged) {
  put(R"({"format": 1, "placement": {"matmul": "gpu"}})");
  EXPECT_THAT(read_profile(path_).note, HasSubstr("placement: 'matmul' is neither"));
}

TEST_F(ProfileFile, IsNotAFolder) {
  ASSERT_TRUE(std::filesystem::create_directory(path_));
  EXPECT_THAT(read_profile(path_).note, HasSubstr("is a directory"));
  const LoadedProfile updated = update_profile(path_, record_skip);
  EXPECT_EQ(updated.profile.failures.starts_since, 1u);
}

TEST_F(ProfileFile, IgnoresWhatItDoesNotKnow) {
  put(R"({"format": 1, "mood": "good", "prefill_min_tokens": 48})");
  const LoadedProfile loaded = read_profile(path_);
  EXPECT_EQ(loaded.note, "");
  EXPECT_EQ(loaded.profile.prefill_min_tokens, 48);
}

TEST_F(ProfileFile, KeepsADamagedFileAside) {
  put(R"({"format": 1, "placement": {"matmul": "gpu"}})");
  const LoadedProfile updated = update_profile(path_, record_skip);
  EXPECT_THAT(updated.note, HasSubstr("damaged"));
  EXPECT_THAT(get(path_ + ".damaged"), HasSubstr("gpu"));
  EXPECT_EQ(read_profile(path_).note, "");
}

TEST_F(ProfileFile, LeavesANewerEnginesFileAlone) {
  const std::string text = R"({"format": 2, "prefill_min_tokens": "auto"})";
  put(text);
  EXPECT_THAT(update_profile(path_, record_skip).note, HasSubstr("format 2"));
  EXPECT_EQ(get(path_), text);
}

TEST_F(ProfileFile, NeverStopsTheUserWhenItCannotBeKept) {
  for (const std::string& path : {std::string(), std::string("/proc/kazeia/profile.json")}) {
    const LoadedProfile updated =
        update_profile(path, [](Profile& profile) { record_failure(profile, "lost", "2026-11-30T00:00:00Z"); });
    EXPECT_THAT(updated.note, HasSubstr("not kept")) << path;
    EXPECT_EQ(updated.profile.failures.count, 1u);
  }
}

TEST_F(ProfileFile, TakesWhateverBytesAReasonHas) {
  update_profile(path_, [](Profile& profile) { record_failure(profile, "error \xff\xfe \"\n", "t"); });
  const LoadedProfile loaded = read_profile(path_);
  EXPECT_EQ(loaded.note, "");
  EXPECT_THAT(loaded.profile.failures.last_reason, HasSubstr("error "));
}

TEST_F(ProfileFile, CountsEveryUpdateOfManyProcesses) {
  constexpr int kProcesses = 6;
  constexpr int kUpdates = 25;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      bool fine = true;
      for (int n = 0; n < kUpdates; ++n) {
        const LoadedProfile updated = update_profile(
            path_, [](Profile& profile) { record_failure(profile, "x", "t"); }, std::chrono::minutes(5));
        fine = updated.note.empty() && fine;
      }
      ::_exit(fine ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(read_profile(path_).profile.failures.count, kProcesses * kUpdates);
  for (const auto& entry : std::filesystem::directory_iterator(folder_))
    EXPECT_EQ(entry.path().filename().string().find(".partial"), std::string::npos);
}

TEST_F(ProfileFile, IsNotBlockedForeverByAnotherProcess) {
  const int fd = ::open((path_ + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  update_profile(path_, record_skip, std::chrono::milliseconds(50));
  EXPECT_EQ(read_profile(path_).profile.failures.starts_since, 1u);
  ::close(fd);
}

TEST(ProfilePath, IsTheOptionThenTheVariableThenTheStateFolder) {
  const char* names[] = {"KAZEIA_PROFILE", "XDG_STATE_HOME", "HOME"};
  std::vector<std::string> before;
  for (const char* name : names) before.emplace_back(std::getenv(name) == nullptr ? "" : std::getenv(name));
  ::setenv("KAZEIA_PROFILE", "/k/p.json", 1);
  ::setenv("XDG_STATE_HOME", "/state", 1);
  ::setenv("HOME", "/home/u", 1);
  EXPECT_EQ(profile_path("/o.json"), "/o.json");
  EXPECT_EQ(profile_path(""), "/k/p.json");
  ::unsetenv("KAZEIA_PROFILE");
  EXPECT_EQ(profile_path(""), "/state/kazeia/profile.json");
  ::setenv("XDG_STATE_HOME", "relative", 1);
  EXPECT_EQ(profile_path(""), "/home/u/.local/state/kazeia/profile.json");
  ::unsetenv("XDG_STATE_HOME");
  EXPECT_EQ(profile_path(""), "/home/u/.local/state/kazeia/profile.json");
  ::unsetenv("HOME");
  EXPECT_EQ(profile_path(""), "");
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (!before[i].empty()) ::setenv(names[i], before[i].c_str(), 1);
  }
}

// How many starts in a row leave the device alone.
int starts_left_alone(Profile profile) {
  int starts = 0;
  while (!should_try(profile).should_try) {
    record_skip(profile);
    ++starts;
  }
  return starts;
}

TEST(ProfileRetry, LeavesTheDeviceAloneLongerAfterEachFailure) {
  Profile profile;
  EXPECT_EQ(starts_left_alone(profile), 0);
  for (const int expected : {1, 3, 7, 15, 31, 31, 31}) {
    record_failure(profile, "hang", "t");
    EXPECT_EQ(starts_left_alone(profile), expected);
  }
  for (int i = 0; i < 100; ++i) record_failure(profile, "hang", "t");
  EXPECT_EQ(starts_left_alone(profile), 31);
  EXPECT_EQ(profile.failures.count, 107u);
}

TEST(ProfileRetry, SaysWhyNot) {
  Profile profile;
  EXPECT_EQ(should_try(profile).why_not, "");
  record_failure(profile, "the session was lost", "2026-11-30T20:15:00Z");
  EXPECT_EQ(should_try(profile).why_not,
            "the NPU failed at 2026-11-30T20:15:00Z (the session was lost); it is left alone for this start");
  record_failure(profile, "no answer", "2026-12-01T00:00:00Z");
  EXPECT_EQ(should_try(profile).why_not,
            "the NPU failed 2 times in a row, last at 2026-12-01T00:00:00Z (no answer); it is left alone for this "
            "start and 2 more");
  record_skip(profile);
  record_skip(profile);
  EXPECT_THAT(should_try(profile).why_not, HasSubstr("for this start"));
  record_skip(profile);
  EXPECT_TRUE(should_try(profile).should_try);
}

TEST(ProfileRetry, StartsAfreshAfterAGoodCheckAndACompletedRun) {
  Profile profile;
  record_failure(profile, "hang", "t");
  record_failure(profile, "hang", "t");
  record_success(profile);  // never checked
  EXPECT_EQ(profile.failures.consecutive, 2u);
  SelfCheckVerdict bad = good_check();
  bad.passed = false;
  record_self_check(profile, bad);
  record_success(profile);
  EXPECT_EQ(profile.failures.consecutive, 2u);
  record_self_check(profile, good_check());
  EXPECT_EQ(profile.failures.consecutive, 2u) << "a check alone is not a run";
  record_success(profile);
  EXPECT_TRUE(should_try(profile).should_try);
  EXPECT_EQ(profile.failures.count, 2u) << "history stays";
  record_failure(profile, "hang", "t");
  EXPECT_EQ(starts_left_alone(profile), 1);
}

TEST(ProfileRetry, StartsAfreshOnAnotherDevice) {
  Profile profile;
  record_device(profile, {"v79"});
  record_self_check(profile, good_check());
  record_failure(profile, "hang", "t");
  record_device(profile, {""});
  record_device(profile, {"v79"});
  EXPECT_EQ(profile.failures.consecutive, 1u) << "unknown is no change";
  EXPECT_EQ(profile.device.arch, "v79");
  record_device(profile, {"v81"});
  EXPECT_EQ(profile.failures.consecutive, 0u);
  EXPECT_FALSE(profile.self_check.has_value());
  EXPECT_EQ(profile.device.arch, "v81");
}

TEST(Profile, WritesTimesInUtc) {
  EXPECT_THAT(utc_now(), MatchesRegex("20[0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]Z"));
}

}  // namespace
}  // namespace kazeia::npu
