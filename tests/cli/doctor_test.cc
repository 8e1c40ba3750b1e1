// Tests of each check of genesisctl doctor on simulated machines.
#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/doctor/checks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/temp_dir.h"

namespace genesis::cli {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::Matcher;
using training::v1::TrainingService;

Matcher<Finding> Is(Finding::Level level, const std::string& text) {
  return AllOf(Field(&Finding::level, level), Field(&Finding::text, HasSubstr(text)));
}
Matcher<Finding> IsGood(const std::string& text) { return Is(Finding::Level::kGood, text); }
Matcher<Finding> IsNote(const std::string& text) { return Is(Finding::Level::kNote, text); }
Matcher<Finding> IsProblem(const std::string& text) { return Is(Finding::Level::kProblem, text); }

// Expects a fix for each finding that is not good, and for no other.
void ExpectFixes(const Findings& findings) {
  for (const Finding& each : findings) {
    EXPECT_EQ(each.fix.empty(), each.level == Finding::Level::kGood) << each.text;
  }
}

LoadedSettings Load(const std::map<std::string, std::string>& variables,
                    const std::vector<std::string>& flags = {}) {
  return LoadSettings(
      flags,
      [variables](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
      },
      "/nowhere");
}

TEST(DoctorSettingsTest, ReportsWhatTheDaemonWouldRefuse) {
  const Findings findings = CheckSettings(Load({{"GENESIS_QUEUE_MAX_JOBS", "many"}}), {});
  EXPECT_THAT(findings, Contains(IsProblem("many")));
  ExpectFixes(findings);
}

TEST(DoctorSettingsTest, ReportsAGateThatCannotBeRead) {
  const Findings findings = CheckSettings(Load({{"ENABLE_FP16_TRAINING", "True"}}), {});
  EXPECT_THAT(findings, Contains(IsProblem("ENABLE_FP16_TRAINING")));
  ExpectFixes(findings);
}

TEST(DoctorSettingsTest, NamesTheVariableThatWasMeant) {
  const Findings findings =
      CheckSettings(Load({}), {"ENABLE_FP16_TRANING", "GENESIS_LOG_LEVEL", "GENESIS_OWN_KERNELS",
                               "GENESIS_PYTHON", "PATH", "LESS"});
  EXPECT_THAT(findings, ElementsAre(IsGood("every value"), IsGood("reduced precision is"),
                                    IsNote("ENABLE_FP16_TRANING")));
  EXPECT_THAT(findings[2].fix, HasSubstr("set ENABLE_FP16_TRAINING instead"));
}

class DoctorGpuTest : public testing::Test {
 protected:
  void PutGpuOnBus() {
    machine_.Write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
    machine_.Write("sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
  }
  void LoadDriver(const std::string& version) {
    PutGpuOnBus();
    machine_.Write("proc/driver/nvidia/version",
                   absl::StrCat("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  ",
                                version, "  Release Build  (dvs-builder)\n"));
    machine_.Write("dev/nvidiactl", "");
  }
  Findings Check() const {
    return CheckGpu({.proc = machine_.path() + "/proc",
                     .sys = machine_.path() + "/sys",
                     .dev = machine_.path() + "/dev",
                     .can_load = [this](const char* name) { return missing_ != name; },
                     .clock_is_synchronised = nullptr});
  }

  TempDir machine_;
  std::string missing_;
};

TEST_F(DoctorGpuTest, NotesThatThereIsNone) {
  machine_.Write("sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n");
  machine_.Write("sys/bus/pci/devices/0000:00:02.0/class", "0x030000\n");
  // An NVIDIA audio device.
  machine_.Write("sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n");
  machine_.Write("sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n");
  EXPECT_THAT(Check(), ElementsAre(IsNote("no NVIDIA GPU")));
}

TEST_F(DoctorGpuTest, FindsOneWithoutADriver) {
  PutGpuOnBus();
  EXPECT_THAT(Check(), ElementsAre(IsProblem("driver is not loaded")));
}

TEST_F(DoctorGpuTest, IsContentWithADriverThatFits) {
  LoadDriver("580.65.06");
  EXPECT_THAT(Check(), ElementsAre(IsGood("driver 580.65.06")));
}

TEST_F(DoctorGpuTest, RefusesADriverThatIsTooOld) {
  LoadDriver("535.104.05");
  EXPECT_THAT(Check(), ElementsAre(IsProblem("driver 535.104.05 is older than 580")));
}

TEST_F(DoctorGpuTest, FindsMissingLibrariesAndDevices) {
  LoadDriver("580.65.06");
  missing_ = "libcuda.so.1";
  EXPECT_THAT(Check(), Contains(IsProblem("libcuda.so.1")));
  missing_ = "libnvidia-ml.so.1";
  EXPECT_THAT(Check(), Contains(IsNote("libnvidia-ml.so.1")));
  std::filesystem::remove(machine_.path() + "/dev/nvidiactl");
  EXPECT_THAT(Check(), Contains(IsProblem("nvidiactl")));
  ExpectFixes(Check());
}

class DoctorWorkerTest : public testing::Test {
 protected:
  Findings CheckScript(const std::string& script) {
    folder_.Write("worker", "#!/bin/sh\n" + script);
    Settings settings;
    settings.workers.program = folder_.path() + "/worker";
    chmod(settings.workers.program.c_str(), 0700);
    return CheckWorker(settings);
  }
  TempDir folder_;
};

TEST_F(DoctorWorkerTest, ShowsWhatTheWorkerSaysOfItself) {
  EXPECT_THAT(CheckScript("echo LibTorch 2; echo \"cpu: $1\""),
              ElementsAre(IsGood("LibTorch 2; cpu: --describe-device")));
}

TEST_F(DoctorWorkerTest, ShowsWhyItDoesNotStart) {
  const Findings findings = CheckScript("echo libtorch_cpu.so: cannot open >&2; exit 127");
  EXPECT_THAT(findings, ElementsAre(IsProblem("libtorch_cpu.so: cannot open")));
  ExpectFixes(findings);
}

TEST_F(DoctorWorkerTest, SaysThatThereIsNone) {
  Settings settings;
  settings.workers.program = folder_.path() + "/none";
  EXPECT_THAT(CheckWorker(settings), ElementsAre(IsProblem("No such file")));
}

TEST(DoctorStorageTest, LooksAtFoldersThatAreNotThereYet) {
  const TempDir folder;
  const LoadedSettings loaded = Load({}, {"--data-dir=" + folder.path() + "/new/data"});
  const Findings findings = CheckStorage(loaded.settings);
  EXPECT_THAT(findings, Contains(Field(&Finding::text, HasSubstr("/new/data/checkpoints"))));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/new"));
  ExpectFixes(findings);
}

TEST(DoctorStorageTest, FindsAFolderThatCannotBeWritten) {
  const TempDir folder;
  folder.Write("file", "");
  const LoadedSettings loaded = Load({}, {"--data-dir=" + folder.path() + "/file/data"});
  const Findings findings = CheckStorage(loaded.settings);
  EXPECT_THAT(findings, Contains(IsProblem("no right to write to " + folder.path() + "/file")));
  ExpectFixes(findings);
}

TEST(DoctorStorageTest, NotesAFileSystemThatDoesNotLast) {
  const LoadedSettings loaded = Load({}, {"--data-dir=/dev/shm/genesis"});
  EXPECT_THAT(CheckStorage(loaded.settings), Contains(IsNote("tmpfs")));
}

class DoctorPortsTest : public testing::Test {
 protected:
  // Opens a listener, which stands for that of another program or of the daemon.
  DoctorPortsTest() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 1), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    settings_.data_dir = folder_.path();
    settings_.grpc.listen = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
    settings_.http.listen = "127.0.0.1:0";
  }
  ~DoctorPortsTest() override { close(fd_); }

  const int fd_;
  TempDir folder_;
  Settings settings_;
};

TEST_F(DoctorPortsTest, FindsAPortThatIsTaken) {
  const Findings findings = CheckPorts(settings_);
  EXPECT_THAT(findings, ElementsAre(IsProblem("in use by another program"), IsGood("is free")));
  ExpectFixes(findings);
}

TEST_F(DoctorPortsTest, KnowsTheDaemonThatHoldsIt) {
  folder_.Write("run/endpoints", absl::StrCat("grpc: ", settings_.grpc.listen,
                                              "\nhttp: 127.0.0.1:1\npid: ", getpid(), "\n"));
  EXPECT_THAT(CheckPorts(settings_)[0],
              IsGood(absl::StrCat("held by genesisd, process ", getpid())));
}

TEST_F(DoctorPortsTest, FindsAnAddressOfAnotherMachine) {
  settings_.http.listen = "192.0.2.1:8080";
  EXPECT_THAT(CheckPorts(settings_)[1], IsProblem("cannot be listened on"));
}

class DoctorSystemTest : public testing::Test {
 protected:
  Findings Check() {
    return CheckSystem(settings_, {.proc = machine_.path() + "/proc",
                                   .sys = machine_.path() + "/sys",
                                   .can_load = nullptr,
                                   .clock_is_synchronised = [this] { return synchronised_; }});
  }
  TempDir machine_;
  Settings settings_;
  bool synchronised_ = true;
};

TEST_F(DoctorSystemTest, IsContentWithASoundMachine) {
  settings_.grpc.max_connections = 1;
  machine_.Write("proc/meminfo", "MemTotal:       16384000 kB\nMemFree: 1 kB\n");
  EXPECT_THAT(Check(),
              ElementsAre(IsGood("open files"), IsGood("15.6 GiB"), IsGood("synchronised")));
}

TEST_F(DoctorSystemTest, KnowsTheLimitOfTheControlGroup) {
  machine_.Write("proc/meminfo", "MemTotal:       16384000 kB\n");
  machine_.Write("sys/fs/cgroup/memory.max", "1073741824\n");
  synchronised_ = false;
  settings_.grpc.max_connections = 1 << 30;
  const Findings findings = Check();
  EXPECT_THAT(findings,
              ElementsAre(IsNote("open files"), IsProblem("1.0 GiB"), IsNote("synchronised")));
  ExpectFixes(findings);
}

class FakeDaemon final : public TrainingService::Service {
 public:
  FakeDaemon() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  Findings Check() const {
    const std::string address = absl::StrCat("127.0.0.1:", port_);
    const auto stub =
        TrainingService::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
    return CheckDaemon(*stub, address);
  }

  bool ready = true;
  double overflow_rate = 0;

 private:
  grpc::Status GetServerInfo(grpc::ServerContext*, const training::v1::GetServerInfoRequest*,
                             training::v1::GetServerInfoResponse* response) override {
    response->set_ready(ready);
    return grpc::Status::OK;
  }
  grpc::Status Stats(grpc::ServerContext*, const training::v1::StatsRequest*,
                     training::v1::StatsResponse* response) override {
    response->set_overflow_rate(overflow_rate);
    return grpc::Status::OK;
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST(DoctorDaemonTest, IsContentWithOneThatIsReady) {
  const FakeDaemon daemon;
  EXPECT_THAT(daemon.Check(), ElementsAre(IsGood("is ready"), IsGood("0.0%")));
}

TEST(DoctorDaemonTest, SaysThatOverflowNeedsALowerScale) {
  FakeDaemon daemon;
  daemon.ready = false;
  daemon.overflow_rate = 0.31;
  const Findings findings = daemon.Check();
  EXPECT_THAT(findings, ElementsAre(IsProblem("not ready"), IsProblem("31.0%")));
  EXPECT_THAT(findings[1].fix, HasSubstr("do not raise the scale"));
}

TEST(DoctorDaemonTest, NotesThatNoneAnswers) {
  const auto stub = TrainingService::NewStub(
      grpc::CreateChannel("unix:/nowhere/socket", grpc::InsecureChannelCredentials()));
  EXPECT_THAT(CheckDaemon(*stub, "unix:/nowhere/socket"), ElementsAre(IsNote("none answers")));
}

}  // namespace
}  // namespace genesis::cli
