#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "config/settings/settings.h"
#include "genesis/training/v1/operations.pb.h"

namespace genesis {

// The devices of this machine, and those of other hosts while their workers are attached. Tracks
// slots, memory, and the quarantine of devices that fail too often.
//
// A device that fails workers.quarantine_failures jobs in a row with a device error gets no jobs
// for workers.quarantine_seconds. After that, the next failure quarantines it again, unless a job
// on it has succeeded before.
//
// Owner: WorkerTable.
class DeviceTable {
 public:
  struct Device {
    std::string name;     // "cpu" or "cuda:0"; on another host "<host>/cuda:0".
    bool remote = false;  // On another host. Each of its workers is a slot.
    int slots = 1;
    int busy = 0;
    int64_t memory_bytes = 0;  // Total; 0 until a worker reports it.
    int64_t reserved_bytes = 0;
    int failures = 0;  // Consecutive failures.
    std::string failure;
    absl::Time quarantined_until = absl::InfinitePast();
  };
  // `settings.devices` names the devices of this machine.
  explicit DeviceTable(const WorkerSettings& settings);

  std::vector<Device>& devices() { return devices_; }
  const std::vector<Device>& devices() const { return devices_; }
  Device& Get(const std::string& name);
  // Adds or removes a slot when a worker on a device of another host attaches or leaves. A device
  // without a worker is removed unless it has failed.
  void Join(const std::string& name);
  void Leave(const std::string& name);
  int slots() const;
  // Returns the free slots of devices that are not in quarantine.
  int free_slots(absl::Time now) const;
  // Returns the memory of the largest device in bytes; 0 until known.
  int64_t largest_bytes() const;

  // Takes or returns one slot of the device and `memory_bytes` of its memory.
  void Take(const std::string& name, int64_t memory_bytes);
  void GiveBack(const std::string& name, int64_t memory_bytes);

  bool IsQuarantined(const Device& device, absl::Time now) const {
    return now < device.quarantined_until;
  }
  // Returns true if a job that needs `memory_bytes` may start on the device.
  bool HasRoom(const Device& device, int64_t memory_bytes, absl::Time now) const;
  // Counts a failure. Returns true if the device is now quarantined.
  bool NoteFailure(Device& device, const std::string& message, absl::Time now);
  void NoteSuccess(Device& device);

  training::v1::DeviceStatus StatusOf(const Device& device, absl::Time now) const;
  std::vector<training::v1::DeviceStatus> Statuses(absl::Time now) const;
  // Returns why no device takes jobs; empty if one does or if there are no devices.
  std::string Problem(absl::Time now) const;

 private:
  const WorkerSettings settings_;
  std::vector<Device> devices_;
};

}  // namespace genesis
