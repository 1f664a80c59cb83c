#include "base/user_folders.h"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace kazeia {
namespace {

class UserFolders : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"XDG_STATE_HOME", "XDG_DATA_HOME"}) ::unsetenv(name);
    ::setenv("HOME", "/home/nadia", 1);
  }
};

TEST_F(UserFolders, AreInTheHomeUnlessSomethingElseIsNamed) {
  EXPECT_EQ(in_state_folder("tuned"), "/home/nadia/.local/state/kazeia/tuned");
  EXPECT_EQ(in_data_folder("sessions"), "/home/nadia/.local/share/kazeia/sessions");
  ::setenv("XDG_STATE_HOME", "/state", 1);
  ::setenv("XDG_DATA_HOME", "/data", 1);
  EXPECT_EQ(in_state_folder("profile.json"), "/state/kazeia/profile.json");
  EXPECT_EQ(in_data_folder("sessions"), "/data/kazeia/sessions");
}

TEST_F(UserFolders, IgnoreARelativePath) {
  ::setenv("XDG_STATE_HOME", "state", 1);
  EXPECT_EQ(in_state_folder("tuned"), "/home/nadia/.local/state/kazeia/tuned");
}

TEST_F(UserFolders, AreNowhereWithoutAHome) {
  ::unsetenv("HOME");
  EXPECT_EQ(in_state_folder("tuned"), "");
  EXPECT_EQ(in_data_folder("sessions"), "");
}

}  // namespace
}  // namespace kazeia
