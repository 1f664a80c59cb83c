#include "bench/report/tables.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "bench/comparison.h"
#include "bench/report/markup.h"

namespace kazeia::bench::report {
namespace {

constexpr std::string_view kUpstream = "upstream_";
constexpr std::string_view kRatio = "ratio_";
constexpr std::string_view kRoute = "route_";

std::string cell(const std::string& html, const char* kind = "n") {
  return fmt::format("<td class=\"{}\">{}</td>", kind, html.empty() ? "–" : html);
}

std::string head(std::initializer_list<const char*> titles) {
  std::string row;
  for (const char* title : titles) row += fmt::format("<th scope=\"col\">{}</th>", title);
  return "<thead><tr>" + row + "</tr></thead>";
}

std::string scrolled(const std::string& table) {
  return "<div class=\"scroll\"><table>" + table + "</table></div>\n";
}

// A value; hollow if it is no result.
std::string value_text(const Record& record, const Figure* figure) {
  if (figure == nullptr) return {};
  std::string text = escaped(figure->unit == "ratio" ? fmt::format("{:.3g}", figure->median)
                                                     : quantity_text(figure->median, figure->unit));
  const std::string reason = no_result_reason(record, *figure);
  if (reason.empty()) return text;
  return fmt::format("<span class=\"noresult\" title=\"no result: {}\">○ {}</span>", escaped(reason), text);
}

std::string interval_cell(const Figure* figure) {
  return cell(figure == nullptr ? "" : escaped(interval_text(*figure)));
}

// "× 1.23" in a line of its own.
std::string beside_upstream(const Record& record, const std::string& name) {
  const Figure* ratio = record.figure(std::string(kRatio) + name);
  if (ratio == nullptr) return {};
  return fmt::format("<small>× {}</small>", value_text(record, ratio));
}

std::string glance_row(const ModelGroup& model, const Records& configuration) {
  const Record& record = *shown(configuration);
  double deepest = 0;
  for (const Figure& figure : record.figures) deepest = std::max(deepest, length_in(figure.name, "decode_"));
  const std::string deep = fmt::format("decode_{:.0f}", deepest);
  const auto of = [&](const std::string& name) {
    const std::string value = value_text(record, record.figure(name));
    return cell(value.empty() ? value : value + beside_upstream(record, name));
  };
  const std::string depth = deepest > 0 ? fmt::format("<small>at {:.0f}</small>", deepest) : "";
  const std::string deep_value = deepest > 0 ? value_text(record, record.figure(deep)) : "";
  return fmt::format("<tr><th scope=\"row\"><a href=\"#{}\">{}</a><small>{}</small>{}</th>{}{}{}{}{}</tr>\n",
                     escaped(model.anchor), escaped(shortened(record.model.file, 60)), escaped(main_settings(record)),
                     record_link(record), of("decode_0"), cell(deep_value.empty() ? "" : deep_value + depth),
                     of("prefill_512"), of("ttft_ms"), of("peak_rss_bytes"));
}

}  // namespace

std::string no_result_reason(const Record& record, const Figure& figure) {
  if (!record.disturbance.empty()) return "the record was disturbed: " + record.disturbance;
  const std::string why = why_no_result(figure);
  return why.empty() ? why : "it " + why;
}

std::string figure_title(const Record& record, const Figure& figure) {
  std::string text =
      fmt::format("{}: {}, 95 %: {}, {} sample{}, record {} of {}, commit {}", figure.name,
                  quantity_text(figure.median, figure.unit), interval_text(figure), figure.samples.size(),
                  figure.samples.size() == 1 ? "" : "s", record.id, time_text(record.time), commit_text(record));
  const std::string reason = no_result_reason(record, figure);
  if (!reason.empty()) text += "; no result: " + reason;
  return text;
}

std::string state_text(const Record& record) {
  if (!record.disturbance.empty()) return "disturbed: " + record.disturbance;
  if (!is_accepted(record)) return "no result: no figure has enough samples that agree";
  return record.dirty ? "accepted, with changes that are in no commit" : "accepted";
}

std::string card(const std::string& title, const std::string& content, const std::string& note, bool wide) {
  if (content.empty()) return {};
  return fmt::format("<figure class=\"card{}\"><figcaption>{}</figcaption>\n{}{}</figure>\n", wide ? " wide" : "",
                     escaped(title), content, note.empty() ? "" : "<p class=\"note\">" + note + "</p>");
}

std::string record_line(const Record& record) {
  return fmt::format("{} <span class=\"kind\">{}</span>, {}, commit {}, {}", record_link(record), escaped(record.kind),
                     escaped(time_text(record.time)), escaped(commit_text(record)), escaped(state_text(record)));
}

std::string figures_table(const Record& record) {
  const bool sides = record.kind == "baseline";
  std::string rows = sides ? head({"figure", "kazeia", "95 % interval", "variation", "samples", "upstream",
                                   "95 % interval", "kazeia / upstream", "95 % interval", ""})
                           : head({"figure", "median", "95 % interval", "variation", "samples", ""});
  for (const Figure& figure : record.figures) {
    const bool of_sides = figure.name.starts_with(kUpstream) || figure.name.starts_with(kRatio);
    if (sides && of_sides) continue;
    rows += fmt::format("<tr><th scope=\"row\">{}</th>{}{}{}{}", escaped(figure.name),
                        cell(value_text(record, &figure)), interval_cell(&figure),
                        cell(is_slope(figure) ? "" : fmt::format("{:.3g} %", figure.variation * 100)),
                        cell(is_slope(figure) ? "" : std::to_string(figure.samples.size())));
    const Figure* theirs = record.figure(std::string(kUpstream) + figure.name);
    const Figure* ratio = record.figure(std::string(kRatio) + figure.name);
    if (sides) {
      rows += cell(value_text(record, theirs)) + interval_cell(theirs) + cell(value_text(record, ratio)) +
              interval_cell(ratio);
    }
    const std::string reason = no_result_reason(record, figure);
    rows += is_slope(figure) ? cell("a slope and its interval", "l")
            : reason.empty() ? "<td></td>"
                             : cell("no result: " + escaped(reason), "l noresult");
    rows += "</tr>\n";
  }
  return scrolled(rows);
}

std::string glance_table(const MachineGroup& machine) {
  std::string rows;
  for (const ModelGroup& model : machine.models) {
    for (const Records& configuration : configurations(model.records)) rows += glance_row(model, configuration);
  }
  if (rows.empty()) return {};
  return scrolled(head({"model", "decode, at 0", "at depth", "prefill of 512", "first token", "memory"}) + "<tbody>" +
                  rows + "</tbody>") +
         "<p class=\"note\">Of the newest accepted record of each configuration; × is kazeia / upstream, of the same "
         "run.</p>\n";
}

std::string routes_table(const Record& record) {
  std::vector<std::string> routes;
  for (const auto& [name, value] : record.settings) {
    if (name.starts_with(kRoute)) routes.push_back(name.substr(kRoute.size()));
  }
  std::vector<std::string> names;  // of figures, without the route in front
  for (const Figure& figure : record.figures) {
    for (const std::string& route : routes) {
      if (!figure.name.starts_with(route + "_")) continue;
      const std::string name = figure.name.substr(route.size() + 1);
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  std::string rows = "<thead><tr><th scope=\"col\">route</th><th scope=\"col\">status</th>";
  for (const std::string& name : names) rows += fmt::format("<th scope=\"col\">{}</th>", escaped(name));
  rows += "</tr></thead><tbody>";
  for (const std::string& route : routes) {
    const std::string status = setting(record, std::string(kRoute) + route);
    rows += fmt::format("<tr><th scope=\"row\">{}</th>{}", escaped(route),
                        cell(escaped(status == "used" ? "measured" : status), "l"));
    for (const std::string& name : names)
      rows += cell(value_text(record, record.figure(fmt::format("{}_{}", route, name))));
    rows += "</tr>\n";
  }
  return scrolled(rows + "</tbody>");
}

std::string records_table(std::span<const Record> records) {
  std::string rows = head({"record", "time, UTC", "kind", "machine", "model", "commit", "state", "note"}) + "<tbody>\n";
  for (const Record& record : records) {
    rows += fmt::format(
        "<tr id=\"r-{0}\"><th scope=\"row\" class=\"id\">{0}</th><td class=\"l\">{1}</td><td class=\"l\">{2}</td>"
        "<td class=\"l\"><a class=\"id\" href=\"#m-{3}\">{3}</a></td>{4}<td class=\"l id\">{5}</td>"
        "<td class=\"l text{6}\">{7}</td><td class=\"l text\">{8}</td></tr>\n",
        escaped(record.id), escaped(time_text(record.time)), escaped(record.kind), escaped(record.machine.id),
        cell(escaped(shortened(record.model.file, 60)), "l"), escaped(commit_text(record)),
        is_accepted(record) ? "" : " noresult", escaped(state_text(record)), escaped(record.note));
  }
  return scrolled(rows + "</tbody>");
}

}  // namespace kazeia::bench::report
