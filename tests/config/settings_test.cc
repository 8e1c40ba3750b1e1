#include "config/settings/settings.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "config/settings/settings_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Variables = std::map<std::string, std::string>;

LoadedSettings Load(const std::vector<std::string>& args, const Variables& variables = {}) {
  const Environment environment = [&variables](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
  return LoadSettings(args, environment, "/opt/genesis/bin");
}

std::vector<std::string> Errors(const LoadedSettings& loaded) {
  std::vector<std::string> texts;
  for (const FieldError& error : loaded.errors) texts.push_back(error.ToString());
  return texts;
}

std::string SourceOf(const LoadedSettings& loaded, const std::string& key) {
  for (const EffectiveSetting& setting : loaded.effective) {
    if (setting.key == key) return setting.source;
  }
  return "no such setting";
}

// Gives each test its own settings file, removed at its end.
class SettingsTest : public testing::Test {
 protected:
  SettingsTest()
      : file_(testing::TempDir() + "/genesis_settings_test_" + std::to_string(getpid()) + ".yaml") {
  }
  ~SettingsTest() override { std::filesystem::remove(file_); }

  LoadedSettings LoadFile(const std::string& yaml, std::vector<std::string> args = {},
                          const Variables& variables = {}) {
    std::ofstream(file_) << yaml;
    args.push_back("--config=" + file_);
    return Load(args, variables);
  }

  const std::string file_;
};

TEST(SettingsDefaultsTest, AreThoseOfTheTable) {
  const LoadedSettings loaded = Load({});
  EXPECT_THAT(Errors(loaded), IsEmpty());
  EXPECT_THAT(loaded.warnings, IsEmpty());
  const std::string data = (std::filesystem::current_path() / "genesis-data").string();
  const Settings& s = loaded.settings;
  EXPECT_EQ(s.config_file, "");
  EXPECT_EQ(s.data_dir, data);
  EXPECT_EQ(s.grpc.listen, "127.0.0.1:50051");
  EXPECT_EQ(s.http.listen, "127.0.0.1:8080");
  EXPECT_EQ(s.datasets.root, data + "/datasets");
  EXPECT_EQ(s.checkpoints.dir, data + "/checkpoints");
  EXPECT_EQ(s.log.file, data + "/log/orchestrator.log");
  EXPECT_EQ(s.log.level, "info");
  EXPECT_EQ(s.deployment, "stable");
  EXPECT_EQ(s.workers.program, "/opt/genesis/bin/genesis-worker");
  EXPECT_EQ(s.workers.slots, 1);
  EXPECT_EQ(s.workers.spares, 1);
  EXPECT_EQ(s.workers.start_timeout_seconds, 120);
  EXPECT_EQ(s.queue.max_jobs, 1000);
  EXPECT_EQ(s.drain.timeout_seconds, 20);
  EXPECT_EQ(s.precision.cpu_fallback, CpuFallback::kBf16);
  EXPECT_EQ(s.precision.loss_scale.initial, 65536.0);
  EXPECT_EQ(s.precision.loss_scale.growth_factor, 2.0);
  EXPECT_EQ(s.precision.loss_scale.backoff_factor, 0.5);
  EXPECT_EQ(s.precision.loss_scale.growth_interval, 2000);
  EXPECT_FALSE(s.gate.enabled);
  for (const EffectiveSetting& setting : loaded.effective) EXPECT_EQ(setting.source, "default");
  EXPECT_EQ(loaded.effective.size(), SettingsTable().size() + 1);
}

// Returns a valid non-default value of each setting, as typed and as printed.
const Variables& OtherValues() {
  static const auto& values = *new Variables{
      {"history.interval_seconds", "60"},
      {"history.retention_days", "7"},
      {"history.max_curves_bytes", "1000000"},
      {"data_dir", "/srv/g"},
      {"grpc.listen", "[::1]:7000"},
      {"http.listen", "localhost:0"},
      {"grpc.unix_socket", "/srv/s"},
      {"grpc.unix_socket_mode", "0660"},
      {"grpc.max_connections", "1"},
      {"grpc.max_message_bytes", "65536"},
      {"grpc.keepalive_seconds", "10"},
      {"tls.certificate_file", "/srv/cert.pem"},
      {"tls.key_file", "/srv/key.pem"},
      {"tls.client_ca_file", "/srv/ca.pem"},
      {"tls.client_role", "viewer"},
      {"auth.tokens_file", "/srv/tokens"},
      {"auth.jwks_file", "/srv/jwks.json"},
      {"auth.jwt_issuer", "https://login.example.org"},
      {"auth.jwt_audience", "genesis"},
      {"auth.jwt_owner_claim", "email"},
      {"auth.jwt_role_claim", "groups"},
      {"auth.own_jobs_only", "true"},
      {"audit.file", "/srv/a.log"},
      {"webhooks.file", "/srv/webhooks.yaml"},
      {"datasets.root", "/srv/d"},
      {"datasets.max_uploads_bytes", "0"},
      {"checkpoints.dir", "/srv/c"},
      {"checkpoints.max_import_bytes", "1"},
      {"log.file", "/srv/l.log"},
      {"log.level", "debug"},
      {"log.format", "json"},
      {"otlp.endpoint", "http://[::1]:4318/collector"},
      {"deployment", "canary"},
      {"workers.program", "/srv/w"},
      {"workers.slots", "256"},
      {"workers.spares", "0"},
      {"workers.predictors", "256"},
      {"workers.start_timeout_seconds", "3600"},
      {"workers.devices", "cpu"},
      {"workers.remote", "true"},
      {"workers.cuda_graphs", "true"},
      {"workers.reattach_timeout_seconds", "1"},
      {"workers.quarantine_failures", "1"},
      {"workers.quarantine_seconds", "604800"},
      {"hang.setup_seconds", "1"},
      {"launchers.daemon_address", "trainer.example.org:50051"},
      {"launchers.worker_program", "/opt/genesis-worker"},
      {"launchers.token_file", "/srv/worker.token"},
      {"launchers.tls_ca", "/srv/ca.pem"},
      {"launchers.tls_cert", "/srv/worker.pem"},
      {"launchers.tls_key", "/srv/worker.key"},
      {"launchers.poll_seconds", "1"},
      {"slurm.enabled", "true"},
      {"slurm.bin_dir", "/opt/slurm/bin"},
      {"slurm.partition", "gpu,spare"},
      {"slurm.account", "team_7"},
      {"slurm.time_limit", "1-12:00:00"},
      {"slurm.options", "qos=high constraint=a100|h100"},
      {"slurm.gpus_per_task", "64"},
      {"slurm.cpus_per_task", "1024"},
      {"slurm.warn_seconds", "600"},
      {"slurm.log_dir", "/srv/slurm"},
      {"kubernetes.pod_template", "/srv/pod.yaml"},
      {"kubernetes.api_server", "https://[fd00::1]:6443"},
      {"kubernetes.namespace", "genesis"},
      {"kubernetes.token_file", "/srv/token"},
      {"kubernetes.ca_file", "/srv/ca.crt"},
      {"kubernetes.priority_class", "training.high"},
      {"kubernetes.gpus_per_pod", "8"},
      {"hang.step_seconds", "1"},
      {"hang.evaluation_seconds", "1"},
      {"hang.checkpoint_seconds", "1"},
      {"scheduler.preemption", "false"},
      {"retention.jobs", "0"},
      {"retention.days", "36500"},
      {"store.check", "full"},
      {"queue.max_jobs", "1000000"},
      {"quotas.queued_jobs", "10"},
      {"quotas.slots", "4"},
      {"quotas.requests_per_second", "50"},
      {"quotas.stored_bytes", "1099511627776"},
      {"drain.timeout_seconds", "0"},
      {"precision.reduced_precision", "false"},
      {"precision.cpu_fallback", "emulate"},
      {"precision.failure_watch", "advise"},
      {"rehearsals.allowed", "true"},
      {"precision.loss_scale", "1024"},
      {"precision.growth_factor", "1.5"},
      {"precision.backoff_factor", "0.25"},
      {"precision.growth_interval", "1"},
  };
  return values;
}

// Returns the settings that this setting requires, as environment variables.
Variables Companions(const std::string& key) {
  Variables companions;
  if (key == "tls.client_ca_file" || key == "tls.key_file") {
    companions["GENESIS_TLS_CERTIFICATE_FILE"] = "/srv/cert.pem";
  }
  if (key == "tls.client_ca_file" || key == "tls.certificate_file") {
    companions["GENESIS_TLS_KEY_FILE"] = "/srv/key.pem";
  }
  if (key == "auth.jwks_file" || key == "auth.jwt_issuer" || key == "auth.jwt_audience") {
    companions["GENESIS_AUTH_JWKS_FILE"] = "/srv/keys.json";
    companions["GENESIS_AUTH_JWT_ISSUER"] = "i";
    companions["GENESIS_AUTH_JWT_AUDIENCE"] = "a";
    companions.erase(FindByKey(key)->environment);
  }
  if (key == "slurm.enabled" || key == "kubernetes.pod_template")
    companions["GENESIS_WORKERS_REMOTE"] = "true";
  return companions;
}

void ExpectOtherValue(const LoadedSettings& loaded, const SettingRow& row,
                      const std::string& source) {
  EXPECT_THAT(Errors(loaded), IsEmpty()) << row.key;
  EXPECT_EQ(row.get(loaded.settings), OtherValues().at(row.key));
  EXPECT_EQ(SourceOf(loaded, row.key), source);
}

TEST_F(SettingsTest, AreEachSetByFlagEnvironmentAndFile) {
  for (const SettingRow& row : SettingsTable()) {
    const std::string value = OtherValues().at(row.key);
    ExpectOtherValue(Load({FlagOf(row) + "=" + value}, Companions(row.key)), row,
                     "flag " + FlagOf(row));
    ExpectOtherValue(Load({FlagOf(row), value}, Companions(row.key)), row, "flag " + FlagOf(row));
    Variables variables = Companions(row.key);
    variables[row.environment] = value;
    ExpectOtherValue(Load({}, variables), row, std::string("environment ") + row.environment);
    const std::string key = row.key;
    const size_t dot = key.find('.');
    const std::string yaml =
        dot == std::string::npos
            ? key + ": \"" + value + "\"\n"
            : key.substr(0, dot) + ":\n  " + key.substr(dot + 1) + ": \"" + value + "\"\n";
    ExpectOtherValue(LoadFile(yaml, {}, Companions(row.key)), row,
                     "file " + file_ + (dot == std::string::npos ? ":1" : ":2"));
  }
}

TEST_F(SettingsTest, PreferFlagOverEnvironmentOverFile) {
  const std::string yaml = "workers: {slots: 2, spares: 2}\nqueue: {max_jobs: 2}\n";
  const LoadedSettings loaded =
      LoadFile(yaml, {"--workers-slots=4"},
               {{"GENESIS_WORKERS_SLOTS", "3"}, {"GENESIS_WORKERS_SPARES", "3"}});
  EXPECT_THAT(Errors(loaded), IsEmpty());
  EXPECT_EQ(loaded.settings.workers.slots, 4);
  EXPECT_EQ(loaded.settings.workers.spares, 3);
  EXPECT_EQ(loaded.settings.queue.max_jobs, 2);
  EXPECT_EQ(SourceOf(loaded, "workers.slots"), "flag --workers-slots");
  EXPECT_EQ(SourceOf(loaded, "workers.spares"), "environment GENESIS_WORKERS_SPARES");
  EXPECT_EQ(SourceOf(loaded, "queue.max_jobs"), "file " + file_ + ":2");
}

TEST_F(SettingsTest, TakeTheFileFromTheEnvironmentUnlessAFlagNamesOne) {
  std::ofstream(file_) << "deployment: canary\n";
  const LoadedSettings by_variable = Load({}, {{"GENESIS_CONFIG", file_}});
  EXPECT_EQ(by_variable.settings.deployment, "canary");
  EXPECT_EQ(SourceOf(by_variable, "config"), "environment GENESIS_CONFIG");
  const LoadedSettings by_flag = Load({"--config", file_}, {{"GENESIS_CONFIG", "/nowhere"}});
  EXPECT_THAT(Errors(by_flag), IsEmpty());
  EXPECT_EQ(SourceOf(by_flag, "config"), "flag --config");
}

TEST_F(SettingsTest, MayComeFromAFileWithCommentsOnly) {
  EXPECT_THAT(Errors(LoadFile("# nothing yet\n")), IsEmpty());
  EXPECT_THAT(Errors(LoadFile("grpc:\n")), IsEmpty());
}

TEST(SettingsFlagsTest, TakeTheLastOfSeveral) {
  EXPECT_EQ(Load({"--workers-slots=2", "--workers-slots=3"}).settings.workers.slots, 3);
}

TEST(SettingsFlagsTest, AskForHelpVersionAndCheck) {
  EXPECT_TRUE(Load({"--help"}).show_help);
  EXPECT_TRUE(Load({"-h"}).show_help);
  EXPECT_TRUE(Load({"--version"}).show_version);
  EXPECT_TRUE(Load({"--check-config"}).check_config);
  EXPECT_FALSE(Load({}).show_help || Load({}).show_version || Load({}).check_config);
}

TEST(SettingsFlagsTest, AreRefusedWithTheNearestOne) {
  EXPECT_THAT(Errors(Load({"--grpc-listn=127.0.0.1:1", "--zebra", "now", "--data-dir", "--help=yes",
                           "--workers-slots"})),
              ElementsAre("--grpc-listn: unknown flag; did you mean --grpc-listen?",
                          "--zebra: unknown flag; see genesisd --help",
                          "\"now\": no flag; genesisd takes flags only, see genesisd --help",
                          "--data-dir: needs a value; write --data-dir=VALUE",
                          "--help: takes no value; write it alone",
                          "--workers-slots: needs a value; write --workers-slots=VALUE"));
}

TEST(SettingsValuesTest, AreRefusedWithWhatIsAccepted) {
  const std::pair<std::string, std::string> rows[] = {
      {"--data-dir=", "--data-dir is \"\"; accepted: a path"},
      {"--data-dir=~/g",
       "--data-dir is \"~/g\"; accepted: a path written out; \"~\" is not expanded"},
      {"--grpc-listen=0.0.0.0:50051",
       "--grpc-listen is \"0.0.0.0:50051\"; accepted: a loopback address; any other needs "
       "tls.certificate_file, tls.key_file and one of auth.tokens_file, auth.jwks_file and "
       "tls.client_ca_file, or the flag --insecure"},
      {"--http-listen=example.org:80",
       "--http-listen is \"example.org:80\"; accepted: a loopback address; any other needs "
       "tls.certificate_file, tls.key_file and one of auth.tokens_file, auth.jwks_file and "
       "tls.client_ca_file, or the flag --insecure"},
      {"--grpc-listen=50051",
       "--grpc-listen is \"50051\"; accepted: a host and a port, such as 127.0.0.1:50051 or "
       "[::1]:0"},
      {"--log-level=trace", "--log-level is \"trace\"; accepted: debug, info, warning or error"},
      {"--deployment=blue", "--deployment is \"blue\"; accepted: stable or canary"},
      {"--workers-slots=0", "--workers-slots is \"0\"; accepted: 1 to 256"},
      {"--workers-spares=65", "--workers-spares is \"65\"; accepted: 0 to 64"},
      {"--workers-start-timeout-seconds=1h",
       "--workers-start-timeout-seconds is \"1h\"; accepted: 1 to 3600"},
      {"--queue-max-jobs=1e3", "--queue-max-jobs is \"1e3\"; accepted: 1 to 1000000"},
      {"--drain-timeout-seconds=-1", "--drain-timeout-seconds is \"-1\"; accepted: 0 to 3600"},
      {"--precision-cpu-fallback=fp16",
       "--precision-cpu-fallback is \"fp16\"; accepted: bf16, fp32 or emulate"},
      {"--launchers-daemon-address=trainer:0",
       "--launchers-daemon-address is \"trainer:0\"; accepted: a host and a port, such as "
       "trainer.example.org:50051"},
      {"--slurm-enabled=true",
       "--slurm-enabled: true only with workers.remote: true, for the workers attach from other "
       "hosts"},
      {"--kubernetes-pod-template=/srv/pod.yaml",
       "--kubernetes-pod-template: only with workers.remote: true, for the workers attach from "
       "other hosts"},
      {"--kubernetes-api-server=http://10.0.0.1:443",
       "--kubernetes-api-server is \"http://10.0.0.1:443\"; accepted: https://host:port"},
      {"--slurm-partition=gpu;rm",
       "--slurm-partition is \"gpu;rm\"; accepted: letters, digits, '.', '_', '-' and ','"},
      {"--slurm-time-limit=4h",
       "--slurm-time-limit is \"4h\"; accepted: a time as sbatch takes it, such as 90, 04:00:00 or "
       "1-12:00"},
      {"--slurm-options=qos=high -n4",
       "--slurm-options is \"qos=high -n4\"; accepted: sbatch's long options without their --, "
       "with "
       "a space between them, such as qos=high constraint=a100"},
      {"--precision-loss-scale=0", "--precision-loss-scale is \"0\"; accepted: a float > 0"},
      {"--precision-loss-scale=1e39", "--precision-loss-scale is \"1e39\"; accepted: a float > 0"},
      {"--precision-growth-factor=1", "--precision-growth-factor is \"1\"; accepted: a float > 1"},
      {"--precision-backoff-factor=1",
       "--precision-backoff-factor is \"1\"; accepted: a float above 0 and below 1"},
      {"--precision-growth-interval=0",
       "--precision-growth-interval is \"0\"; accepted: a whole number >= 1"},
  };
  for (const auto& [flag, error] : rows) EXPECT_THAT(Errors(Load({flag})), ElementsAre(error));
}

TEST_F(SettingsTest, NameTheEnvironmentVariableOrThePlaceInTheFile) {
  EXPECT_THAT(
      Errors(Load({}, {{"GENESIS_GRPC_LISTEN", "0.0.0.0:1"}})),
      ElementsAre(
          "GENESIS_GRPC_LISTEN is \"0.0.0.0:1\"; accepted: a loopback address; any other needs "
          "tls.certificate_file, tls.key_file and one of auth.tokens_file, auth.jwks_file and "
          "tls.client_ca_file, or the flag --insecure"));
  EXPECT_THAT(
      Errors(LoadFile("grpc:\n  listen: 0.0.0.0:50051\n")),
      ElementsAre(
          file_ +
          ":2:11: grpc.listen is \"0.0.0.0:50051\"; accepted: a loopback address; any other needs "
          "tls.certificate_file, tls.key_file and one of auth.tokens_file, auth.jwks_file and "
          "tls.client_ca_file, or the flag --insecure"));
}

TEST_F(SettingsTest, RefuseUnknownAndRepeatedKeysAndOtherTypes) {
  EXPECT_THAT(
      Errors(LoadFile("grpc: {listn: 127.0.0.1:1}\nzebra: 1\nworkers: 4\nlog: {level: [info]}\n"
                      "deployment: stable\ndeployment: canary\nqueue: {max_jobs: }\n"
                      "http.listen: 127.0.0.1:1\nhttp: {listen: 127.0.0.1:2}\n? [a]\n: 1\n")),
      ElementsAre(
          file_ + ":1:8: grpc.listn: unknown key; did you mean grpc.listen?",
          file_ + ":2:1: zebra: unknown key; see genesisd --help for the known ones",
          file_ + ":3:10: workers is \"4\"; accepted: a group of keys: program, slots, spares, "
                  "predictors, start_timeout_seconds, devices, remote, cuda_graphs, "
                  "reattach_timeout_seconds, quarantine_failures, quarantine_seconds",
          file_ + ":4:14: log.level is a list; accepted: debug, info, warning or error",
          file_ + ":6:1: deployment: given twice; first at line 5; keep one",
          file_ + ":7:9: queue.max_jobs is empty; accepted: 1 to 1000000",
          file_ + ":9:8: http.listen: given twice; first at line 8; keep one",
          file_ + ":10:3: a key is a list; accepted: a name"));
}

TEST_F(SettingsTest, RefuseAFileThatIsNoYamlOrNotThere) {
  EXPECT_THAT(Errors(LoadFile("a: b: c\n")),
              ElementsAre(file_ + ":1:5: not readable as YAML: illegal map value"));
  EXPECT_THAT(Errors(Load({"--config=/nowhere.yaml"})),
              ElementsAre("--config: /nowhere.yaml: no such file; check the path"));
  EXPECT_THAT(Errors(Load({}, {{"GENESIS_CONFIG", "/nowhere.yaml"}})),
              ElementsAre("GENESIS_CONFIG: /nowhere.yaml: no such file; check the path"));
}

TEST_F(SettingsTest, ReportFaultsOfAllSourcesAtOnce) {
  const LoadedSettings loaded =
      LoadFile("workers: {slots: many}\n", {"--workers-slots=0", "--nonsense"},
               {{"GENESIS_WORKERS_SLOTS", "-1"}});
  EXPECT_THAT(Errors(loaded),
              ElementsAre("--nonsense: unknown flag; see genesisd --help",
                          file_ + ":1:18: workers.slots is \"many\"; accepted: 1 to 256",
                          "GENESIS_WORKERS_SLOTS is \"-1\"; accepted: 1 to 256",
                          "--workers-slots is \"0\"; accepted: 1 to 256"));
  EXPECT_THAT(FormatErrors(loaded), HasSubstr("error: --workers-slots is \"0\""));
}

TEST(SettingsConflictsTest, NameBothListenAddresses) {
  EXPECT_THAT(Errors(Load({"--grpc-listen=127.0.0.1:8080"})),
              ElementsAre("http.listen: 127.0.0.1:8080 is also grpc.listen; give each its own "
                          "port"));
  EXPECT_THAT(Errors(Load({"--grpc-listen=127.0.0.1:0", "--http-listen=127.0.0.1:0"})), IsEmpty());
}

TEST(SettingsConflictsTest, NameWhatWorkersOfOtherHostsNeed) {
  EXPECT_THAT(Errors(Load({"--workers-devices=none"})),
              ElementsAre(HasSubstr("none only with workers.remote: true")));
  EXPECT_THAT(Errors(Load({"--workers-devices=none", "--workers-remote=true"})), IsEmpty());
  EXPECT_THAT(Errors(Load({"--workers-remote=true", "--workers-reattach-timeout-seconds=20"})),
              ElementsAre(HasSubstr("above 20 with workers.remote")));
  EXPECT_THAT(Errors(Load({"--workers-remote=true", "--workers-reattach-timeout-seconds=21"})),
              IsEmpty());
}

TEST(SettingsPathsTest, FollowTheDataFolderAndAreAbsolute) {
  const Settings s = Load({"--data-dir=x/../y/", "--log-file="}).settings;
  const std::string data = (std::filesystem::current_path() / "y").string();
  EXPECT_EQ(s.data_dir, data);
  EXPECT_EQ(s.datasets.root, data + "/datasets");
  EXPECT_EQ(s.log.file, data + "/log/orchestrator.log");
  EXPECT_EQ(Load({"--checkpoints-dir=c"}).settings.checkpoints.dir,
            (std::filesystem::current_path() / "c").string());
}

// A row of the documented contract: variable, valid value, invalid value, accepted values.
struct ScaleRow {
  const char* variable;
  const char* key;
  const char* good;
  const char* bad;
  const char* accepted;
};
constexpr ScaleRow kScaleRows[] = {
    {"FP16_LOSS_SCALE", "precision.loss_scale", "128.5", "-1", "a float > 0"},
    {"FP16_GROWTH_FACTOR", "precision.growth_factor", "1.25", "1.0", "a float > 1"},
    {"FP16_BACKOFF_FACTOR", "precision.backoff_factor", "0.125", "1.5",
     "a float above 0 and below 1"},
    {"FP16_GROWTH_INTERVAL", "precision.growth_interval", "17", "2e3", "a whole number >= 1"},
};

TEST(LossScaleVariablesTest, SetTheScale) {
  for (const ScaleRow& row : kScaleRows) {
    const LoadedSettings loaded = Load({}, {{row.variable, row.good}});
    EXPECT_EQ(FindByKey(row.key)->get(loaded.settings), row.good);
  }
}

TEST(LossScaleVariablesTest, StopStartUpWhenUnreadableWhileTheGateIsOpen) {
  Variables variables = {{"ENABLE_FP16_TRAINING", "true"}};
  std::vector<std::string> expected;
  for (const ScaleRow& row : kScaleRows) {
    variables[row.variable] = row.bad;
    expected.push_back(std::string(row.variable) + " is \"" + row.bad +
                       "\"; accepted: " + row.accepted);
  }
  const LoadedSettings loaded = Load({}, variables);
  EXPECT_EQ(Errors(loaded), expected);
  EXPECT_THAT(loaded.warnings, IsEmpty());
}

TEST(LossScaleVariablesTest, AreAWarningWhenUnreadableWhileTheGateIsClosed) {
  const LoadedSettings loaded = Load({}, {{"FP16_LOSS_SCALE", "big"}});
  EXPECT_THAT(Errors(loaded), IsEmpty());
  EXPECT_THAT(loaded.warnings,
              ElementsAre("FP16_LOSS_SCALE is \"big\"; accepted: a float > 0; ignored while "
                          "reduced precision is disabled: precision.loss_scale is 65536"));
  EXPECT_EQ(loaded.settings.precision.loss_scale.initial, 65536.0);
  EXPECT_EQ(SourceOf(loaded, "precision.loss_scale"), "default");
}

TEST_F(SettingsTest, CloseTheGateFromAnySourceAndNeverOpenItAgain) {
  const Variables open = {{"ENABLE_FP16_TRAINING", "true"}};
  EXPECT_TRUE(Load({}, open).settings.gate.enabled);
  const LoadedSettings by_file = LoadFile("precision: {reduced_precision: false}\n",
                                          {"--precision-reduced-precision=true"}, open);
  EXPECT_FALSE(by_file.settings.gate.enabled);
  EXPECT_EQ(by_file.settings.gate.reason, "disabled by precision.reduced_precision=false");
  EXPECT_EQ(SourceOf(by_file, "precision.reduced_precision"), "file " + file_ + ":1");
  EXPECT_FALSE(Load({"--precision-reduced-precision=false"}, open).settings.gate.enabled);
  EXPECT_FALSE(Load({"--precision-reduced-precision=true"}).settings.gate.enabled);
}

TEST_F(SettingsTest, CloseTheGateWithoutAnOutageWhenUnreadable) {
  const LoadedSettings loaded =
      LoadFile("precision:\n  reduced_precision: False\n", {}, {{"ENABLE_FP16_TRAINING", "true"}});
  EXPECT_THAT(Errors(loaded), IsEmpty());
  EXPECT_FALSE(loaded.settings.gate.enabled);
  EXPECT_THAT(loaded.settings.gate.errors,
              ElementsAre(file_ + ":2:22: precision.reduced_precision is \"False\"; accepted: "
                                  "exactly true or false; reduced precision is disabled"));
}

}  // namespace
}  // namespace genesis
