#include "server/workers/device_table.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace genesis {

DeviceTable::DeviceTable(const WorkerSettings& settings) : settings_(settings) {
  for (const std::string& name : settings.devices) {
    Device& device = devices_.emplace_back();
    device.name = name;
    device.slots = settings.slots;
  }
}

DeviceTable::Device& DeviceTable::Get(const std::string& name) {
  return *std::find_if(devices_.begin(), devices_.end(),
                       [&](const Device& device) { return device.name == name; });
}

void DeviceTable::Join(const std::string& name) {
  const auto named = [&](const Device& device) { return device.name == name; };
  if (std::none_of(devices_.begin(), devices_.end(), named)) {
    Device& device = devices_.emplace_back();
    device.name = name;
    device.remote = true;
    device.slots = 0;
  }
  ++Get(name).slots;
}

void DeviceTable::Leave(const std::string& name) {
  --Get(name).slots;
  std::erase_if(devices_, [&](const Device& device) {
    return device.name == name && device.slots == 0 && device.failures == 0;
  });
}

int DeviceTable::slots() const {
  return std::accumulate(devices_.begin(), devices_.end(), 0,
                         [](int sum, const Device& device) { return sum + device.slots; });
}

int DeviceTable::free_slots(absl::Time now) const {
  int count = 0;
  for (const Device& device : devices_) {
    if (!IsQuarantined(device, now)) count += std::max(device.slots - device.busy, 0);
  }
  return count;
}

int64_t DeviceTable::largest_bytes() const {
  int64_t largest = 0;
  for (const Device& device : devices_) largest = std::max(largest, device.memory_bytes);
  return largest;
}

void DeviceTable::Take(const std::string& name, int64_t memory_bytes) {
  Device& device = Get(name);
  ++device.busy;
  device.reserved_bytes += memory_bytes;
}

void DeviceTable::GiveBack(const std::string& name, int64_t memory_bytes) {
  Device& device = Get(name);
  --device.busy;
  device.reserved_bytes -= memory_bytes;
}

bool DeviceTable::HasRoom(const Device& device, int64_t memory_bytes, absl::Time now) const {
  if (device.busy >= device.slots || IsQuarantined(device, now)) return false;
  return device.memory_bytes == 0 || memory_bytes == 0 ||
         device.reserved_bytes + memory_bytes <= device.memory_bytes;
}

bool DeviceTable::NoteFailure(Device& device, const std::string& message, absl::Time now) {
  ++device.failures;
  device.failure = message;
  if (device.failures < settings_.quarantine_failures) return false;
  device.quarantined_until = now + absl::Seconds(settings_.quarantine_seconds);
  return true;
}

void DeviceTable::NoteSuccess(Device& device) {
  device.failures = 0;
  device.failure.clear();
}

training::v1::DeviceStatus DeviceTable::StatusOf(const Device& device, absl::Time now) const {
  training::v1::DeviceStatus status;
  status.set_name(device.name);
  status.set_slots(device.slots);
  status.set_busy(device.busy);
  status.set_quarantined(IsQuarantined(device, now));
  if (status.quarantined()) {
    status.set_reason(absl::StrCat(
        device.failures, " device errors in a row; the newest: ", device.failure,
        "; tried again at ",
        absl::FormatTime(absl::RFC3339_sec, device.quarantined_until, absl::UTCTimeZone())));
  }
  return status;
}

std::vector<training::v1::DeviceStatus> DeviceTable::Statuses(absl::Time now) const {
  std::vector<training::v1::DeviceStatus> statuses;
  for (const Device& device : devices_) statuses.push_back(StatusOf(device, now));
  return statuses;
}

std::string DeviceTable::Problem(absl::Time now) const {
  for (const Device& device : devices_) {
    if (!IsQuarantined(device, now)) return "";
  }
  // If the daemon were not ready, a load balancer would keep workers of other hosts away.
  if (devices_.empty()) return "";
  const Device& first = devices_.front();
  return absl::StrCat("every device is quarantined; ", first.name, ": ",
                      StatusOf(first, now).reason());
}

}  // namespace genesis
