#include "bench/kernel_files.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

namespace kazeia::bench {

KernelFiles::KernelFiles(std::string root) : root_(std::move(root)) {
  if (root_.empty() || root_.back() != '/') root_ += '/';
}

std::string KernelFiles::text(const std::string& path) const {
  std::ostringstream content;
  content << std::ifstream(root_ + path, std::ios::binary).rdbuf();
  return content.str();
}

std::string KernelFiles::line(const std::string& path) const {
  const std::string content = text(path);
  constexpr const char* kBlank = " \t\r\n";
  const std::size_t first = content.find_first_not_of(kBlank);
  if (first == std::string::npos) return {};
  return content.substr(first, content.find_last_not_of(kBlank) - first + 1);
}

std::optional<double> KernelFiles::number(const std::string& path) const {
  const std::string content = line(path);
  char* after = nullptr;
  const double value = std::strtod(content.c_str(), &after);
  if (after == content.c_str()) return std::nullopt;
  return value;
}

std::vector<std::string> KernelFiles::names(const std::string& path) const {
  std::vector<std::string> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(root_ + path, error), end; !error && entry != end;
       entry.increment(error)) {
    found.push_back(entry->path().filename().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace kazeia::bench
