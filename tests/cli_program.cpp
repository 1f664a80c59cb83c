#include "cli_program.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include <gtest/gtest.h>

namespace kazeia::cli_test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kRunLimit{120};
constexpr std::chrono::seconds kWaitLimit{30};

[[noreturn]] void execute(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
  const char* program = std::getenv("KAZEIA_PROGRAM");
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "xterm", 1);
  for (const std::string& entry : environment) {
    const std::size_t equals = entry.find('=');
    ::setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
  }
  std::vector<std::string> words{program == nullptr ? "kazeia" : program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

int exit_code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) == 0) {
      read_end = ends[0];
      write_end = ends[1];
    }
  }
  ~Pipe() {
    close_read();
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_read() { close(read_end); }
  void close_write() { close(write_end); }

 private:
  static void close(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
};

// Appends what is there; false at the end.
bool drain(int descriptor, std::string& into) {
  char bytes[4096];
  const ssize_t n = ::read(descriptor, bytes, sizeof bytes);
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) return false;
  into.append(bytes, static_cast<std::size_t>(n));
  return true;
}

}  // namespace

std::string model_path(const std::string& name) {
  const char* folder = std::getenv("KAZEIA_MODELS");
  return std::string(folder == nullptr ? "models" : folder) + "/" + name;
}

std::size_t Outcome::error_lines() const {
  return static_cast<std::size_t>(std::count(err.begin(), err.end(), '\n'));
}

Outcome run(const std::vector<std::string>& arguments, const Conditions& setup) {
  std::signal(SIGPIPE, SIG_IGN);
  Pipe in;
  Pipe out;
  Pipe err;
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGPIPE, SIG_DFL);
    ::dup2(in.read_end, STDIN_FILENO);
    ::dup2(err.write_end, STDERR_FILENO);
    int target = out.write_end;
    if (!setup.stdout_file.empty()) target = ::open(setup.stdout_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(target, STDOUT_FILENO);
    if (setup.file_size_limit) {
      const rlimit limit{*setup.file_size_limit, *setup.file_size_limit};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    if (setup.in_child) setup.in_child();
    execute(arguments, setup.environment);
  }
  in.close_read();
  out.close_write();
  err.close_write();

  Outcome outcome;
  std::size_t sent = 0;
  bool told = false;
  const auto started = Clock::now();
  const auto deadline = started + kRunLimit;
  bool interrupted = setup.interrupt_after.count() == 0;
  while (out.read_end >= 0 || err.read_end >= 0) {
    if (in.write_end >= 0 && sent == setup.input.size()) in.close_write();
    pollfd waiting[3] = {{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}, {in.write_end, POLLOUT, 0}};
    if (::poll(waiting, 3, 200) < 0 && errno != EINTR) break;
    if (!interrupted && Clock::now() >= started + setup.interrupt_after) {
      interrupted = true;
      ::kill(child, setup.interrupt_signal);
    }
    if (Clock::now() > deadline) {
      ADD_FAILURE() << "still running after two minutes";
      ::kill(child, SIGKILL);
      break;
    }
    if (waiting[2].revents != 0) {
      const ssize_t n = ::write(in.write_end, setup.input.data() + sent, setup.input.size() - sent);
      sent = n < 0 ? setup.input.size() : sent + static_cast<std::size_t>(n);
    }
    if (waiting[0].revents != 0 && !drain(out.read_end, outcome.out)) out.close_read();
    if (waiting[1].revents != 0 && !drain(err.read_end, outcome.err)) err.close_read();
    if (setup.close_stdout_after_first_byte && !outcome.out.empty()) out.close_read();
    if (!told && setup.after_first_output && !outcome.out.empty()) {
      told = true;
      setup.after_first_output(child);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  outcome.exit_code = exit_code_of(status);
  return outcome;
}

Terminal::Terminal(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
  process_ = ::forkpty(&descriptor_, nullptr, nullptr, nullptr);
  if (process_ == 0) execute(arguments, environment);
  EXPECT_GT(process_, 0);
}

Terminal::~Terminal() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  if (descriptor_ >= 0) ::close(descriptor_);
}

void Terminal::type(const std::string& keys) {
  EXPECT_EQ(::write(descriptor_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
}

bool Terminal::read_some() {
  pollfd waiting{descriptor_, POLLIN, 0};
  if (::poll(&waiting, 1, 200) <= 0) return true;
  return drain(descriptor_, screen_);
}

bool Terminal::wait_for(const std::string& text) {
  const auto deadline = Clock::now() + kWaitLimit;
  for (;;) {
    const std::size_t at = screen_.find(text, seen_);
    if (at != std::string::npos) {
      seen_ = at + text.size();
      return true;
    }
    if (Clock::now() > deadline || !read_some()) return false;
  }
}

int Terminal::wait_for_exit() {
  const auto deadline = Clock::now() + kWaitLimit;
  int status = 0;
  while (::waitpid(process_, &status, WNOHANG) == 0) {
    if (Clock::now() > deadline) return -1;
    read_some();
  }
  process_ = -1;
  return exit_code_of(status);
}

Piped::Piped(const std::vector<std::string>& arguments, const std::function<void()>& in_child)
    : errors_(::memfd_create("stderr", MFD_CLOEXEC)) {
  std::signal(SIGPIPE, SIG_IGN);
  Pipe in;
  Pipe out;
  process_ = ::fork();
  if (process_ == 0) {
    std::signal(SIGPIPE, SIG_DFL);
    ::dup2(in.read_end, STDIN_FILENO);
    ::dup2(out.write_end, STDOUT_FILENO);
    ::dup2(errors_, STDERR_FILENO);
    if (in_child) in_child();
    execute(arguments, {});
  }
  EXPECT_GT(process_, 0);
  input_ = std::exchange(in.write_end, -1);
  output_ = std::exchange(out.read_end, -1);
}

Piped::~Piped() {
  kill();
  for (const int end : {input_, output_, errors_}) {
    if (end >= 0) ::close(end);
  }
}

void Piped::send(const std::string& line) {
  const std::string bytes = line + "\n";
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(input_, bytes.data() + done, bytes.size() - done);
    if (n <= 0) return;
    done += static_cast<std::size_t>(n);
  }
}

void Piped::end_input() {
  if (input_ >= 0) ::close(std::exchange(input_, -1));
}

std::optional<std::string> Piped::read_line() {
  const auto deadline = Clock::now() + kWaitLimit;
  for (;;) {
    const std::size_t end = pending_.find('\n');
    if (end != std::string::npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    pollfd waiting{output_, POLLIN, 0};
    const bool something = ::poll(&waiting, 1, 200) > 0;
    if ((something && !drain(output_, pending_)) || Clock::now() > deadline) return std::nullopt;
  }
}

int Piped::kill() {
  if (process_ <= 0) return -1;  // it would be everybody
  ::kill(process_, SIGKILL);
  int status = 0;
  ::waitpid(std::exchange(process_, -1), &status, 0);
  return exit_code_of(status);
}

int Piped::wait_for_exit() {
  const auto deadline = Clock::now() + kWaitLimit;
  int status = 0;
  if (process_ <= 0) return -1;
  while (::waitpid(process_, &status, WNOHANG) == 0) {
    if (Clock::now() > deadline) return kill();
    ::usleep(1000);
  }
  process_ = -1;
  return exit_code_of(status);
}

std::string Piped::errors() const {
  struct stat info {};
  std::string text(::fstat(errors_, &info) == 0 ? static_cast<std::size_t>(info.st_size) : 0, '\0');
  const ssize_t n = ::pread(errors_, text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, n)));
  return text;
}

Scratch::Scratch() {
  std::string pattern = (std::filesystem::temp_directory_path() / "kazeia-cli-XXXXXX").string();
  const char* made = ::mkdtemp(pattern.data());
  EXPECT_NE(made, nullptr);
  folder_ = pattern;
}

Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string Scratch::write(const std::string& name, const std::string& bytes) const {
  std::ofstream(path(name), std::ios::binary) << bytes;
  return path(name);
}

std::vector<std::string> Scratch::names() const {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) found.push_back(entry.path().filename());
  return found;
}

std::string read_file(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

}  // namespace kazeia::cli_test
