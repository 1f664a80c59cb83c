// `kazeia ledger`: the measurements that decisions rest on. Nothing here measures.

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/files.h"
#include "base/units.h"
#include "bench/comparison.h"
#include "bench/ledger.h"
#include "bench/record.h"
#include "ledger_report.h"
#include "terminal.h"
#include "verbs.h"

namespace kazeia::cli {
namespace {

constexpr std::uint64_t kInputLimitBytes = 256 * kMiB;

struct LedgerArguments {
  std::string folder = "ledger";
  std::string file;            // of add and check; "-" is stdin
  std::string id;              // of show and compare
  std::string other;           // of compare
  std::string machine, model;  // of list
  std::string kind;
  double tolerance = bench::kTolerance;
  bool json = false;
};

// Notes and names come from elsewhere: as they are in a file or a pipe, harmless on a terminal.
std::string shown(std::string_view text) {
  return is_terminal(STDOUT_FILENO) ? without_control_characters(text) : std::string(text);
}

Result<std::string> input_of(const std::string& file) {
  if (file != "-") return read_text_file(file, kInputLimitBytes);
  return read_stdin(kInputLimitBytes, catch_interrupts(SecondInterrupt::kEndsProcess));
}

// One record a line.
Result<std::vector<bench::Record>> records_in(const std::string& file) {
  KAZEIA_ASSIGN(const std::string text, input_of(file));
  const std::string name = file == "-" ? "standard input" : "'" + file + "'";
  std::vector<bench::Record> records;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    Result<bench::Record> record = bench::record_from_json(std::string_view(text).substr(at, end - at));
    if (!record.ok()) return record.error().within(fmt::format("{}, line {}", name, records.size() + 1));
    records.push_back(std::move(record).value());
    at = end + 1;
  }
  if (records.empty()) {
    return Error(ErrorCode::kFile, "there is no record in " + name, "Give it what `kazeia bench` wrote");
  }
  return records;
}

Status add(const LedgerArguments& arguments) {
  KAZEIA_ASSIGN(const std::vector<bench::Record> records, records_in(arguments.file));
  bench::Ledger ledger(arguments.folder);
  KAZEIA_TRY(ledger.append(records));
  for (const bench::Record& record : records) {
    fmt::print(stderr, "{}\n", added_text(record));
  }
  return {};
}

Status list(const LedgerArguments& arguments) {
  KAZEIA_ASSIGN(std::vector<bench::Record> records, bench::Ledger(arguments.folder).read_all());
  std::erase_if(records, [&](const bench::Record& record) {
    const bench::ModelIdentity& model = record.model;
    return !record.machine.id.starts_with(arguments.machine) ||
           (!arguments.kind.empty() && record.kind != arguments.kind) ||
           (model.file + "\n" + model.hash + "\n" + model.architecture).find(arguments.model) == std::string::npos;
  });
  if (arguments.json) return Output().write(list_json(records));
  if (records.empty()) {
    fmt::print(stderr, "There are no such records in '{}'.\n", arguments.folder);
    return {};
  }
  return Output().write(shown(list_text(records)));
}

Status show(const LedgerArguments& arguments) {
  KAZEIA_ASSIGN(const std::vector<bench::Record> records, bench::Ledger(arguments.folder).read_all());
  KAZEIA_ASSIGN(const bench::Record record, bench::find_record(records, arguments.id));
  // The line itself, so that another ledger or a check can have it.
  return Output().write(arguments.json ? bench::to_json(record) + "\n" : shown(record_text(record)));
}

Status compare(const LedgerArguments& arguments) {
  KAZEIA_ASSIGN(const std::vector<bench::Record> records, bench::Ledger(arguments.folder).read_all());
  KAZEIA_ASSIGN(const bench::Record before, bench::find_record(records, arguments.id));
  KAZEIA_ASSIGN(const bench::Record after, bench::find_record(records, arguments.other));
  KAZEIA_ASSIGN(const bench::Comparison comparison, bench::compare(before, after));
  return Output().write(arguments.json ? comparison_json(comparison) : shown(comparison_text(comparison)));
}

// "decode_4096 by 8.2 %, load_ms by 12.0 %"
std::string regressions_of(const bench::Comparison& comparison) {
  std::string text;
  for (const bench::FigureComparison& figure : comparison.figures) {
    if (!figure.regressed) continue;
    const double worse = figure.higher_is_better ? 1 - figure.ratio.median : figure.ratio.median - 1;
    text += fmt::format("{}{} by {:.1f} %", text.empty() ? "" : ", ", figure.name, worse * 100);
  }
  return text;
}

Result<CheckedRecord> check_one(const std::vector<bench::Record>& kept, bench::Record now, double tolerance) {
  CheckedRecord checked{.now = std::move(now)};
  const std::optional<bench::Record> reference = bench::reference_of(kept, checked.now);
  if (!reference) return checked;
  KAZEIA_ASSIGN(checked.comparison, bench::check(*reference, checked.now, tolerance));
  const std::string regressions = regressions_of(*checked.comparison);
  if (!regressions.empty()) {
    checked.failure = fmt::format("worse than {} of {}: {}", reference->id, reference->time, regressions);
  }
  return checked;
}

Status check(const LedgerArguments& arguments) {
  KAZEIA_ASSIGN(std::vector<bench::Record> records, records_in(arguments.file));
  KAZEIA_ASSIGN(const std::vector<bench::Record> kept, bench::Ledger(arguments.folder).read_all());
  const bool alone = records.size() == 1;
  std::vector<CheckedRecord> all;
  std::vector<std::string> failures;
  for (bench::Record& record : records) {
    Result<CheckedRecord> one = check_one(kept, record, arguments.tolerance);
    // Of one record that is the whole answer; of several, the others have theirs.
    if (!one.ok() && alone) return one.error();
    all.push_back(one.ok() ? std::move(one).value()
                           : CheckedRecord{.now = std::move(record), .failure = one.error().message()});
    const CheckedRecord& last = all.back();
    if (last.failure.empty()) continue;
    failures.push_back(alone || !last.comparison ? last.failure : last.now.id + " is " + last.failure);
  }
  KAZEIA_TRY(Output().write(arguments.json ? check_json(all, arguments.tolerance) : shown(check_text(all))));
  if (failures.empty()) return {};
  std::string sentence = fmt::format("{}", fmt::join(failures, "; "));
  if (!alone) sentence = fmt::format("{} of {} records do not pass: {}", failures.size(), all.size(), sentence);
  return Error(ErrorCode::kEngine, sentence, "Measure again to be sure, then look at what changed since its commit");
}

}  // namespace

void add_ledger(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<LedgerArguments>();
  CLI::App* verb = app.add_subcommand("ledger", "Measurements that are kept: add, list, show, compare, check");
  verb->require_subcommand(1);
  const auto part_of = [&](const char* name, const char* description, Status (*work)(const LedgerArguments&)) {
    CLI::App* part = verb->add_subcommand(name, description);
    part->add_option("--ledger", arguments->folder, "Its folder (default: ledger)")->type_name("DIR");
    part->callback([arguments, &action, work] { action = [arguments, work] { return work(*arguments); }; });
    return part;
  };
  const auto add_json = [&](CLI::App* part, const char* what) { part->add_flag("--json", arguments->json, what); };

  CLI::App* part = part_of("add", "Keep records for good, all of a file or none", add);
  part->add_option("FILE", arguments->file, "One record a line; - for standard input")->required();

  part = part_of("list", "One line for each record, oldest first", list);
  part->add_option("--machine", arguments->machine, "Those of this machine (the beginning of its id)");
  part->add_option("--model", arguments->model, "Those with this in the model's file name, hash or architecture");
  part->add_option("--kind", arguments->kind, "Those of this kind: bench, baseline, routes, soak, turns, tune");
  add_json(part, "A JSON array");

  part = part_of("show", "Everything about one record", show);
  part->add_option("ID", arguments->id, "The beginning of its id is enough")->required();
  add_json(part, "The record as it is in the ledger");

  part = part_of("compare", "What two records say about each other, with what is noise", compare);
  part->add_option("A", arguments->id, "The record before; the beginning of its id is enough")->required();
  part->add_option("B", arguments->other, "The record after")->required();
  add_json(part, "One JSON object");

  part = part_of("check", "Whether new records are worse than the last accepted one of their like", check);
  part->add_option("FILE", arguments->file, "The new records, one a line; - for standard input")->required();
  part->add_option("--tolerance", arguments->tolerance, "How much worse is no regression yet (default: 0.03)")
      ->check(CLI::Range(0.0, 1.0));
  add_json(part, "One JSON object; an array of them for more than one record");
  part->footer("Exit code 7 if a figure is worse by more than that and by more than noise explains.");
}

}  // namespace kazeia::cli
