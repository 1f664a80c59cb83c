// The files of procfs and sysfs, under a root that a test can replace. What cannot be read is empty: a kernel may hide
// any of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace kazeia::bench {

class KernelFiles {
 public:
  explicit KernelFiles(std::string root = "/");

  std::string text(const std::string& path) const;
  std::string line(const std::string& path) const;                // without blanks around it
  std::optional<double> number(const std::string& path) const;    // that the file begins with
  std::vector<std::string> names(const std::string& path) const;  // in a folder, sorted

 private:
  std::string root_;
};

}  // namespace kazeia::bench
