#include "base/user_folders.h"

#include <cstdlib>

namespace kazeia {
namespace {

std::string in_folder(const char* variable, const char* instead, const std::string& name) {
  // The specification wants a relative path to be ignored.
  if (const std::string base = environment(variable); base.starts_with('/')) return base + "/kazeia/" + name;
  if (const std::string home = environment("HOME"); !home.empty()) return home + instead + "/kazeia/" + name;
  return "";
}

}  // namespace

std::string environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::string in_state_folder(const std::string& name) {
  return in_folder("XDG_STATE_HOME", "/.local/state", name);
}

std::string in_data_folder(const std::string& name) {
  return in_folder("XDG_DATA_HOME", "/.local/share", name);
}

}  // namespace kazeia
