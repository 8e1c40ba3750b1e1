#include "server/telemetry/nvml.h"

#include <dlfcn.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

// The part of nvml.h that is used. Its names and layouts have not changed since CUDA 8.
using Result = int;
constexpr Result kSuccess = 0;
constexpr unsigned kTextBytes = 96;
constexpr int kTemperatureOfGpu = 0;

struct MemoryInfo {
  unsigned long long total = 0;  // NOLINT: NVML's own type.
  unsigned long long free = 0;   // NOLINT
  unsigned long long used = 0;   // NOLINT
};
struct UtilizationInfo {
  unsigned gpu = 0;  // Percent.
  unsigned memory = 0;
};
using Bits = unsigned long long;  // NOLINT

// Idleness has a bit too, but is left out, because it is not throttling.
constexpr std::pair<Bits, const char*> kThrottleReasons[] = {
    {0x2, "applications_clocks"}, {0x4, "sw_power_cap"},         {0x8, "hw_slowdown"},
    {0x10, "sync_boost"},         {0x20, "sw_thermal_slowdown"}, {0x40, "hw_thermal_slowdown"},
    {0x80, "hw_power_brake"},     {0x100, "display_clocks"},
};

struct Functions {
  Result (*init)();
  Result (*shutdown)();
  const char* (*error_string)(Result);
  Result (*device_count)(unsigned*);
  Result (*device_by_index)(unsigned, void**);
  Result (*device_name)(void*, char*, unsigned);
  Result (*device_uuid)(void*, char*, unsigned);
  Result (*memory)(void*, MemoryInfo*);
  Result (*utilization)(void*, UtilizationInfo*);
  Result (*power)(void*, unsigned*);
  Result (*temperature)(void*, int, unsigned*);
  Result (*throttle_reasons)(void*, Bits*);
};

template <typename Function>
bool Find(void* library, const char* name, Function* function, std::string* missing) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function != nullptr) return true;
  *missing = name;
  return false;
}

bool FindAll(void* library, Functions* f, std::string* missing) {
  return Find(library, "nvmlInit_v2", &f->init, missing) &&
         Find(library, "nvmlShutdown", &f->shutdown, missing) &&
         Find(library, "nvmlErrorString", &f->error_string, missing) &&
         Find(library, "nvmlDeviceGetCount_v2", &f->device_count, missing) &&
         Find(library, "nvmlDeviceGetHandleByIndex_v2", &f->device_by_index, missing) &&
         Find(library, "nvmlDeviceGetName", &f->device_name, missing) &&
         Find(library, "nvmlDeviceGetUUID", &f->device_uuid, missing) &&
         Find(library, "nvmlDeviceGetMemoryInfo", &f->memory, missing) &&
         Find(library, "nvmlDeviceGetUtilizationRates", &f->utilization, missing) &&
         Find(library, "nvmlDeviceGetPowerUsage", &f->power, missing) &&
         Find(library, "nvmlDeviceGetTemperature", &f->temperature, missing) &&
         Find(library, "nvmlDeviceGetCurrentClocksThrottleReasons", &f->throttle_reasons, missing);
}

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

class LoadedNvml final : public Nvml {
 public:
  LoadedNvml(Library library, const Functions& functions)
      : library_(std::move(library)), nvml_(functions) {}
  ~LoadedNvml() override { nvml_.shutdown(); }

  void FindDevices() {
    unsigned count = 0;
    if (nvml_.device_count(&count) != kSuccess) return;
    for (unsigned index = 0; index < count; ++index) {
      Device device;
      char text[kTextBytes] = "";
      // A device that fails keeps its index, because other devices' indexes depend on it.
      if (nvml_.device_by_index(index, &device.handle) != kSuccess) device.handle = nullptr;
      if (device.handle != nullptr) {
        if (nvml_.device_name(device.handle, text, kTextBytes) == kSuccess) device.name = text;
        if (nvml_.device_uuid(device.handle, text, kTextBytes) == kSuccess) device.uuid = text;
      }
      devices_.push_back(std::move(device));
    }
  }

  const std::vector<Device>& devices() const override { return devices_; }

  GpuStatistics Read(const Device& device, const std::string& name) const override {
    GpuStatistics statistics;
    statistics.device = name;
    if (device.handle == nullptr) return statistics;
    MemoryInfo memory;
    if (nvml_.memory(device.handle, &memory) == kSuccess) {
      statistics.memory_used_bytes = static_cast<int64_t>(memory.used);
      statistics.memory_total_bytes = static_cast<int64_t>(memory.total);
    }
    UtilizationInfo utilization;
    if (nvml_.utilization(device.handle, &utilization) == kSuccess) {
      statistics.utilization_ratio = utilization.gpu / 100.0;
    }
    unsigned milliwatts = 0;
    if (nvml_.power(device.handle, &milliwatts) == kSuccess) {
      statistics.power_watts = milliwatts / 1000.0;
    }
    unsigned celsius = 0;
    if (nvml_.temperature(device.handle, kTemperatureOfGpu, &celsius) == kSuccess) {
      statistics.temperature_celsius = celsius;
    }
    Bits reasons = 0;
    if (nvml_.throttle_reasons(device.handle, &reasons) == kSuccess) {
      for (const auto& [bit, reason] : kThrottleReasons) {
        if ((reasons & bit) != 0) statistics.throttle_reasons.emplace_back(reason);
      }
    }
    return statistics;
  }

 private:
  const Library library_;
  const Functions nvml_;
  std::vector<Device> devices_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Load(const std::string& library) {
  Library opened(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (opened == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("cannot load ", library, ": ", dlerror(), "; it comes with NVIDIA's driver"));
  }
  Functions functions{};
  std::string missing;
  if (!FindAll(opened.get(), &functions, &missing)) {
    return absl::FailedPreconditionError(
        absl::StrCat(library, " has no ", missing, "; a newer driver has it"));
  }
  const Result result = functions.init();
  if (result != kSuccess) {
    return absl::FailedPreconditionError(absl::StrCat(
        "nvmlInit of ", library, ": ", functions.error_string(result), "; nvidia-smi says more"));
  }
  auto nvml = std::make_unique<LoadedNvml>(std::move(opened), functions);
  nvml->FindDevices();
  return nvml;
}

}  // namespace genesis
