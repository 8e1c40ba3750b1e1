#include "server/telemetry/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "absl/time/clock.h"
#include "server/telemetry/machine_monitor.h"
#include "server/telemetry/visible_devices.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr char kTwo[] =
    "H100 GPU-aaaa 85899345920 1073741824 93 612500 71 0x4\n"
    "H100 GPU-bbbb 85899345920 2147483648 7 90000 40 0x1\n";

class NvmlTest : public testing::Test {
 protected:
  void SetDevices(const std::string& lines) {
    temp_.Write("gpus", lines);
    setenv("GENESIS_FAKE_NVML", (temp_.path() + "/gpus").c_str(), 1);
  }
  ~NvmlTest() override { unsetenv("GENESIS_FAKE_NVML"); }

  TempDir temp_;
};

TEST_F(NvmlTest, ReadsEveryFigureInBaseUnits) {
  SetDevices(kTwo);
  const auto nvml = Nvml::Load(GENESIS_FAKE_NVML_LIBRARY);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  ASSERT_EQ((*nvml)->devices().size(), 2u);
  EXPECT_EQ((*nvml)->devices()[1].uuid, "GPU-bbbb");
  const GpuStatistics first = (*nvml)->Read((*nvml)->devices()[0], "cuda:0");
  EXPECT_EQ(first.device, "cuda:0");
  EXPECT_EQ(first.memory_total_bytes, int64_t{80} << 30);
  EXPECT_EQ(first.memory_used_bytes, int64_t{1} << 30);
  EXPECT_EQ(first.utilization_ratio, 0.93);
  EXPECT_EQ(first.power_watts, 612.5);
  EXPECT_EQ(first.temperature_celsius, 71);
  EXPECT_THAT(first.throttle_reasons, ElementsAre("sw_power_cap"));
  EXPECT_THAT((*nvml)->Read((*nvml)->devices()[1], "cuda:1").throttle_reasons, IsEmpty())
      << "an idle device is not held down";
}

TEST_F(NvmlTest, WhatTheDriverDoesNotGiveIsAbsentAndNotZero) {
  SetDevices("T4 GPU-a 16106127360 0 - - 33 -\n");
  const auto nvml = Nvml::Load(GENESIS_FAKE_NVML_LIBRARY);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const GpuStatistics figures = (*nvml)->Read((*nvml)->devices()[0], "cuda:0");
  EXPECT_EQ(figures.memory_used_bytes, 0);
  EXPECT_EQ(figures.utilization_ratio, std::nullopt);
  EXPECT_EQ(figures.power_watts, std::nullopt);
  EXPECT_EQ(figures.temperature_celsius, 33);
  EXPECT_THAT(figures.throttle_reasons, IsEmpty());
}

TEST_F(NvmlTest, WithoutLibraryOrDriverItSaysSo) {
  const auto missing = Nvml::Load("libno-such-library.so.1");
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_THAT(missing.status().message(), HasSubstr("libno-such-library.so.1"));
  unsetenv("GENESIS_FAKE_NVML");
  const auto no_driver = Nvml::Load(GENESIS_FAKE_NVML_LIBRARY);
  EXPECT_TRUE(absl::IsFailedPrecondition(no_driver.status()));
  EXPECT_THAT(no_driver.status().message(), HasSubstr("Driver Not Loaded"));
  const auto other = Nvml::Load("libz.so.1");
  EXPECT_TRUE(absl::IsFailedPrecondition(other.status()));
  EXPECT_THAT(other.status().message(), HasSubstr("has no nvmlInit_v2"));
}

Environment Variables(std::map<std::string, std::string> variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

Nvml::Device Device(const char* name, const char* uuid) {
  static int place;
  return {.handle = &place, .name = name, .uuid = uuid};
}

// Returns the UUIDs of the devices that were found, by the daemon's names.
std::map<std::string, std::string> Found(const DeviceMatch& match) {
  std::map<std::string, std::string> uuids;
  for (const auto& [name, device] : match.found) uuids[name] = device.uuid;
  return uuids;
}

using Uuids = std::map<std::string, std::string>;

TEST(MatchDevices, AlikeDevicesAreCountedInTheDriversOrder) {
  const std::vector<Nvml::Device> two = {Device("H100", "GPU-a"), Device("H100", "GPU-b")};
  EXPECT_EQ(Found(MatchDevices({"cuda:0", "cuda:1", "cpu"}, two, Variables({}))),
            (Uuids{{"cuda:0", "GPU-a"}, {"cuda:1", "GPU-b"}}));
  const DeviceMatch absent = MatchDevices({"cuda:2"}, two, Variables({}));
  EXPECT_THAT(absent.found, IsEmpty());
  EXPECT_EQ(absent.problem, "cuda:2 is not found among the 2 devices of the driver");
}

TEST(MatchDevices, FollowsWhatIsVisibleToTheWorkers) {
  const std::vector<Nvml::Device> two = {Device("H100", "GPU-a"), Device("H100", "GPU-b")};
  EXPECT_EQ(Found(MatchDevices({"cuda:0"}, two, Variables({{"CUDA_VISIBLE_DEVICES", "1,0"}}))),
            (Uuids{{"cuda:0", "GPU-b"}}));
  EXPECT_EQ(Found(MatchDevices({"cuda:0"}, two, Variables({{"CUDA_VISIBLE_DEVICES", "GPU-b"}}))),
            (Uuids{{"cuda:0", "GPU-b"}}));
  EXPECT_THAT(MatchDevices({"cuda:1"}, two, Variables({{"CUDA_VISIBLE_DEVICES", "1"}})).found,
              IsEmpty());
  EXPECT_THAT(MatchDevices({"cuda:0"}, two, Variables({{"CUDA_VISIBLE_DEVICES", "GPU-"}})).found,
              IsEmpty())
      << "both begin so";
  EXPECT_THAT(MatchDevices({"cuda:0"}, two, Variables({{"CUDA_VISIBLE_DEVICES", "MIG-1"}})).found,
              IsEmpty());
}

TEST(MatchDevices, DoesNotGuessAmongSeveralModels) {
  const std::vector<Nvml::Device> mixed = {Device("T4", "GPU-a"), Device("H100", "GPU-b")};
  const DeviceMatch unsure = MatchDevices({"cuda:0"}, mixed, Variables({}));
  EXPECT_THAT(unsure.found, IsEmpty());
  EXPECT_THAT(unsure.problem, HasSubstr("set CUDA_DEVICE_ORDER=PCI_BUS_ID"));
  EXPECT_EQ(
      Found(MatchDevices({"cuda:0"}, mixed, Variables({{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}}))),
      (Uuids{{"cuda:0", "GPU-a"}}));
  EXPECT_EQ(Found(MatchDevices({"cuda:0"}, mixed, Variables({{"CUDA_VISIBLE_DEVICES", "GPU-b"}}))),
            (Uuids{{"cuda:0", "GPU-b"}}));
}

// Waits until the page contains the text or, if `there` is false, no longer does. Returns the page.
std::string Await(const Metrics& metrics, const std::string& text, bool there) {
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  std::string page;
  do {
    page = metrics.RenderText();
    if ((page.find(text) != std::string::npos) == there) return page;
    absl::SleepFor(absl::Milliseconds(5));
  } while (absl::Now() < deadline);
  ADD_FAILURE() << "waited for " << text << "\n" << page;
  return page;
}

TEST_F(NvmlTest, TheMonitorShowsVolumesAndGpusAndHidesThemWhenTheyAreGone) {
  SetDevices(kTwo);
  Metrics metrics("stable", "1.2.3");
  MachineMonitor monitor({.volumes = {{"data", temp_.path()}, {"checkpoints", "/no/such/folder"}},
                          .devices = {"cuda:0"},
                          .nvml = GENESIS_FAKE_NVML_LIBRARY,
                          .environment = Variables({}),
                          .period = absl::Milliseconds(5)},
                         &metrics);
  monitor.Start();
  const std::string page = Await(metrics, "genesis_gpu_power_watts", true);
  EXPECT_THAT(page, HasSubstr("genesis_gpu_memory_used_bytes{deployment=\"stable\","
                              "device=\"cuda:0\"} 1073741824"));
  EXPECT_THAT(page, HasSubstr("genesis_volume_free_bytes{deployment=\"stable\",volume=\"data\"}"));
  EXPECT_THAT(page, Not(HasSubstr("volume=\"checkpoints\"")));
  EXPECT_THAT(page, Not(HasSubstr("device=\"cuda:1\""))) << "no job runs there";
  SetDevices("");
  Await(metrics, "genesis_gpu_", false);
  monitor.Stop();
}

TEST_F(NvmlTest, TheMonitorOfAMachineWithoutGpusLoadsNothing) {
  SetDevices(kTwo);
  Metrics metrics("stable", "1.2.3");
  MachineMonitor monitor({.volumes = {{"data", temp_.path()}},
                          .devices = {"cpu"},
                          .nvml = GENESIS_FAKE_NVML_LIBRARY,
                          .environment = Variables({}),
                          .period = absl::Milliseconds(5)},
                         &metrics);
  monitor.Start();
  EXPECT_THAT(Await(metrics, "genesis_volume_free_bytes", true), Not(HasSubstr("genesis_gpu_")));
}

}  // namespace
}  // namespace genesis
