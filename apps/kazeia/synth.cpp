// `kazeia synth`: a model of random numbers in the exact shape of a public one.

#include <unistd.h>
#include <cstdio>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/units.h"
#include "gguf/synth.h"
#include "terminal.h"
#include "verbs.h"

namespace kazeia::cli {
namespace {

struct SynthArguments {
  std::string shape;
  std::string path;
  std::uint64_t seed = 0;
  bool force = false;
};

std::string shape_names() {
  std::string names;
  for (const gguf::Shape& shape : gguf::all_shapes()) names += (names.empty() ? "" : ", ") + std::string(shape.name);
  return names;
}

Status synth(const SynthArguments& arguments) {
  const gguf::Shape* shape = gguf::find_shape(arguments.shape);
  if (shape == nullptr) {
    return Error(ErrorCode::kUsage, fmt::format("there is no shape '{}'", arguments.shape),
                 fmt::format("Choose one of {}", shape_names()));
  }
  const bool terminal = isatty(STDERR_FILENO) == 1;
  const Stopwatch watch;
  gguf::SynthOptions options;
  options.seed = arguments.seed;
  options.overwrite = arguments.force;
  // The unfinished file is removed.
  options.cancel = &catch_stops(SecondInterrupt::kEndsProcess);
  if (terminal) {
    options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
      fmt::print(stderr, "\r{}: {:3.0f} % of {} ", arguments.path,
                 100.0 * static_cast<double>(done) / static_cast<double>(total), format_bytes(total));
    };
  }
  const Result<std::uint64_t> written = gguf::write_synthetic(*shape, arguments.path, options);
  if (terminal) fmt::print(stderr, "\r\x1b[K");
  if (!written.ok()) return written.error();
  fmt::print("{}: {}, {} in {}\n", arguments.path, shape->name, format_bytes(*written),
             format_duration(watch.elapsed_ms()));
  return {};
}

}  // namespace

void add_synth(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<SynthArguments>();
  CLI::App* verb =
      app.add_subcommand("synth", "Write a GGUF file with random weights and the shapes of a public model");
  verb->add_option("SHAPE", arguments->shape, "One of " + shape_names())->required();
  verb->add_option("OUT", arguments->path, "The file to write")->required();
  verb->add_option("--seed", arguments->seed, "Same seed, same file (default 0)");
  verb->add_flag("--force", arguments->force, "Replace OUT if it exists");
  verb->callback([arguments, &action] { action = [arguments] { return synth(*arguments); }; });
}

}  // namespace kazeia::cli
