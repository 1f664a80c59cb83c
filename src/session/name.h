// Names of sessions: which there can be, and which are near each other.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace kazeia {

// Why this cannot be a session's name ("it is empty"); empty if it can be. The rule is at SessionDirectory::check_name.
std::string fault_of_name(std::string_view name);

// How many characters have to be changed, added or removed; nullopt if that is too many for a slip of the fingers and
// neither name is the beginning of the other.
std::optional<std::size_t> edits_between(std::string_view name, std::string_view other);

}  // namespace kazeia
