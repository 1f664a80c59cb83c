// The verbs of the command line, one file each. A verb adds its subcommand and options to the parser and
// sets `action` when it was chosen; main() then runs the action and turns its Error into a sentence on
// stderr and the exit code.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

#include "base/result.h"

namespace kazeia::cli {

using Action = std::function<Status()>;

void add_run(CLI::App& app, Action& action);
void add_chat(CLI::App& app, Action& action);
void add_sessions(CLI::App& app, Action& action);
void add_ledger(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_synth(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_why(CLI::App& app, Action& action);
void add_prepare(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_quality(CLI::App& app, Action& action);
void add_turns(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_tune(CLI::App& app, Action& action);
void add_versus(CLI::App& app, Action& action);
void add_probe(CLI::App& app, Action& action);

}  // namespace kazeia::cli
