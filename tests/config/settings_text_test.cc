// Tests of pages printed from the tables of settings and exit codes, and of listen addresses.
#include <map>

#include "base/exit_code.h"
#include "base/text/yaml_document.h"
#include "config/settings/listen_address.h"
#include "config/settings/reference.h"
#include "config/settings/settings.h"
#include "config/settings/settings_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace genesis {
namespace {

using testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

LoadedSettings LoadText(const std::vector<std::string>& args, const Variables& variables = {}) {
  const Environment environment = [&variables](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
  return LoadSettings(args, environment, "/opt/genesis/bin");
}

TEST(SettingsTextTest, PrintsEffectiveValuesGateWarningsAndErrors) {
  const LoadedSettings loaded = LoadText(
      {"--data-dir=/srv/g", "--workers-slots=0"},
      {{"ENABLE_FP16_TRAINING", "1"}, {"FP16_LOSS_SCALE", "x"}, {"GENESIS_DEPLOYMENT", "canary"}});
  const std::string text = FormatEffective(loaded);
  EXPECT_THAT(text, HasSubstr("config = (none)  (default)\n"));
  EXPECT_THAT(text, HasSubstr("data_dir = /srv/g  (flag --data-dir)\n"));
  EXPECT_THAT(text, HasSubstr("checkpoints.dir = /srv/g/checkpoints  (default)\n"));
  EXPECT_THAT(text, HasSubstr("deployment = canary  (environment GENESIS_DEPLOYMENT)\n"));
  EXPECT_THAT(text, HasSubstr("reduced precision is disabled by ENABLE_FP16_TRAINING=\"1\" "
                              "(unreadable)\nerror: ENABLE_FP16_TRAINING is \"1\"; accepted: "));
  EXPECT_THAT(text, HasSubstr("warning: FP16_LOSS_SCALE is \"x\""));
  EXPECT_THAT(text, HasSubstr("error: --workers-slots is \"0\"; accepted: 1 to 256\n"));
}

TEST(SettingsTextTest, HelpNamesEverySettingAndExitCode) {
  const std::string help = SettingsHelp();
  for (const SettingRow& row : SettingsTable()) {
    EXPECT_THAT(help, HasSubstr(FlagOf(row) + "="));
    EXPECT_THAT(help, HasSubstr(row.environment));
  }
  EXPECT_THAT(help, HasSubstr("ENABLE_FP16_TRAINING"));
  EXPECT_THAT(help, HasSubstr("  3  Another genesisd holds the data folder.\n"));
}

TEST(ExitCodeTest, KeepsItsNumbers) {
  const std::pair<ExitCode, int> rows[] = {
      {ExitCode::kOk, 0},           {ExitCode::kFailure, 1},      {ExitCode::kUsage, 2},
      {ExitCode::kDataDirInUse, 3}, {ExitCode::kAddressInUse, 4}, {ExitCode::kStoreFailure, 5},
      {ExitCode::kJobFailed, 6},    {ExitCode::kUnavailable, 7}};
  ASSERT_EQ(ExitCodes().size(), std::size(rows));
  for (size_t i = 0; i < std::size(rows); ++i) {
    EXPECT_EQ(ToInt(rows[i].first), rows[i].second);
    EXPECT_EQ(ExitCodes()[i].code, rows[i].first);
  }
}

TEST(ReferencePageTest, IsCurrent) {
  const absl::StatusOr<std::string> page = ReadTextFile(GENESIS_DOCS_DIR "/reference.md");
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(*page, ReferencePage())
      << "write it anew: cmake --build --preset release --target reference";
}

TEST(ListenAddressTest, IsHostAndPort) {
  EXPECT_EQ(ParseHostPort("127.0.0.1:50051")->port, 50051);
  EXPECT_EQ(ParseHostPort("[::1]:0")->host, "::1");
  EXPECT_EQ(ParseHostPort("genesis-1.example.org:1")->host, "genesis-1.example.org");
  for (const char* text : {"", ":1", "a", "a:", "a:65536", "a:-1", "::1:50051", "[::1]", "[x]:1",
                           "a b:1", "http://a:1", "a:1 "}) {
    EXPECT_FALSE(ParseHostPort(text).has_value()) << text;
  }
}

TEST(ListenAddressTest, KnowsLoopback) {
  for (const char* host : {"localhost", "LOCALHOST", "127.0.0.1", "127.8.8.8", "::1"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "127.0.0.1.example.org", "127", "a"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

}  // namespace
}  // namespace genesis
