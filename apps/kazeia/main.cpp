// kazeia: large language models from GGUF files, on one machine, for one person.

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>

#include "base/error.h"
#include "engine/backend.h"
#include "verbs.h"

namespace {

using namespace kazeia;

// Nothing here may need memory.
[[noreturn]] void end_at_once(std::string_view reason) {
  const auto say = [](std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
      if (n <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(n));
    }
  };
  say("kazeia: ");
  say(reason);
  say(". Memory has probably run out: use a smaller model or --context, or close other programs.\n");
  ::_exit(static_cast<int>(ErrorCode::kEngine));
}

// "/folders/ggml.c:1644: GGML_ASSERT(...) failed" and lines that are nobody's business.
void end_with_upstream(const char* message) {
  std::string_view text(message);
  text = text.substr(0, text.find('\n'));
  text.remove_prefix(text.substr(0, text.find(": ")).rfind('/') + 1);
  end_at_once(text);
}

void end_uncaught() {
  end_at_once("a thread could not go on");
}

int run(int argc, char** argv) {
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
  cli::add_report(app, action);
  cli::add_inspect(app, action);
  cli::add_synth(app, action);
  cli::add_plan(app, action);
  cli::add_why(app, action);
  cli::add_prepare(app, action);
  cli::add_doctor(app, action);
  cli::add_quality(app, action);
  cli::add_turns(app, action);
  cli::add_bench(app, action);
  cli::add_tune(app, action);
  cli::add_versus(app, action);
  cli::add_probe(app, action);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    std::fprintf(stderr, "kazeia: %s\nTry `kazeia --help`, or `kazeia VERB --help`.\n", error.what());
    return static_cast<int>(ErrorCode::kUsage);
  }

  Status status = action();
  if (status.ok() && std::fflush(stdout) != 0) {
    status = Error(ErrorCode::kWrite, "cannot write to standard output", "Free some space or send it somewhere else");
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "kazeia: %s\n", status.error().sentence().c_str());
  return status.error().exit_code();
}

}  // namespace

int main(int argc, char** argv) {
  on_upstream_abort(end_with_upstream);
  std::set_terminate(end_uncaught);
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "kazeia: out of memory. Use a smaller model or --context, or close other programs.\n");
    return static_cast<int>(ErrorCode::kTooLarge);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kazeia: internal error: %s. Please report it with the command you ran.\n", error.what());
    return static_cast<int>(ErrorCode::kEngine);
  }
}
