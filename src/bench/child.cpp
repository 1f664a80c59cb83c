#include "bench/child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

extern char** environ;

namespace kazeia::bench {
namespace {

// Both ends of a pipe, closed when it goes out of scope.
struct Pipe {
  int ends[2] = {-1, -1};
  Pipe() {
    if (pipe2(ends, O_CLOEXEC) != 0) ends[0] = ends[1] = -1;
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(int i) {
    if (ends[i] >= 0) ::close(ends[i]);
    ends[i] = -1;
  }
};

}  // namespace

Status run_child(const std::vector<std::string>& arguments, const std::function<void(std::string_view)>& on_line,
                 const CancelFlag* cancel) {
  return run_child(arguments, ChildEvents{{}, on_line, {}}, cancel);
}

Status run_child(const std::vector<std::string>& arguments, const ChildEvents& events, const CancelFlag* cancel) {
  Pipe output;
  if (output.ends[0] < 0) return Error(ErrorCode::kEngine, "cannot create a pipe");
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output.ends[1], STDOUT_FILENO);
  pid_t child = 0;
  const int failed = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    return Error(ErrorCode::kFile, fmt::format("cannot start '{}': {}", arguments[0], std::strerror(failed)),
                 "Build it first");
  }
  output.close_end(1);
  if (events.on_start) events.on_start(child);

  std::string pending;
  bool cancelled = false;
  for (;;) {
    pollfd wait{output.ends[0], POLLIN, 0};
    const int ready = poll(&wait, 1, 100);
    if (!cancelled && cancel != nullptr && cancel->requested()) {
      cancelled = true;
      kill(child, SIGTERM);
    }
    if (events.on_wait) events.on_wait();
    if (ready <= 0) continue;
    char buffer[4096];
    const ssize_t n = read(output.ends[0], buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    pending.append(buffer, static_cast<std::size_t>(n));
    for (std::size_t end = pending.find('\n'); end != std::string::npos; end = pending.find('\n')) {
      events.on_line(std::string_view(pending).substr(0, end));
      pending.erase(0, end + 1);
    }
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  // Ctrl-C reaches the child as well, and its end may be seen here first.
  if (cancelled || (cancel != nullptr && cancel->requested())) return Error(ErrorCode::kCancelled, "stopped");
  const std::string name = std::filesystem::path(arguments[0]).filename().string();
  if (WIFSIGNALED(status)) {
    return Error(ErrorCode::kEngine, fmt::format("'{}' was ended by signal {}", name, WTERMSIG(status)));
  }
  if (WEXITSTATUS(status) != 0) {
    return Error(ErrorCode::kEngine, fmt::format("'{}' failed with exit code {}", name, WEXITSTATUS(status)));
  }
  return {};
}

void end_with_parent() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
}

std::string own_program_path() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

}  // namespace kazeia::bench
