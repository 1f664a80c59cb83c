// What a record must be to count as evidence, whoever wrote it.
#pragma once

#include <string_view>

#include "base/result.h"
#include "bench/record.h"

namespace kazeia::bench {

// Every field but the id, which record.cpp knows how to check. kFile with the field that breaks a rule; the rules are
// in docs/ledger_format.md.
Status check_rules(const Record& record);

// Exactly so many lower-case hexadecimal digits.
bool is_hex(std::string_view text, std::size_t digits);
// "2026-11-30T23:10:05Z", and a day that there was.
bool is_time(std::string_view text);
// ASCII without spaces, at most 100 characters: it stands in tables and on command lines.
bool is_name(std::string_view text);

}  // namespace kazeia::bench
