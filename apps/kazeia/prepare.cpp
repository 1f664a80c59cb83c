// `kazeia prepare`: a model rewritten into the form in which both processors of the tablet take it.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <regex>
#include <string>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/units.h"
#include "engine/backend.h"
#include "engine/perplexity.h"
#include "engine/quantise.h"
#include "gguf/loadable.h"
#include "gguf/preparation.h"
#include "prepare_report.h"
#include "terminal.h"
#include "verbs.h"

namespace kazeia::cli {
namespace {

using gguf::TypeId;

constexpr std::uint64_t kLargestText = 4 * kMiB;
// 2,560 tokens of the built-in text: all of it in a large vocabulary, most of it in a mini model's.
constexpr std::size_t kBuiltInWindows = 10;

struct PrepareArguments {
  std::string source;
  std::string output;
  std::string weights = "q4_0";
  std::string embedding = "q6_k";
  std::string keep;
  bool only_refused = false;
  bool force = false;
  bool dry_run = false;
  bool json = false;
  bool no_check = false;
  // Chosen, not measured: 4 bits cost a few per cent; a tenth means that something is wrong with the source.
  double max_ratio = 1.10;
  // Perplexity alone says little where the source knows nothing about the text either: of a mini model with one matrix
  // out of place it fell to 0.7 times its value. Chosen, not measured on large models: far above what 4 bits cost
  // (0.005 and 0.03 nats on the mini models), so it stops only a file that predicts something else.
  double max_divergence = 0.5;
  std::string text;
  int threads = 0;
};

Result<TypeId> parse_type(std::string_view option, const std::string& name, std::initializer_list<TypeId> choices) {
  std::string allowed;
  for (const TypeId choice : choices) {
    std::string lower(gguf::tensor_type(choice).name);
    for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (lower == name) return choice;
    allowed += (allowed.empty() ? "" : ", ") + lower;
  }
  return Error(ErrorCode::kUsage, fmt::format("{} cannot be '{}'", option, name),
               fmt::format("Choose one of {}", allowed));
}

Result<gguf::PreparationOptions> parse_options(const PrepareArguments& arguments) {
  gguf::PreparationOptions options;
  KAZEIA_ASSIGN(options.weights, parse_type("--weights", arguments.weights, {TypeId::kQ4_0, TypeId::kQ8_0}));
  KAZEIA_ASSIGN(options.embedding,
                parse_type("--embedding-type", arguments.embedding, {TypeId::kQ6_K, TypeId::kQ8_0, TypeId::kQ4_0}));
  options.only_refused = arguments.only_refused;
  if (!arguments.keep.empty()) {
    try {
      options.keep = [pattern = std::regex(arguments.keep)](std::string_view name) {
        return std::regex_search(name.begin(), name.end(), pattern);
      };
    } catch (const std::regex_error&) {
      return Error(ErrorCode::kUsage, fmt::format("--keep '{}' is not a regular expression", arguments.keep),
                   "An example: --keep 'attn_v|ffn_down'");
    }
  }
  return options;
}

Status check_different(const gguf::ModelFile& source, const std::string& output) {
  for (const std::string& part : source.paths()) {
    std::error_code ignored;
    if (std::filesystem::equivalent(part, output, ignored)) {
      return Error(ErrorCode::kUsage, fmt::format("'{}' and '{}' are the same file", part, output),
                   "Choose another name for OUT");
    }
  }
  return {};
}

Status check_target(const gguf::ModelFile& source, const PrepareArguments& arguments, std::uint64_t bytes) {
  KAZEIA_TRY(check_different(source, arguments.output));
  return check_output(arguments.output, bytes, arguments.force);
}

Result<Reading> read_with(const std::vector<std::string>& parts, const std::string& label, const std::string& text,
                          const Reading* reference, const PrepareArguments& arguments, const CancelFlag& cancel) {
  ProgressBar bar(label);
  PerplexityOptions options;
  options.threads = arguments.threads;
  options.cancel = &cancel;
  options.most_windows = arguments.text.empty() ? kBuiltInWindows : 0;
  options.on_progress = [&bar](float fraction) { bar.update(static_cast<double>(fraction)); };
  return read_text(parts, text, reference, options);
}

Status write_tensors(const gguf::ModelFile& source, const gguf::Preparation& preparation, gguf::Writer& writer,
                     const PrepareArguments& arguments, const CancelFlag& cancel) {
  ProgressBar bar("converting");
  QuantiseOptions options;
  options.threads = arguments.threads;
  options.cancel = &cancel;
  options.on_progress = [&bar](std::uint64_t done, std::uint64_t total) {
    bar.update(static_cast<double>(done) / static_cast<double>(total));
  };
  return quantise(source, preparation, writer, options);
}

Status check_quality(const Comparison& measured, const PrepareArguments& arguments) {
  if (measured.ratio > arguments.max_ratio) {
    return Error(ErrorCode::kEngine,
                 fmt::format("the prepared model's perplexity is {:.3f} times the source's (at most {:.2f} are "
                             "accepted), so '{}' was not written",
                             measured.ratio, arguments.max_ratio, arguments.output),
                 "Start from a file with more bits per weight, or accept it with --max-perplexity-ratio");
  }
  if (measured.divergence > arguments.max_divergence) {
    return Error(
        ErrorCode::kEngine,
        fmt::format("the prepared model's predictions diverge from the source's by {:.3f} nats (at most {:.2f} "
                    "are accepted), so '{}' was not written",
                    measured.divergence, arguments.max_divergence, arguments.output),
        "Start from a file with more bits per weight, or accept it with --max-divergence");
  }
  return {};
}

// The unfinished file has no name of its own until everything about it is known to be right, so every return before
// commit() leaves nothing behind.
Status make(const gguf::ModelFile& source, const gguf::Preparation& preparation, const gguf::Header& header,
            const PrepareArguments& arguments, const CancelFlag& cancel, PrepareReport& report) {
  const bool check = !arguments.no_check && preparation.changed() > 0;
  std::string text;
  if (check) {
    text = std::string(perplexity_text());
    if (!arguments.text.empty()) {
      KAZEIA_ASSIGN(text, read_text_file(arguments.text, kLargestText));
    }
  }
  KAZEIA_ASSIGN(gguf::Writer writer, gguf::Writer::create(arguments.output, header));

  // The source first: a file that upstream cannot run is refused before the long work.
  Reading before;
  Stopwatch watch;
  if (check) {
    KAZEIA_ASSIGN(before, read_with(source.paths(), "perplexity before", text, nullptr, arguments, cancel));
    report.check_ms = watch.elapsed_ms();
  }
  watch = Stopwatch();
  KAZEIA_TRY(write_tensors(source, preparation, writer, arguments, cancel));
  report.quantise_ms = watch.elapsed_ms();
  if (check) {
    watch = Stopwatch();
    KAZEIA_ASSIGN(const Reading after,
                  read_with({writer.temporary_path()}, "perplexity after", text, &before, arguments, cancel));
    KAZEIA_ASSIGN(report.comparison, compare(before, after));
    report.check_ms += watch.elapsed_ms();
    KAZEIA_TRY(check_quality(*report.comparison, arguments));
  }
  KAZEIA_TRY(writer.commit());
  report.written = true;
  return {};
}

void warn_if_requantised(const PrepareReport& report) {
  if (!report.preparation->requantises()) return;
  const std::string measured = report.comparison
                                   ? fmt::format("measured: perplexity {:+.1f} %", 100 * (report.comparison->ratio - 1))
                                   : std::string("not measured");
  fmt::print(stderr,
             "kazeia: warning: the source was quantised already, and quantising it again costs quality ({}). Prepare "
             "its F16 or BF16 file instead if you have it.\n",
             measured);
}

Status print(const PrepareReport& report, bool json) {
  Output output;
  return output.write(json ? prepare_json(report) : prepare_text(report));
}

Status prepare(const PrepareArguments& arguments) {
  if (arguments.output.empty() && !arguments.dry_run) {
    return Error(ErrorCode::kUsage, "the file to write is not named", "Give OUT, or look first with --dry-run");
  }
  KAZEIA_ASSIGN(const gguf::PreparationOptions options, parse_options(arguments));
  KAZEIA_ASSIGN(const gguf::ModelFile source, gguf::open_gguf(arguments.source));
  const Status loadable = gguf::check_loadable(source.parts());
  if (!loadable.ok()) return loadable.error().within(arguments.source);
  const Result<gguf::Preparation> planned = gguf::plan_preparation(source.parts(), options);
  if (!planned.ok()) return planned.error().within(arguments.source);
  const gguf::Preparation& preparation = *planned;

  const gguf::Provenance provenance{fmt::format("kazeia {}", KAZEIA_VERSION), upstream_version(),
                                    std::filesystem::path(arguments.source).filename().string(), source.total_bytes()};
  const gguf::Header header = gguf::prepared_header(source.parts(), preparation, provenance);

  PrepareReport report;
  report.source = &source;
  report.preparation = &preparation;
  report.output_path = arguments.output;
  report.output_bytes = header.file_bytes();
  report.dry_run = arguments.dry_run;
  report.max_ratio = arguments.max_ratio;
  report.max_divergence = arguments.max_divergence;
  Status target = arguments.output.empty() ? Status() : check_target(source, arguments, header.file_bytes());
  if (arguments.dry_run) {
    if (!target.ok()) fmt::print(stderr, "kazeia: warning: {}\n", target.error().sentence());
    return print(report, arguments.json);
  }
  if (!target.ok()) return target;

  const CancelFlag& cancel = catch_stops(SecondInterrupt::kIgnored);
  Status made = make(source, preparation, header, arguments, cancel, report);
  if (!made.ok() && made.error().code() == ErrorCode::kCancelled) {
    return Error(ErrorCode::kCancelled, fmt::format("stopped; '{}' was not written", arguments.output));
  }
  // A file that failed its check is worth its report too.
  if (!made.ok() && !report.comparison) return made;
  KAZEIA_TRY(print(report, arguments.json));
  if (made.ok()) warn_if_requantised(report);
  return made;
}

}  // namespace

void add_prepare(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<PrepareArguments>();
  CLI::App* verb = app.add_subcommand("prepare", "Rewrite a GGUF file into the form that suits the NPU");
  verb->description(
      "Rewrites a model so that the NPU and the CPU take all of it: matrices to Q4_0, token table and output head to\n"
      "Q6_K, from any type. Norms, biases and other small tensors stay as they are, tensors that have their type\n"
      "already are copied. OUT appears only when it is complete and predicts a text about as well as IN does.");
  verb->add_option("IN", arguments->source, "The model, a GGUF file (of a split model, the first part)")->required();
  verb->add_option("OUT", arguments->output, "The file to write; not needed with --dry-run");
  verb->add_flag("--dry-run", arguments->dry_run, "Show what would change, what the NPU refuses now and then; no more");
  verb->add_flag("--force", arguments->force, "Replace OUT if it exists");
  verb->add_option("--weights", arguments->weights, "Type of the matrices: q4_0 or q8_0")->capture_default_str();
  verb->add_option("--embedding-type", arguments->embedding, "Type of token table and output head: q6_k, q8_0 or q4_0")
      ->capture_default_str();
  verb->add_flag("--only-refused", arguments->only_refused,
                 "Change only what the NPU refuses; costs the least quality");
  verb->add_option("--keep", arguments->keep, "Leave tensors alone whose name this regular expression finds")
      ->type_name("REGEX");
  verb->add_flag("--no-check", arguments->no_check, "Do not compare the perplexity of IN and OUT");
  verb->add_option("--max-perplexity-ratio", arguments->max_ratio,
                   "Fail (exit code 7, no OUT) if OUT's perplexity is more than this times IN's")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  verb->add_option("--max-divergence", arguments->max_divergence,
                   "Fail if OUT's predictions diverge from IN's by more than this, in nats")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  verb->add_option("--text", arguments->text, "Measure perplexity on this text instead of the built-in one")
      ->type_name("FILE");
  verb->add_option("--threads", arguments->threads, "Default: the physical performance cores")
      ->check(CLI::Range(1, 512));
  verb->add_flag("--json", arguments->json, "Print one JSON object, with every tensor");
  verb->callback([arguments, &action] { action = [arguments] { return prepare(*arguments); }; });
}

}  // namespace kazeia::cli
