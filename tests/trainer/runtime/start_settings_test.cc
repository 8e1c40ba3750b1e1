#include "trainer/runtime/start_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace genesis {
namespace {

using testing::ElementsAre;

class StartSettingsTest : public testing::Test {
 protected:
  StartSettingsTest() {
    for (const StartSetting& setting : {kSleep, kSpins, kMalloc}) unsetenv(setting.name);
  }

  static std::vector<std::string> Missing() {
    std::vector<std::string> names;
    for (const StartSetting& setting : MissingStartSettings()) names.emplace_back(setting.name);
    return names;
  }
};

TEST_F(StartSettingsTest, AreAddedWhereTheCallerHasNone) {
  EXPECT_THAT(Missing(), ElementsAre("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "GLIBC_TUNABLES"));
  for (const StartSetting& setting : MissingStartSettings()) {
    EXPECT_FALSE(IsSet(setting));
    setenv(setting.name, setting.value, 1);
    EXPECT_TRUE(IsSet(setting));
  }
  EXPECT_THAT(Missing(), ElementsAre());
}

TEST_F(StartSettingsTest, LeaveTheCallersOwnAlone) {
  setenv("OMP_WAIT_POLICY", "ACTIVE", 1);
  EXPECT_THAT(Missing(), ElementsAre("GLIBC_TUNABLES"));
  EXPECT_FALSE(IsSet(kSleep));
  unsetenv("OMP_WAIT_POLICY");
  setenv("GOMP_SPINCOUNT", "7", 1);
  setenv("GLIBC_TUNABLES", "glibc.malloc.check=3", 1);
  EXPECT_THAT(Missing(), ElementsAre());
}

}  // namespace
}  // namespace genesis
