#include "bench/report/report.h"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "base/units.h"
#include "bench/comparison.h"
#include "bench/report/groups.h"
#include "bench/report/markup.h"
#include "bench/report/page.h"
#include "bench/report/ratios.h"
#include "bench/report/speed_section.h"
#include "bench/report/tables.h"
#include "bench/report/time_sections.h"

namespace kazeia::bench::report {
namespace {

constexpr std::size_t kLongestLink = 60;

// "b6000, b6001"; in order, each once.
std::string versions(std::span<const Record> records, std::string Record::*version) {
  std::set<std::string> all;
  for (const Record& record : records) all.insert((record.*version).empty() ? "not told" : record.*version);
  return escaped(fmt::format("{}", fmt::join(all, ", ")));
}

std::string model_name(const ModelGroup& model) {
  return model.model().file.empty() ? "Without a model" : model.model().file;
}

std::string machine_name(const MachineGroup& machine) {
  return machine.machine().name.empty() ? "Machine " + machine.machine().id : machine.machine().name;
}

std::string counted(std::size_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string header(std::span<const Record> records, const std::vector<MachineGroup>& machines) {
  const auto accepted = static_cast<std::size_t>(std::count_if(records.begin(), records.end(), is_accepted));
  std::string names;
  for (const MachineGroup& machine : machines) {
    names += fmt::format("<div>{} <span class=\"id\">{}</span></div>", escaped(machine_name(machine)),
                         escaped(machine.machine().id));
  }
  return fmt::format(
      "<header>\n<label class=\"toggle\" for=\"other\">Light / dark</label>\n<h1>Kazeia-Engine: what was "
      "measured</h1>\n"
      "<p class=\"lead\">Every figure here comes from a record of the ledger, and every point leads to its "
      "record.</p>\n"
      "<dl class=\"facts\"><dt>Records</dt><dd>{}, {} of them accepted as results</dd>"
      "<dt>Measured</dt><dd>{} to {} UTC</dd><dt>Machines</dt><dd>{}</dd><dt>Engine</dt><dd>{}</dd>"
      "<dt>Upstream</dt><dd>{}</dd></dl>\n</header>\n",
      counted(records.size(), "record"), accepted, escaped(time_text(records.front().time)),
      escaped(time_text(records.back().time)), names, versions(records, &Record::engine_version),
      versions(records, &Record::upstream_version));
}

std::string contents(const std::vector<MachineGroup>& machines) {
  std::string items;
  const auto add = [&](const std::string& anchor, const std::string& text) {
    items += fmt::format("<li><a href=\"#{}\">{}</a></li>", escaped(anchor), escaped(shortened(text, kLongestLink)));
  };
  for (const MachineGroup& machine : machines) {
    if (machines.size() > 1) add(machine.anchor, machine_name(machine));
    for (const ModelGroup& model : machine.models) add(model.anchor, model_name(model));
  }
  add("records", "All records");
  return "<nav aria-label=\"contents\"><ul>" + items + "</ul></nav>\n";
}

std::string legend() {
  return fmt::format(
      "<p>A filled mark is a median, the bar through it its 95 % interval. A <b>hollow mark</b> (○ in a table) is "
      "<b>no result</b>: something disturbed the measurement, it varied by more than {:.0f} %, or there are fewer than "
      "{} "
      "samples. Figures of different machines never share a chart. <code>kazeia ledger show ID</code> prints all of a "
      "record.</p>\n",
      kMostVariation * 100, kFewestSamples);
}

std::string model_facts(const ModelGroup& group) {
  const ModelIdentity& model = group.model();
  if (model.file.empty()) return {};
  std::string types;
  for (const auto& [type, bytes] : model.tensor_bytes) {
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", type, format_bytes(bytes));
  }
  return fmt::format("<p class=\"note\">{}{}; <span class=\"id\">{}</span></p>\n", escaped(model.architecture),
                     types.empty() ? "" : "; weights: " + escaped(types), escaped(model.hash));
}

std::string note_of(const Record& record) {
  return record.note.empty() ? "" : fmt::format(" {}.", escaped(record.note));
}

// Of kinds that have no charts of their own: ratios, and every figure in a table.
std::string plain_section(const Record& record, const char* title) {
  const std::string ratios = card("Ratios", ratio_plots(record), "", /*wide=*/true);
  return fmt::format("<h4>{}: {}</h4>\n<p class=\"note\">{}</p>\n<p class=\"note\">{}.{}</p>\n{}{}", title,
                     escaped(main_settings(record)), escaped(other_settings(record)), record_line(record),
                     note_of(record), ratios.empty() ? "" : fmt::format("<div class=\"cards\">{}</div>\n", ratios),
                     figures_table(record));
}

std::string routes_section(const Record& record) {
  return fmt::format("<h4>Routes: {}</h4>\n<p class=\"note\">{}.{}</p>\n{}", escaped(main_settings(record)),
                     record_line(record), note_of(record), routes_table(record));
}

std::string history(const Records& records) {
  std::string charts;
  for (const Records& group : alike(records, {"bench", "baseline", "soak", "turns", "routes"})) {
    charts += history_section(group);
  }
  if (charts.empty()) return {};
  return "<h4>History by commit</h4>\n<p class=\"note\">Records that measured the same, oldest first. The axes do not "
         "begin at 0; a + behind a commit is a change that is in no commit.</p>\n" +
         charts;
}

std::string model_section(const ModelGroup& model) {
  std::string html = fmt::format("<section>\n<h3 id=\"{}\">{}</h3>\n{}", escaped(model.anchor),
                                 escaped(model_name(model)), model_facts(model));
  for (const Records& configuration : configurations(model.records)) html += speed_section(configuration);
  for (const Records& soaks : alike(model.records, {"soak"})) html += soak_section(*shown(soaks));
  for (const Records& routes : alike(model.records, {"routes"})) html += routes_section(*shown(routes));
  for (const Records& turns : alike(model.records, {"turns"})) html += plain_section(*shown(turns), "Turns of a chat");
  for (const Record* tune : of_kind(model.records, "tune")) html += plain_section(*tune, "Tuning");
  return html + history(model.records) + "</section>\n";
}

std::string machine_section(const MachineGroup& machine) {
  std::string html =
      fmt::format("<section>\n<h2 id=\"{}\">{}</h2>\n<p class=\"note\">{}; {}; <span class=\"id\">{}</span></p>\n{}",
                  escaped(machine.anchor), escaped(machine_name(machine)), escaped(machine.machine().system),
                  counted(machine.records.size(), "record"), escaped(machine.machine().id), glance_table(machine));
  for (const ModelGroup& model : machine.models) html += model_section(model);
  return html + "</section>\n";
}

}  // namespace

std::string report_page(std::span<const Record> records) {
  const std::vector<MachineGroup> machines = by_machine(records);
  std::string body = header(records, machines) + contents(machines) + "<main>\n" + legend();
  for (const MachineGroup& machine : machines) body += machine_section(machine);
  body += "<section>\n<h2 id=\"records\">All records</h2>\n" + records_table(records) + "</section>\n</main>\n";
  return page("Kazeia-Engine: what was measured", body);
}

}  // namespace kazeia::bench::report
