// `kazeia why`, and that what it says is what a run uses.

#include <chrono>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "bench/identity.h"
#include "bench/tuned_profile.h"
#include "cli_program.h"

namespace kazeia::cli_test {
namespace {

using Json = nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;

constexpr const char* kRecord = "0123456789ab";

class Why : public testing::Test {
 protected:
  // As `kazeia tune` leaves things: the model's hash is remembered, and the profile holds its choices.
  void tune(const std::vector<bench::TunedChoice>& choices) {
    bench::TunedProfile profile;
    profile.machine_id = bench::machine_identity().id;
    profile.model_hash = hash();
    profile.engine_version = "1.2.3";
    profile.upstream_version = "llama.cpp 1.2.3, ggml 4.5.6";
    profile.time = "2026-11-30T23:10:05Z";
    profile.choices = choices;
    const Status written = bench::write_tuned(tuned(), profile);
    ASSERT_TRUE(written.ok()) << written.error().sentence();
  }
  static bench::TunedChoice choice(const std::string& setting, const std::string& value, const std::string& instead) {
    return {setting, value, instead, kRecord, "decode_1024", {1.082, 1.051, 1.113}};
  }

  std::string tuned() const { return scratch_.path("tuned"); }
  std::string model() const { return scratch_.path("model.gguf"); }
  Outcome run(const std::vector<std::string>& arguments) const {
    Conditions conditions;
    conditions.environment = {"KAZEIA_TUNED=" + tuned(), "KAZEIA_SESSIONS=" + scratch_.path("sessions"),
                              "KAZEIA_PROFILE=" + scratch_.path("npu.json")};
    return cli_test::run(arguments, conditions);
  }
  Outcome why(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "why");
    return run(arguments);
  }
  Json setting(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    const Outcome outcome = why(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const Json json = Json::parse(outcome.out, nullptr, false);
    EXPECT_EQ(json["settings"].size(), 1U) << outcome.out;
    return json["settings"].empty() ? Json() : json["settings"][0];
  }
  Json settings_of_a_run(const std::vector<std::string>& flags = {}) const {
    std::vector<std::string> arguments{"run", model(), "-p", "Hi", "--max-tokens", "2", "--json"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return Json::parse(outcome.out, nullptr, false)["settings"];
  }

  void SetUp() override {
    std::filesystem::copy_file(model_path(kHybrid), model());
    // A file that changed this very moment is not remembered.
    const auto earlier = std::filesystem::last_write_time(model()) - std::chrono::hours(1);
    std::filesystem::last_write_time(model(), earlier);
    std::this_thread::sleep_for(std::chrono::milliseconds(80));
  }

 private:
  // A probe that is asked for the hash remembers it in the folder it is given.
  std::string hash() const {
    const Outcome outcome = run({"probe", model(), "1", "256", "--hash-memo", scratch_.path("sessions") + "/.models"});
    const std::size_t at = outcome.out.find("model_hash");
    EXPECT_NE(at, std::string::npos) << outcome.all();
    if (at == std::string::npos) return {};
    const std::size_t first = outcome.out.find_first_of("0123456789abcdef", outcome.out.find(':', at));
    return outcome.out.substr(first, 32);
  }
  Scratch scratch_;
};

TEST_F(Why, WithoutAModelTellsTheDefaultsAndTheirRecords) {
  const Outcome table = why({});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, ContainsRegex("flash_attention +on +built-in, decision 0011: "));
  EXPECT_THAT(table.out, ContainsRegex("kv +f16 +built-in, unmeasured: "));
  EXPECT_THAT(table.out, ContainsRegex("checkpoint_memory +256MB +built-in, decision 0018: "));
  EXPECT_EQ(table.err, "");
  const Outcome one = why({"flash_attention"});
  EXPECT_THAT(one.out, HasSubstr("flash_attention is on: attention in one fused step.\n"));
  EXPECT_THAT(one.out, HasSubstr("rests on decision 0011"));
  EXPECT_EQ(why({"moon_phase"}).exit_code, 3);  // a model that is not there
  const Outcome unknown = why({model(), "moon_phase"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("there is no setting 'moon_phase'"));
}

TEST_F(Why, TellsWhatWasAskedForFromWhatWasNot) {
  const Json kv = setting({model(), "kv", "--kv", "q8_0"});
  EXPECT_EQ(kv["value"], "q8_0");
  EXPECT_EQ(kv["from"], "asked");
  EXPECT_EQ(kv["default"], "f16");
  EXPECT_EQ(kv["measured"], false);
  EXPECT_EQ(setting({model(), "ubatch", "--kv", "q8_0"})["from"], "built-in");
  EXPECT_EQ(setting({model(), "context"})["value"], "2048");  // what it was trained with
  for (const char* phase : {"prefill_threads", "decode_threads"}) {
    EXPECT_EQ(setting({model(), phase, "--threads", "3"})["value"], "3");
    EXPECT_EQ(setting({model(), phase, "--threads", "3"})["from"], "asked");
  }
  EXPECT_EQ(setting({model(), "decode_threads", "--threads", "3", "--decode-threads", "1"})["value"], "1");
  EXPECT_EQ(setting({model(), "prefill_threads", "--threads", "3", "--decode-threads", "1"})["value"], "3");
  EXPECT_EQ(setting({"poll", "--poll", "50"})["value"], "50");
  EXPECT_EQ(setting({"cores", "--cores", "1,0"})["value"], "0-1");
  EXPECT_EQ(setting({"checkpoint_memory", "--checkpoint-memory", "1MB"})["value"], "1MB");
}

TEST_F(Why, TellsATunedChoiceWithItsRecordAndItsGain) {
  tune({choice("decode_threads", "1", "2"), choice("ubatch", "128", "512")});
  const Json decode = setting({model(), "decode_threads"});
  EXPECT_EQ(decode["value"], "1");
  EXPECT_EQ(decode["from"], "tuned");
  EXPECT_EQ(decode["tuned"]["record"], kRecord);
  EXPECT_EQ(decode["tuned"]["gain"]["low"], 1.051);
  const Outcome table = why({model()});
  EXPECT_THAT(table.out, HasSubstr("tuned, record 0123456789ab: decode_1024 1.082 times as good (1.051 to 1.113)"));
  const Outcome one = why({model(), "decode_threads"});
  EXPECT_THAT(one.out, HasSubstr("1 instead of 2 makes decode_1024 1.082 times as good"));
  EXPECT_THAT(one.out, HasSubstr("not in the ledger"));

  const Json used = settings_of_a_run();
  EXPECT_EQ(used["decode_threads"], (Json{{"value", "1"}, {"from", "tuned"}}));
  EXPECT_EQ(used["ubatch"], (Json{{"value", "128"}, {"from", "tuned"}}));
  EXPECT_EQ(used["kv"]["from"], "built-in");
}

TEST_F(Why, LetsTheUserOverruleAndSaysWhatWasOverruled) {
  tune({choice("ubatch", "128", "512"), choice("cores", "0", "all")});
  const Json ubatch = setting({model(), "ubatch", "--ubatch", "64"});
  EXPECT_EQ(ubatch["value"], "64");
  EXPECT_EQ(ubatch["from"], "asked");
  EXPECT_EQ(ubatch["tuned"]["value"], "128");
  // A choice that does not go with what was asked for is left out instead of stopping the user.
  const Json cores = setting({model(), "cores", "--threads", "2"});
  EXPECT_EQ(cores["value"], "all");
  EXPECT_EQ(cores["from"], "built-in");
  EXPECT_EQ(settings_of_a_run({"--threads", "2"})["cores"]["value"], "all");

  const Json plain = setting({model(), "ubatch", "--no-profile"});
  EXPECT_EQ(plain["value"], "512");
  EXPECT_EQ(plain["from"], "built-in");
  EXPECT_EQ(plain["tuned"], nullptr);
  EXPECT_EQ(settings_of_a_run({"--no-profile"})["ubatch"]["value"], "512");
}

TEST_F(Why, GoesOnWithoutAProfileThatIsDamagedOrOfAnotherMachineAndSaysSoInOneLine) {
  tune({choice("ubatch", "128", "512")});
  const auto file = std::filesystem::directory_iterator(tuned())->path();
  const std::string good = read_file(file);
  std::filesystem::resize_file(file, good.size() / 2);
  const Outcome damaged = why({model(), "ubatch"});
  EXPECT_EQ(damaged.exit_code, 0);
  EXPECT_EQ(damaged.error_lines(), 1U) << damaged.err;
  EXPECT_THAT(damaged.out, HasSubstr("ubatch is 512"));
  const Outcome run_it = run({"run", model(), "-p", "Hi", "--max-tokens", "2", "--quiet"});
  EXPECT_EQ(run_it.exit_code, 0);
  EXPECT_EQ(run_it.error_lines(), 1U) << run_it.err;

  // Of another machine: a file of another name, or one that was copied over.
  const std::string foreign = bench::tuned_path(tuned(), "00000000", std::string(32, '0'));
  std::filesystem::rename(file, foreign);
  const Outcome none = why({model(), "ubatch"});
  EXPECT_THAT(none.out, HasSubstr("ubatch is 512"));
  EXPECT_EQ(none.err, "");
}

TEST_F(Why, ForgetsAModelThatChanged) {
  tune({choice("ubatch", "128", "512")});
  EXPECT_EQ(setting({model(), "ubatch"})["value"], "128");
  std::filesystem::last_write_time(model(), std::filesystem::file_time_type::clock::now());
  EXPECT_EQ(setting({model(), "ubatch"})["value"], "512");
}

TEST_F(Why, PlansTheMemoryOfTheTunedSettings) {
  // The whole peak has measured parts in it, which are never twice the same.
  const auto compute = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> arguments{"plan", model(), "--json"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return Json::parse(run(arguments).out, nullptr, false)["parts"]["compute"].get<std::uint64_t>();
  };
  const std::uint64_t plain = compute({});
  tune({choice("ubatch", "64", "512")});
  EXPECT_LT(compute({}), plain);
  EXPECT_EQ(compute({}), compute({"--no-profile", "--ubatch", "64"}));
  EXPECT_EQ(compute({"--no-profile"}), plain);
}

TEST_F(Why, IsToldByAChatToo) {
  tune({choice("ubatch", "128", "512"), choice("checkpoint_memory", "1MB", "256MB")});
  Conditions conditions;
  conditions.input = "/stats\n";
  conditions.environment = {"KAZEIA_TUNED=" + tuned(),
                            "KAZEIA_SESSIONS=" + std::filesystem::path(tuned()).parent_path().string() + "/sessions"};
  const Outcome text = cli_test::run({"chat", model(), "--kv", "q8_0"}, conditions);
  EXPECT_THAT(text.all(), HasSubstr("settings     ubatch 128 (tuned), kv q8_0 (asked), checkpoint_memory 1MB (tuned)"));
  const Outcome json = cli_test::run({"chat", model(), "--json", "--no-profile"}, conditions);
  const Json stats = Json::parse(json.out, nullptr, false);
  EXPECT_EQ(stats["settings"]["ubatch"]["value"], "512");
  EXPECT_EQ(stats["session"]["memory_budget_bytes"], 256U << 20);
}

TEST_F(Why, DoesNotReachAProbe) {
  tune({choice("ubatch", "128", "512")});
  const Outcome probe = run({"probe", model(), "1", "256", "prefill:32", "--set", "poll=0", "--set", "huge_pages=off",
                             "--set", "flash_attention=off", "--set", "cores=0", "--set", "checkpoint_spacing=64"});
  EXPECT_EQ(probe.exit_code, 0) << probe.err;
  for (const auto& [text, complaint] :
       {std::pair{"moon_phase=full", "there is no setting 'moon_phase'"}, std::pair{"poll", "'poll' is not a setting"},
        std::pair{"poll=101", "'101' is not a value of it. Give off, or a number from 0 to 100"},
        std::pair{"kv=f17", "Give f16, q8_0 or q4_0"}, std::pair{"cores=x", "'x' is not a list of cores"}}) {
    const Outcome refused = run({"probe", model(), "1", "256", "--set", text});
    EXPECT_EQ(refused.exit_code, 2) << text;
    EXPECT_THAT(refused.err, HasSubstr(complaint));
  }
}

TEST_F(Why, RefusesAFlagThatIsNoValueOfItsSetting) {
  for (const auto& flags : std::vector<std::vector<std::string>>{{"--poll", "101"},
                                                                 {"--cores", "1-"},
                                                                 {"--cores", "1000"},
                                                                 {"--flash-attention", "maybe"},
                                                                 {"--huge-pages", "1"},
                                                                 {"--npu-min-width", "0"},
                                                                 {"--ubatch", "0"},
                                                                 {"--context", "0"},
                                                                 {"--kv", "f17"},
                                                                 {"--prefill-threads", "0"},
                                                                 {"--kv", "q8_0", "--flash-attention", "off"}}) {
    std::vector<std::string> arguments{"run", model(), "-p", "Hi"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << flags[0] << outcome.all();
    EXPECT_EQ(outcome.out, "");
  }
}

// Threads that look out for work must not do so while a person types. (Without the work of an idle time, which takes as
// long as the machine is busy.)
TEST_F(Why, LeavesAChatThatWaitsWithoutWork) {
  Piped chat({"chat", model(), "--threads", "2", "--poll", "100", "--json", "--max-tokens", "4", "--temp", "0",
              "--no-read-ahead"});
  chat.send("What is the capital of France?");
  ASSERT_TRUE(chat.read_line().has_value()) << chat.errors();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto ticks = [&] {
    const std::string stat = read_file("/proc/" + std::to_string(chat.process()) + "/stat");
    std::istringstream fields(stat.substr(stat.rfind(')') + 2));
    std::vector<std::string> words{std::istream_iterator<std::string>(fields), {}};
    return std::stol(words.at(11)) + std::stol(words.at(12));  // user and system, in 1/100 s
  };
  const long before = ticks();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LE(ticks() - before, 5);
  chat.end_input();
  EXPECT_EQ(chat.wait_for_exit(), 0);
}

}  // namespace
}  // namespace kazeia::cli_test
