// Drives the real program: through pipes, with limits, or on a pseudo terminal.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace kazeia::cli_test {

inline const std::string kDense = "kazeia-mini-qwen3-q4_0.gguf";
inline const std::string kHybrid = "kazeia-mini-qwen35-q4_0.gguf";

std::string model_path(const std::string& name);  // of a shipped model

struct Conditions {
  std::string input{};                              // all of stdin
  std::string stdout_file{};                        // written instead of captured, if not empty
  std::optional<std::uint64_t> file_size_limit{};   // bytes; 0 = nothing can be written to a file
  bool close_stdout_after_first_byte = false;       // as `head -c 1` does
  std::vector<std::string> environment{};           // "NAME=value"
  std::function<void(pid_t)> after_first_output{};  // called once stdout has brought something
  std::chrono::milliseconds interrupt_after{0};     // a signal then; 0 = never
  int interrupt_signal = SIGINT;
  std::function<void()> in_child{};  // called between fork and exec; only system calls
};

struct Outcome {
  int exit_code = -1;  // 128 + signal if it was killed
  std::string out;
  std::string err;
  std::size_t error_lines() const;
  std::string all() const { return out + err; }
};

// Runs to the end, at most two minutes (then it is killed and the test fails).
Outcome run(const std::vector<std::string>& arguments, const Conditions& setup = {});

// The program on a terminal of its own.
class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {});
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& keys);
  // Until `text` has appeared behind everything that was waited for before; false after 30 s.
  bool wait_for(const std::string& text);
  int wait_for_exit();                                   // as Outcome::exit_code
  const std::string& screen() const { return screen_; }  // every byte so far

 private:
  bool read_some();

  int descriptor_ = -1;
  pid_t process_ = -1;
  std::string screen_;
  std::size_t seen_ = 0;
};

// The program through pipes, line by line, while it runs.
class Piped {
 public:
  explicit Piped(const std::vector<std::string>& arguments, const std::function<void()>& in_child = {});
  ~Piped();
  Piped(const Piped&) = delete;
  Piped& operator=(const Piped&) = delete;

  void send(const std::string& line);  // one that nobody reads any more is lost
  void end_input();
  // The next line of stdout; nullopt if its end comes first, or nothing for 30 s. Lines that were complete when the
  // program was killed are still there.
  std::optional<std::string> read_line();
  int kill();                  // both as Outcome::exit_code
  int wait_for_exit();         // killed after 30 s
  std::string errors() const;  // all of stderr so far
  pid_t process() const { return process_; }

 private:
  pid_t process_ = -1;
  int input_ = -1;
  int output_ = -1;
  int errors_ = -1;
  std::string pending_;
};

// A folder that is removed with everything in it.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string write(const std::string& name, const std::string& bytes) const;  // its path
  std::vector<std::string> names() const;

 private:
  std::string folder_;
};

std::string read_file(const std::string& path);

}  // namespace kazeia::cli_test
