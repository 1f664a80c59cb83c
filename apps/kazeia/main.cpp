// kazeia: large language models from GGUF files, on one machine, for one person.

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "base/error.h"
#include "verbs.h"

int main(int argc, char** argv) {
  using namespace kazeia;
  // A closed pipe is an error of write(), reported like any other, not a silent death.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // the same for a file size limit

  CLI::App app{"Runs GGUF language models on this machine.", "kazeia"};
  app.set_version_flag("--version", KAZEIA_VERSION);
  app.require_subcommand(1);
  app.fallthrough(false);
  app.footer(
      "`kazeia VERB --help` explains a verb. Exit codes: 0 done, 2 usage, 3 file, 4 unsupported,\n"
      "5 too large, 6 cannot write, 7 engine, 130 stopped by the user.");

  cli::Action action;
  cli::add_run(app, action);
  cli::add_chat(app, action);
  cli::add_sessions(app, action);
  cli::add_ledger(app, action);
  cli::add_inspect(app, action);
  cli::add_synth(app, action);
  cli::add_plan(app, action);
  cli::add_prepare(app, action);
  cli::add_doctor(app, action);
  cli::add_quality(app, action);
  cli::add_turns(app, action);
  cli::add_bench(app, action);
  cli::add_versus(app, action);
  cli::add_probe(app, action);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::fprintf(stderr, "kazeia: %s\nTry `kazeia --help`, or `kazeia VERB --help`.\n", error.what());
    return static_cast<int>(ErrorCode::kUsage);
  }

  try {
    Status status = action();
    if (status.ok() && std::fflush(stdout) != 0) {
      status = Error(ErrorCode::kWrite, "cannot write to standard output", "Free some space or send it somewhere else");
    }
    if (status.ok()) return 0;
    std::fprintf(stderr, "kazeia: %s\n", status.error().sentence().c_str());
    return status.error().exit_code();
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "kazeia: out of memory. Use a smaller model or --context, or close other programs.\n");
    return static_cast<int>(ErrorCode::kTooLarge);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kazeia: internal error: %s. Please report it with the command you ran.\n", error.what());
    return static_cast<int>(ErrorCode::kEngine);
  }
}
