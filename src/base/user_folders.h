// Where a user's own files lie (XDG base directory specification).
#pragma once

#include <string>

namespace kazeia {

// The variable's text; empty if it is not set.
std::string environment(const char* name);

// "$XDG_STATE_HOME/kazeia/NAME" and "$XDG_DATA_HOME/kazeia/NAME", or what the specification puts in their place:
// ~/.local/state and ~/.local/share. Empty if HOME is not set either.
std::string in_state_folder(const std::string& name);
std::string in_data_folder(const std::string& name);

}  // namespace kazeia
