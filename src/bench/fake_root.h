// For tests: a folder with the proc/ and sys/ files of some other machine.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace kazeia::bench {

class FakeRoot : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name =
        (std::filesystem::temp_directory_path() / ("kazeia-bench-" + std::to_string(::getpid()) + "-XXXXXX")).string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text << "\n";
  }
  std::string root() const { return root_.string(); }

  std::filesystem::path root_;
};

}  // namespace kazeia::bench
