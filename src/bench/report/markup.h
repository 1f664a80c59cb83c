// Text for an HTML page. What comes from a record was written by somebody else: it can neither begin nor end an
// element, nor change the direction of what stands beside it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "bench/record.h"

namespace kazeia::bench::report {

// For the text of an element and for an attribute in quotes. Characters that no page may have, and those that turn the
// direction of text, become U+FFFD.
std::string escaped(std::string_view text);
// At most `most` characters (of UTF-8), the last one "…" if something was cut. Not escaped.
std::string shortened(std::string_view text, std::size_t most);

std::string number_text(double value);                           // "9.612", "1234", "1.2e+09"
std::string quantity_text(double value, std::string_view unit);  // "9.612 tok/s", "2.36 GiB", "-1.2 MiB/h"
std::string interval_text(const Figure& figure);                 // "9.58 to 9.66": the unit stands beside it
std::string time_text(std::string_view time);                    // "2026-11-30 10:00" of a record's time
std::string commit_text(const Record& record);                   // "0123456+" with changes, "none" without a commit

// A link to the record's row in the table of records, with its id as text.
std::string record_link(const Record& record);
std::string record_target(const Record& record);  // "#r-0123456789ab"

// What an axis or a column is in: values are divided by `divisor`. Bytes become KiB, MiB or GiB and milliseconds
// seconds, by the largest value `most`.
struct DisplayUnit {
  double divisor = 1;
  std::string name;  // not escaped
};
DisplayUnit display_unit(std::string_view unit, double most);

}  // namespace kazeia::bench::report
