// What the page says of figures in words and tables.
#pragma once

#include <span>
#include <string>

#include "bench/record.h"
#include "bench/report/groups.h"

namespace kazeia::bench::report {

// Empty if the figure is a result; otherwise why not: "the record was disturbed: a backup ran", "it varied by 7.2 %,
// more than 5 %".
std::string no_result_reason(const Record& record, const Figure& figure);
// "decode_0: 9.6 tok/s, 95 %: 9.58 to 9.62, 5 samples, record 0123456789ab"
std::string figure_title(const Record& record, const Figure& figure);
// "accepted", "accepted, with changes that are in no commit", "disturbed: ...", "no result"
std::string state_text(const Record& record);

// HTML from here on.

std::string card(const std::string& title, const std::string& content, const std::string& note = "", bool wide = false);
std::string record_line(const Record& record);  // its link, kind, time, commit and state
// Every figure of a record; beside those of a baseline's record, upstream's and their ratio.
std::string figures_table(const Record& record);
// A machine's models and settings, one row each, with what one asks first.
std::string glance_table(const MachineGroup& machine);
std::string routes_table(const Record& record);
// Every record, with the rows that links lead to.
std::string records_table(std::span<const Record> records);

}  // namespace kazeia::bench::report
