#include "bench/tuned_profile.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace kazeia::bench {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

const std::string kMachine = "1a2b3c4d";
const std::string kModel = "00112233445566778899aabbccddeeff";

TunedProfile sample_profile() {
  TunedProfile profile;
  profile.machine_id = kMachine;
  profile.model_hash = kModel;
  profile.engine_version = "0.1.0";
  profile.upstream_version = "llama.cpp b6000";
  profile.time = "2026-11-30T23:10:05Z";
  profile.choices = {{"decode_threads", "1", "2", "0123456789ab", "decode_1024", {1.08, 1.05, 1.11}},
                     {"poll", "50", "off", "ba9876543210", "decode_1024", {1.04, 1.02, 1.05}}};
  return profile;
}

class Tuned : public ::testing::Test {
 protected:
  Tuned() {
    std::string folder = (std::filesystem::temp_directory_path() / "kazeia-tuned-XXXXXX").string();
    root_ = ::mkdtemp(folder.data());
  }
  ~Tuned() override { std::filesystem::remove_all(root_); }

  std::string folder() const { return root_ + "/state/tuned"; }
  std::string path() const { return tuned_path(folder(), kMachine, kModel); }
  LoadedTunedProfile read() const { return read_tuned(folder(), kMachine, kModel); }
  void put(const std::string& text) const {
    std::filesystem::create_directories(folder());
    std::filesystem::remove(path());  // a file that is truncated goes to the disk at once, which takes its time
    std::ofstream(path(), std::ios::binary) << text;
  }
  std::string text() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // What is said of a good file in which `change` was made.
  std::string note_after(const std::function<void(Json&)>& change) const {
    EXPECT_TRUE(write_tuned(folder(), sample_profile()).ok());
    Json json = Json::parse(text());
    change(json);
    put(json.dump());
    const LoadedTunedProfile loaded = read();
    EXPECT_FALSE(loaded.profile.has_value()) << json.dump();
    return loaded.note;
  }

  std::string root_;
};

unsigned mode_of(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777U;
}

TEST_F(Tuned, IsReadAsItWasWritten) {
  ASSERT_TRUE(write_tuned(folder(), sample_profile()).ok());
  const LoadedTunedProfile loaded = read();
  ASSERT_TRUE(loaded.profile.has_value()) << loaded.note;
  EXPECT_EQ(loaded.note, "");
  EXPECT_EQ(loaded.profile->choices, sample_profile().choices);
  EXPECT_EQ(loaded.profile->time, "2026-11-30T23:10:05Z");
  ASSERT_NE(loaded.profile->find("poll"), nullptr);
  EXPECT_EQ(loaded.profile->find("poll")->value, "50");
  EXPECT_EQ(loaded.profile->find("ubatch"), nullptr);
}

TEST_F(Tuned, IsItsOwnersAlone) {
  ASSERT_TRUE(write_tuned(folder(), sample_profile()).ok());
  EXPECT_EQ(mode_of(path()), 0600U);
  EXPECT_EQ(mode_of(folder()), 0700U);
}

TEST_F(Tuned, MissingIsNoneWithoutAWord) {
  EXPECT_FALSE(read().profile.has_value());
  EXPECT_EQ(read().note, "");
  EXPECT_EQ(read_tuned("", kMachine, kModel).note, "");
  // Nobody's hash: no path is made of it.
  EXPECT_EQ(read_tuned(folder(), kMachine, "../../etc/passwd").note, "");
}

TEST_F(Tuned, OfAnotherMachineOrModelIsNone) {
  EXPECT_THAT(note_after([](Json& json) { json["machine_id"] = "deadbeef"; }),
              HasSubstr("it is of the machine deadbeef"));
  EXPECT_THAT(note_after([](Json& json) { json["model_hash"] = std::string(32, 'a'); }),
              HasSubstr("it is of another model"));
}

TEST_F(Tuned, OfANewerEngineIsNone) {
  EXPECT_THAT(note_after([](Json& json) {
                json["profile"] = 2;
                json["anything"] = "else";
              }),
              HasSubstr("a newer engine wrote it"));
}

TEST_F(Tuned, WithAChoiceThisEngineDoesNotKnowIsUsedWithoutIt) {
  TunedProfile profile = sample_profile();
  profile.choices[0].setting = "moon_phase";
  ASSERT_TRUE(write_tuned(folder(), profile).ok());
  const LoadedTunedProfile loaded = read();
  ASSERT_TRUE(loaded.profile.has_value());
  ASSERT_EQ(loaded.profile->choices.size(), 1U);
  EXPECT_EQ(loaded.profile->choices[0], profile.choices[1]);
  EXPECT_THAT(loaded.note, HasSubstr("moon_phase"));
}

TEST_F(Tuned, RefusesWhatBreaksARule) {
  const auto expect_refused = [&](const char* reason, const std::function<void(Json&)>& change) {
    EXPECT_THAT(note_after(change), HasSubstr(reason));
  };
  const auto first = [](Json& json) -> Json& { return json["choices"][0]; };
  expect_refused("unknown field \"colour\"", [](Json& json) { json["colour"] = 1; });
  expect_refused("unknown field \"colour\"", [&](Json& json) { first(json)["colour"] = 1; });
  expect_refused("has no \"time\"", [](Json& json) { json.erase("time"); });
  expect_refused("\"value\" is not a string", [&](Json& json) { first(json)["value"] = 1; });
  expect_refused("\"choices\" is not an array", [](Json& json) { json["choices"] = Json::object(); });
  expect_refused("its time is none", [](Json& json) { json["time"] = "2026-02-30T23:10:05Z"; });
  expect_refused("12 hexadecimal digits", [&](Json& json) { first(json)["record"] = "yesterday"; });
  expect_refused("no interval above 1", [&](Json& json) { first(json)["gain"]["low"] = 0.99; });
  expect_refused("no interval above 1", [&](Json& json) { first(json)["gain"]["high"] = 1e300; });
  expect_refused("no interval above 1", [&](Json& json) { first(json)["gain"]["median"] = -5; });
  expect_refused("poll is chosen twice", [&](Json& json) { first(json)["setting"] = "poll"; });
  expect_refused("no short text", [&](Json& json) { first(json)["value"] = std::string(1000, '1'); });
  expect_refused("no short text", [&](Json& json) { first(json)["value"] = "\x1b[31m"; });
  expect_refused("too many choices", [&](Json& json) {
    for (int i = 0; i < 100; ++i) {
      json["choices"].push_back(first(json));
      json["choices"].back()["setting"] = fmt::format("s{}", i);
    }
  });
  expect_refused("it has no \"profile\"", [](Json& json) { json["profile"] = "1"; });
  expect_refused("it has no \"profile\"", [](Json& json) { json["profile"] = -1; });
}

TEST_F(Tuned, DamagedIsNoneAndOneLineThatSaysSo) {
  ASSERT_TRUE(write_tuned(folder(), sample_profile()).ok());
  const std::string good = text();
  for (std::size_t length = 0; length + 2 < good.size(); ++length) {
    put(good.substr(0, length));
    const LoadedTunedProfile loaded = read();
    ASSERT_FALSE(loaded.profile.has_value()) << length;
    ASSERT_THAT(loaded.note, HasSubstr("it is damaged"));
    ASSERT_EQ(std::count(loaded.note.begin(), loaded.note.end(), '\n'), 0);
  }
  // Every bit of it, in turn: another profile, or none, and never a crash.
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string text = good;
      text[at] = static_cast<char>(text[at] ^ (1 << bit));
      put(text);
      const LoadedTunedProfile loaded = read();
      if (loaded.profile) {
        for (const TunedChoice& choice : loaded.profile->choices) ASSERT_GT(choice.gain.low, 1);
      } else {
        ASSERT_NE(loaded.note, "");
      }
    }
  }
  put(std::string(100'000, '['));
  EXPECT_THAT(read().note, HasSubstr("bytes, more than"));
  put(std::string(60'000, '['));
  EXPECT_THAT(read().note, HasSubstr("damaged"));
  put(R"({"profile": 1, "profile": 1})");
  EXPECT_THAT(read().note, HasSubstr("there twice"));
}

TEST_F(Tuned, ThatIsAFolderIsNone) {
  std::filesystem::create_directories(path());
  EXPECT_FALSE(read().profile.has_value());
  EXPECT_THAT(read().note, HasSubstr("is not used"));
}

TEST_F(Tuned, IsReplacedOrUntouched) {
  ASSERT_TRUE(write_tuned(folder(), sample_profile()).ok());
  TunedProfile broken = sample_profile();
  broken.choices[0].gain.low = 0.9;
  const Status refused = write_tuned(folder(), broken);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kWrite);
  EXPECT_EQ(read().profile->choices.size(), 2U);

  TunedProfile other = sample_profile();
  other.choices.pop_back();
  ASSERT_TRUE(write_tuned(folder(), other).ok());
  EXPECT_EQ(read().profile->choices.size(), 1U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder()), {}), 1);
}

TEST_F(Tuned, ThatCannotBeWrittenIsAnErrorThatNamesTheFolder) {
  std::ofstream(root_ + "/state") << "a file";
  const Status status = write_tuned(folder(), sample_profile());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), ErrorCode::kWrite);
  EXPECT_THAT(status.error().sentence(), HasSubstr(root_ + "/state"));
  EXPECT_EQ(write_tuned("", sample_profile()).error().code(), ErrorCode::kWrite);
}

TEST_F(Tuned, IsKeptWhereTheUserSaysOrWithTheUsersState) {
  const char* names[] = {"KAZEIA_TUNED", "XDG_STATE_HOME", "HOME"};
  std::optional<std::string> before[3];
  for (int i = 0; i < 3; ++i) {
    if (const char* value = std::getenv(names[i])) before[i] = value;
  }
  ::setenv("KAZEIA_TUNED", "/mine", 1);
  ::setenv("XDG_STATE_HOME", "/state", 1);
  ::setenv("HOME", "/home/me", 1);
  EXPECT_EQ(tuned_folder(), "/mine");
  ::unsetenv("KAZEIA_TUNED");
  EXPECT_EQ(tuned_folder(), "/state/kazeia/tuned");
  ::setenv("XDG_STATE_HOME", "relative", 1);
  EXPECT_EQ(tuned_folder(), "/home/me/.local/state/kazeia/tuned");
  ::unsetenv("XDG_STATE_HOME");
  ::unsetenv("HOME");
  EXPECT_EQ(tuned_folder(), "");
  for (int i = 0; i < 3; ++i) {
    if (before[i]) {
      ::setenv(names[i], before[i]->c_str(), 1);
    } else {
      ::unsetenv(names[i]);
    }
  }
}

}  // namespace
}  // namespace kazeia::bench
