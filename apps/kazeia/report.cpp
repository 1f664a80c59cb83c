// `kazeia report`: the ledger as a page to look at.

#include <memory>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/files.h"
#include "base/units.h"
#include "bench/ledger.h"
#include "bench/report/report.h"
#include "terminal.h"
#include "verbs.h"

namespace kazeia::cli {
namespace {

struct ReportArguments {
  std::string output;
  std::string folder = "ledger";
};

Status write_page(const std::string& output, const std::string& page) {
  if (output == "-") return Output().write(page);
  KAZEIA_TRY(check_output(output, page.size(), /*overwrite=*/true));
  KAZEIA_ASSIGN(AtomicFileWriter writer, AtomicFileWriter::create(output));
  KAZEIA_TRY(writer.write(page));
  return writer.commit();
}

Status report(const ReportArguments& arguments) {
  KAZEIA_ASSIGN(const std::vector<bench::Record> records, bench::Ledger(arguments.folder).read_all());
  if (records.empty()) {
    return Error(ErrorCode::kFile, fmt::format("there is no record in the ledger '{}'", arguments.folder),
                 "Measure with `kazeia bench MODEL --add`, or name another folder with --ledger");
  }
  const std::string page = bench::report::report_page(records);
  KAZEIA_TRY(write_page(arguments.output, page));
  if (arguments.output == "-") return {};
  std::set<std::string> machines;
  for (const bench::Record& record : records) machines.insert(record.machine.id);
  write_to_stderr(fmt::format("{}: {} record{} of {} machine{}, {}. Open it in a browser; it needs no network.\n",
                              arguments.output, records.size(), records.size() == 1 ? "" : "s", machines.size(),
                              machines.size() == 1 ? "" : "s", format_bytes(page.size())));
  return {};
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* verb = app.add_subcommand("report", "The ledger as one HTML page with charts, for a browser");
  verb->add_option("OUT", arguments->output, "The page; a file of that name is replaced. - for standard output")
      ->required()
      ->type_name("FILE");
  verb->add_option("--ledger", arguments->folder, "The ledger's folder (default: ledger)")->type_name("DIR");
  verb->footer("The page needs nothing but itself: no network, no script. The same ledger makes the same page.");
  verb->callback([arguments, &action] { action = [arguments] { return report(*arguments); }; });
}

}  // namespace kazeia::cli
