// Tests only: runs the program (KAZEIA_PROGRAM) through a shell and keeps what it printed.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace kazeia::cli {

struct ProgramRun {
  int exit_code = -1;
  std::string output;  // standard output and error together
};

// `prelude` is shell text before the command ("ulimit -f 10;").
inline ProgramRun run_program(const std::string& arguments, const std::string& prelude = "") {
  const char* program = std::getenv("KAZEIA_PROGRAM");
  if (program == nullptr) return {-1, "KAZEIA_PROGRAM is not set"};
  const std::string command = prelude + " \"" + program + "\" " + arguments + " 2>&1";
  ProgramRun run;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return run;
  char buffer[4096];
  while (const std::size_t size = std::fread(buffer, 1, sizeof(buffer), pipe)) run.output.append(buffer, size);
  const int status = ::pclose(pipe);
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return run;
}

inline std::string shipped_model(const std::string& name) {
  const char* folder = std::getenv("KAZEIA_MODELS");
  return (folder == nullptr ? std::string() : std::string(folder)) + "/" + name;
}

}  // namespace kazeia::cli
