// `kazeia sessions`, on logs that are written here by hand after docs/session_format.md.

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "cli_program.h"

namespace kazeia::cli_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

const std::string kHeader = R"({"format":"kazeia-session","version":1,"sum":"e576f4f529524a88"})"
                            "\n";
const std::string kNadia =
    kHeader +
    R"({"keep":0,"add":[{"role":"user","content":"My name is Nadia."}],"left_out":0,"at":1750000000,"sum":"01a1121b32c99e14"})"
    "\n"
    R"({"keep":1,"add":[{"role":"assistant","content":"Nice to meet you, Nadia!"}],"left_out":0,"at":1750000002,"sum":"2f30a13702a5c68c"})"
    "\n";
const std::string kWeather =
    kHeader +
    R"({"keep":0,"add":[{"role":"system","content":"Be brief."},{"role":"user","content":"Weather in Orléans?"},)"
    R"({"role":"assistant","content":"","thinking":"I should look.","tool_calls":[{"name":"weather",)"
    R"("arguments":{"city":"Orléans"},"id":"call-1"}]},{"role":"tool","content":"rain","name":"weather",)"
    R"("tool_call_id":"call-1"},{"role":"assistant","content":"It rains."}],"left_out":2,"at":1750000100,)"
    R"("sum":"ea2c16045df5c0cc"})"
    "\n";
const std::string kAlert =
    kHeader +
    R"({"keep":0,"add":[{"role":"user","content":"\u001b[31mred\u0007 alert"}],"left_out":0,"at":1750000200,"sum":"7878a91c7fc1e576"})"
    "\n";
const std::string kNewer = R"({"format":"kazeia-session","version":2,"sum":"700235e80476df53"})"
                           "\n";

class SessionsVerb : public testing::Test {
 protected:
  std::string root() const { return scratch_.path("sessions"); }
  std::string file(const std::string& name) const { return root() + "/" + name + "/messages.jsonl"; }
  void make(const std::string& name, const std::string& log) const {
    fs::create_directories(fs::path(file(name)).parent_path());
    std::ofstream(file(name), std::ios::binary) << log;
  }
  std::vector<std::string> arguments(const std::vector<std::string>& words) const {
    std::vector<std::string> all{"sessions"};
    all.insert(all.end(), words.begin(), words.end());
    all.insert(all.end(), {"--sessions-dir", root()});
    return all;
  }
  Outcome sessions(const std::vector<std::string>& words) const {
    return run(arguments(words), {.environment = {"TZ=UTC"}});
  }
  Scratch scratch_;
};

TEST_F(SessionsVerb, ListsThemInColumnsNewestFirst) {
  make("nadia", kNadia);
  make("météo 天気", kWeather);
  fs::create_directories(root() + "/nadia/state");
  std::ofstream(root() + "/nadia/state/part") << std::string(2048, 'x');
  make("later", kNewer);
  fs::last_write_time(file("later"), fs::file_time_type::clock::now());
  const Outcome outcome = sessions({"list"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  std::vector<std::string> lines;
  std::istringstream out(outcome.out);
  for (std::string line; std::getline(out, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0], "name        messages  last change         state  about");
  EXPECT_THAT(lines[1], HasSubstr("cannot be read: "));
  EXPECT_THAT(lines[1], HasSubstr("version 2"));
  EXPECT_EQ(lines[2], "météo 天気         5  2025-06-15 15:08        -  Weather in Orléans?");
  EXPECT_EQ(lines[3], "nadia              2  2025-06-15 15:06  2.0 KiB  My name is Nadia.");
}

TEST_F(SessionsVerb, ListsThemAsJson) {
  EXPECT_EQ(sessions({"list", "--json"}).out, "[]\n");
  make("nadia", kNadia);
  make("broken", "Dear diary\n");
  const Outcome outcome = sessions({"list", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json list = Json::parse(outcome.out, nullptr, false);
  ASSERT_EQ(list.size(), 2U) << outcome.out;
  EXPECT_EQ(list[0]["name"], "broken");
  EXPECT_THAT(list[0]["problem"].get<std::string>(), HasSubstr("not a message log"));
  EXPECT_EQ(list[1], Json::parse(R"({"name": "nadia", "messages": 2, "changed": 1750000002, "state_bytes": 0,
                                     "first_words": "My name is Nadia.", "problem": null})"));
}

TEST_F(SessionsVerb, FindsThemWhereTheEnvironmentSays) {
  make("nadia", kNadia);
  const Outcome own = run({"sessions", "list"}, {.environment = {"KAZEIA_SESSIONS=" + root()}});
  EXPECT_THAT(own.out, HasSubstr("nadia"));
  fs::create_directories(scratch_.path("kazeia"));
  fs::rename(root(), scratch_.path("kazeia/sessions"));
  const Outcome data =
      run({"sessions", "show", "nadia"}, {.environment = {"KAZEIA_SESSIONS=", "XDG_DATA_HOME=" + scratch_.path("")}});
  EXPECT_THAT(data.out, HasSubstr("Nice to meet you"));
  const Outcome empty = sessions({"list"});
  EXPECT_EQ(empty.exit_code, 0);
  EXPECT_EQ(empty.out, "");
  EXPECT_THAT(empty.err, HasSubstr("no sessions"));
}

TEST_F(SessionsVerb, ShowsAConversation) {
  make("weather", kWeather);
  const Outcome outcome = sessions({"show", "weather"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out,
            "[system]\nBe brief.\n\n"
            "[user]\nWeather in Orléans?\n\n"
            "[assistant]\n-> weather {\"city\":\"Orléans\"}\n\n"
            "[tool weather]\nrain\n\n"
            "[assistant]\nIt rains.\n");
  EXPECT_THAT(outcome.err, HasSubstr("leave out the first 2"));
  EXPECT_THAT(sessions({"show", "weather", "--thinking"}).out, HasSubstr("[thinking]\nI should look.\n"));
  const Json json = Json::parse(sessions({"show", "weather", "--json"}).out, nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["name"], "weather");
  EXPECT_EQ(json["left_out"], 2);
  EXPECT_EQ(json["changed"], 1750000100);
  EXPECT_EQ(json["messages"].size(), 5U);
  EXPECT_EQ(json["messages"][2]["thinking"], "I should look.");
}

TEST_F(SessionsVerb, ShowsWhatIsLeftOfADamagedOneAndChangesNothing) {
  std::string damaged = kNadia + "{\"keep\":2,\"ad";
  damaged[damaged.find("My name")] = 'm';
  make("nadia", damaged);
  const Outcome outcome = sessions({"show", "nadia"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "[assistant]\nNice to meet you, Nadia!\n");
  EXPECT_THAT(outcome.err, HasSubstr("kazeia: warning: 'nadia': line 2 is damaged and was left out.\n"));
  EXPECT_THAT(outcome.err, HasSubstr("line 4, the last one, is not complete"));
  EXPECT_EQ(read_file(file("nadia")), damaged);
}

TEST_F(SessionsVerb, DoesNothingToATerminalThatAMessageAsksFor) {
  make("alert", kAlert);
  EXPECT_THAT(sessions({"show", "alert"}).out, HasSubstr("\x1b[31mred\a alert")) << "a pipe gets what was said";
  for (const char* word : {"show", "list"}) {
    const std::vector<std::string> words =
        word == std::string("show") ? std::vector<std::string>{"show", "alert"} : std::vector<std::string>{"list"};
    Terminal terminal(arguments(words));
    EXPECT_TRUE(terminal.wait_for("alert"));
    EXPECT_EQ(terminal.wait_for_exit(), 0);
    EXPECT_THAT(terminal.screen(), HasSubstr("[31mred"));
    EXPECT_THAT(terminal.screen(), Not(HasSubstr("\x1b[31m")));
    EXPECT_THAT(terminal.screen(), Not(HasSubstr("\a")));
  }
}

TEST_F(SessionsVerb, ExportsWhatChatLoads) {
  make("nadia", kNadia);
  const Outcome piped = sessions({"export", "nadia"});
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_EQ(Json::parse(piped.out, nullptr, false)["format"], "kazeia-conversation");
  const std::string path = scratch_.path("nadia.json");
  const Outcome exported = sessions({"export", "nadia", path});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_EQ(exported.out, "");
  EXPECT_EQ(read_file(path), piped.out);

  const Outcome loaded = run({"chat", model_path(kDense), "--temp", "0", "--threads", "1"},
                             {.input = "/load " + path + "\nWhat is my name?\n"});
  EXPECT_EQ(loaded.exit_code, 0) << loaded.err;
  EXPECT_EQ(loaded.out, "Your name is Nadia.\n");

  std::ofstream(path) << "precious";
  const Outcome refused = sessions({"export", "nadia", path});
  EXPECT_EQ(refused.exit_code, 6);
  EXPECT_THAT(refused.err, HasSubstr("--force"));
  EXPECT_EQ(read_file(path), "precious");
  EXPECT_EQ(sessions({"export", "nadia", path, "--force"}).exit_code, 0);
  EXPECT_EQ(read_file(path), piped.out);
}

TEST_F(SessionsVerb, RemovesAllThatAreNamedOrNone) {
  for (const char* name : {"one", "two", "three"}) make(name, kNadia);
  const Outcome slip = sessions({"rm", "one", "tow"});
  EXPECT_EQ(slip.exit_code, 3);
  EXPECT_THAT(slip.err, HasSubstr("'two'"));
  EXPECT_TRUE(fs::exists(file("one")));
  const Outcome removed = sessions({"rm", "one", "two"});
  EXPECT_EQ(removed.exit_code, 0) << removed.err;
  EXPECT_FALSE(fs::exists(root() + "/one"));
  EXPECT_FALSE(fs::exists(root() + "/two"));
  EXPECT_TRUE(fs::exists(file("three")));
}

TEST_F(SessionsVerb, AsksOnATerminalBeforeItRemoves) {
  make("nadia", kNadia);
  for (const char* answer : {"n\n", "\n", "\x04"}) {
    Terminal terminal(arguments({"rm", "nadia"}));
    ASSERT_TRUE(terminal.wait_for("Remove 'nadia' with all messages? [y/N]"));
    terminal.type(answer);
    EXPECT_EQ(terminal.wait_for_exit(), 0);
    EXPECT_TRUE(fs::exists(file("nadia"))) << answer;
  }
  {
    Terminal terminal(arguments({"rm", "nadia"}));
    ASSERT_TRUE(terminal.wait_for("[y/N]"));
    terminal.type("\x03");
    EXPECT_EQ(terminal.wait_for_exit(), 130);
    EXPECT_TRUE(fs::exists(file("nadia")));
  }
  {
    Terminal terminal(arguments({"rm", "nadia"}));
    ASSERT_TRUE(terminal.wait_for("[y/N]"));
    terminal.type("y\n");
    EXPECT_EQ(terminal.wait_for_exit(), 0);
    EXPECT_FALSE(fs::exists(file("nadia")));
  }
  make("again", kNadia);
  Terminal terminal(arguments({"rm", "--yes", "again"}));
  EXPECT_EQ(terminal.wait_for_exit(), 0);
  EXPECT_FALSE(fs::exists(file("again")));
}

TEST_F(SessionsVerb, LeavesOneThatIsOpenAlone) {
  make("nadia", kNadia);
  const int lock = ::open((root() + "/nadia/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  ASSERT_EQ(::write(lock, "4711\n", 5), 5);
  const Outcome refused = sessions({"rm", "nadia"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.err,
            "kazeia: the session 'nadia' is open in another kazeia (process 4711). Leave it there, or use another "
            "name.\n");
  EXPECT_EQ(sessions({"show", "nadia"}).exit_code, 0);
  ::close(lock);
  EXPECT_EQ(sessions({"rm", "nadia"}).exit_code, 0);
}

TEST_F(SessionsVerb, SaysInOneSentenceWhatIsWrong) {
  make("groceries", kNadia);
  make("later", kNewer);
  fs::create_directories(root() + "/begun");
  for (const auto& [words, exit_code, reason] : std::vector<std::tuple<std::vector<std::string>, int, std::string>>{
           {{"show", "grocreies"}, 3, "Near it: 'groceries'"},
           {{"show", "../groceries"}, 2, "it contains /"},
           {{"show", "a\x1b[2J"}, 2, "U+001B"},
           {{"show", "later"}, 3, "version 2"},
           {{"show", "begun"}, 3, "nothing was said"},
           {{"export", "groceries", scratch_.path("no/such/folder.json")}, 6, "cannot write"},
           {{"rm", "..", "--yes"}, 2, "begins with a dot"}}) {
    const Outcome outcome = sessions(words);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1U) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(reason));
    EXPECT_THAT(outcome.err, Not(HasSubstr("\x1b")));
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_EQ(run({"sessions"}).exit_code, 2);
  EXPECT_EQ(sessions({"show"}).exit_code, 2);
  EXPECT_EQ(sessions({"rm"}).exit_code, 2);
  const Outcome full = run(arguments({"export", "groceries"}), {.stdout_file = "/dev/full"});
  EXPECT_EQ(full.exit_code, 6) << full.err;
}

}  // namespace
}  // namespace kazeia::cli_test
