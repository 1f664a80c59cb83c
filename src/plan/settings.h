// Everything that decides how fast a model runs or what it takes, and that could be chosen otherwise: the defaults, and
// on which record each of them rests. A table, nothing else.
#pragma once

#include <span>
#include <string_view>

namespace kazeia::plan {

struct Setting {
  std::string_view name;     // stable: "decode_threads"; as records, profiles and `kazeia why` have it
  std::string_view meaning;  // one phrase for people
  std::string_view flag;     // "--threads"; empty: cannot be asked for
  std::string_view value;    // the built-in default, as text: "512", "on", "physical performance cores"
  std::string_view
      record;  // id in ledger/ of the record that chose it, or a decision's number: "0007"; empty: unmeasured
  std::string_view reason;       // one phrase: what the record says, or why nobody has measured it yet
  bool changes_answers = false;  // a tuner may look at it, and does not choose it unasked
};

// In the order in which a person would read them.
std::span<const Setting> settings();
const Setting* find_setting(std::string_view name);  // null if there is none

}  // namespace kazeia::plan
