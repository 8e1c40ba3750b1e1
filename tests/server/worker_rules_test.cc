// Tests of the pool's rules: quarantine of devices, progress, and the detection of devices.
#include <gmock/gmock.h>

#include "server/workers/device_table.h"
#include "server/workers/find_devices.h"
#include "server/workers/progress_watch.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using training::v1::AttachRequest;

const absl::Time kRulesNow = absl::FromUnixSeconds(1'000'000);

WorkerSettings Devices(std::vector<std::string> names, int slots, int quarantine_failures) {
  WorkerSettings settings;
  settings.devices = std::move(names);
  settings.slots = slots;
  settings.quarantine_failures = quarantine_failures;
  return settings;
}

TEST(DeviceTableTest, GivesRoomBySlotsAndByMemory) {
  DeviceTable table(Devices({"cuda:0", "cuda:1"}, /*slots=*/2, /*quarantine_failures=*/3));
  EXPECT_EQ(table.slots(), 4);
  DeviceTable::Device& device = table.Get("cuda:1");
  EXPECT_TRUE(table.HasRoom(device, 1000, kRulesNow)) << "its memory is not known yet";
  device.memory_bytes = 1000;
  device.reserved_bytes = 600;
  device.busy = 1;
  EXPECT_TRUE(table.HasRoom(device, 400, kRulesNow));
  EXPECT_FALSE(table.HasRoom(device, 401, kRulesNow));
  EXPECT_TRUE(table.HasRoom(device, 0, kRulesNow)) << "a need that is not known stops nobody";
  device.busy = 2;
  EXPECT_FALSE(table.HasRoom(device, 0, kRulesNow));
}

TEST(DeviceTableTest, QuarantinesAfterFailuresInARowAndTriesAgain) {
  DeviceTable table(Devices({"cuda:0"}, /*slots=*/1, /*quarantine_failures=*/2));
  DeviceTable::Device& device = table.Get("cuda:0");
  EXPECT_FALSE(table.NoteFailure(device, "first", kRulesNow));
  table.NoteSuccess(device);
  EXPECT_FALSE(table.NoteFailure(device, "second", kRulesNow)) << "a success lay between";
  EXPECT_TRUE(table.NoteFailure(device, "third", kRulesNow));
  EXPECT_FALSE(table.HasRoom(device, 0, kRulesNow));
  EXPECT_EQ(
      table.StatusOf(device, kRulesNow).reason(),
      "2 device errors in a row; the newest: third; tried again at 1970-01-12T13:56:40+00:00");
  const absl::Time later = kRulesNow + absl::Minutes(10);
  EXPECT_TRUE(table.HasRoom(device, 0, later));
  EXPECT_TRUE(table.NoteFailure(device, "fourth", later)) << "one more is enough now";
}

TEST(ProgressWatchTest, CountsFromTheLastProgressOfTheSection) {
  const HangSettings timeouts{100, 10, 50, 60};
  ProgressWatch watch;
  EXPECT_EQ(watch.Deadline(timeouts), absl::InfiniteFuture()) << "there is no job";
  watch.Begin(kRulesNow);
  EXPECT_EQ(watch.Deadline(timeouts), kRulesNow + absl::Seconds(100));
  AttachRequest event;
  event.mutable_started();
  watch.OnEvent(event, kRulesNow + absl::Seconds(1));
  EXPECT_EQ(watch.Deadline(timeouts), kRulesNow + absl::Seconds(11));
  event.mutable_log_line();
  watch.OnEvent(event, kRulesNow + absl::Seconds(5));
  EXPECT_EQ(watch.Deadline(timeouts), kRulesNow + absl::Seconds(11)) << "talk is no step";
  event.mutable_steps();
  watch.OnEvent(event, kRulesNow + absl::Seconds(6));
  EXPECT_EQ(watch.Deadline(timeouts), kRulesNow + absl::Seconds(16));
  event.mutable_section_entered()->set_section(training::v1::SECTION_CHECKPOINT);
  watch.OnEvent(event, kRulesNow + absl::Seconds(7));
  EXPECT_EQ(watch.Deadline(timeouts), kRulesNow + absl::Seconds(67));
  EXPECT_EQ(watch.Describe(timeouts),
            "no progress for 1m while writing a checkpoint (hang.checkpoint_seconds)");
  event.mutable_finished();
  watch.OnEvent(event, kRulesNow + absl::Seconds(8));
  EXPECT_EQ(watch.Deadline(timeouts), absl::InfiniteFuture()) << "its end is said";
}

TEST(ProgressWatchTest, RunsOnWhileAWorkerComesAndGoes) {
  const HangSettings timeouts{100, 60, 50, 60};
  ProgressWatch watch;
  watch.Begin(kRulesNow);
  AttachRequest event;
  event.mutable_started();
  event.set_sequence(3);
  watch.OnEvent(event, kRulesNow);
  AttachRequest section;
  section.mutable_section_entered()->set_section(training::v1::SECTION_STEP);
  for (int second = 1; second < 60; ++second) {
    watch.Pause();
    EXPECT_EQ(watch.Deadline(timeouts),
              second == 1 ? absl::InfiniteFuture() : kRulesNow + absl::Seconds(60));
    watch.Resume(kRulesNow + absl::Seconds(second));
    watch.OnEvent(event, kRulesNow + absl::Seconds(second));    // Resent.
    watch.OnEvent(section, kRulesNow + absl::Seconds(second));  // Resent.
    EXPECT_EQ(watch.Deadline(timeouts), kRulesNow + absl::Seconds(60));
  }
  event.mutable_steps();
  event.clear_sequence();
  watch.OnEvent(event, kRulesNow + absl::Seconds(59));
  EXPECT_EQ(watch.Deadline(timeouts), kRulesNow + absl::Seconds(119));
}

TEST(ProgressWatchTest, GivesAWorkerThatWasLongAwayTimeToTellWhatItDid) {
  const HangSettings timeouts{1, 1, 1, 1};
  ProgressWatch watch;
  watch.Begin(kRulesNow);
  watch.Pause();
  watch.Resume(kRulesNow + absl::Seconds(30));
  EXPECT_EQ(watch.Deadline(timeouts), kRulesNow + absl::Seconds(40));
  watch.Pause();
  watch.Resume(kRulesNow + absl::Seconds(35));
  EXPECT_EQ(watch.Deadline(timeouts), kRulesNow + absl::Seconds(40)) << "once";
}

TEST(DeviceTableTest, KnowsDevicesOfOtherHostsWhileTheirWorkersAreHere) {
  DeviceTable table(Devices({"cpu"}, /*slots=*/1, /*quarantine_failures=*/2));
  table.Join("gpu-7/cuda:0");
  table.Join("gpu-7/cuda:0");
  EXPECT_EQ(table.slots(), 3) << "each worker is a slot";
  EXPECT_TRUE(table.Get("gpu-7/cuda:0").remote);
  table.NoteFailure(table.Get("gpu-7/cuda:0"), "CUDA error", kRulesNow);
  table.Leave("gpu-7/cuda:0");
  table.Leave("gpu-7/cuda:0");
  EXPECT_EQ(table.slots(), 1);
  table.Join("gpu-7/cuda:0");
  EXPECT_TRUE(table.NoteFailure(table.Get("gpu-7/cuda:0"), "CUDA error", kRulesNow))
      << "what failed is remembered while no worker is here";
  table.NoteSuccess(table.Get("gpu-7/cuda:0"));
  table.Leave("gpu-7/cuda:0");
  EXPECT_EQ(table.devices().size(), 1);
}

TEST(FindDevicesTest, TakesWhatTheDriverShowsElseTheProcessor) {
  const TempDir driver;
  EXPECT_THAT(FindDevices({"auto"}, driver.path() + "/absent"), ElementsAre("cpu"));
  for (const char* each : {"/0000:01:00.0", "/0000:02:00.0"}) {
    std::filesystem::create_directories(driver.path() + each);
  }
  EXPECT_THAT(FindDevices({"auto"}, driver.path()), ElementsAre("cuda:0", "cuda:1"));
  EXPECT_THAT(FindDevices({"cuda:3"}, driver.path()), ElementsAre("cuda:3"));
  EXPECT_THAT(FindDevices({"none"}, driver.path()), ElementsAre());
}

}  // namespace
}  // namespace genesis
