// A library that behaves like NVIDIA's libnvidia-ml.so.1, with devices from the file named by
// GENESIS_FAKE_NVML. Each line is a device:
//   NAME UUID TOTAL USED UTILIZATION MILLIWATTS CELSIUS THROTTLE_REASONS
// with '-' for a metric that the driver does not report. Without the file, nvmlInit fails as it
// does without a driver. The file is read again in each call, so that a test can change it.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kSuccess = 0, kNotSupported = 3, kDriverNotLoaded = 9;

std::vector<std::vector<std::string>> Devices(bool* there) {
  const char* const path = std::getenv("GENESIS_FAKE_NVML");
  std::ifstream file(path == nullptr ? "" : path);
  *there = file.good();
  std::vector<std::vector<std::string>> devices;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::vector<std::string>& device = devices.emplace_back();
    for (std::string word; words >> word;) device.push_back(word);
  }
  return devices;
}

// Device handles are indexes plus one.
int Field(void* handle, size_t field, std::string* text) {
  bool there = false;
  const auto devices = Devices(&there);
  const auto index = reinterpret_cast<size_t>(handle) - 1;
  if (!there || index >= devices.size()) return kDriverNotLoaded;
  *text = devices[index].at(field);
  return *text == "-" ? kNotSupported : kSuccess;
}

template <typename Number>
int Figure(void* handle, size_t field, Number* number) {
  std::string text;
  const int result = Field(handle, field, &text);
  if (result == kSuccess) *number = static_cast<Number>(std::stoull(text, nullptr, 0));
  return result;
}

int Text(void* handle, size_t field, char* out, unsigned size) {
  std::string text;
  const int result = Field(handle, field, &text);
  if (result == kSuccess) {
    std::strncpy(out, text.c_str(), size - 1);
    out[size - 1] = '\0';
  }
  return result;
}

struct Memory {
  unsigned long long total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};

}  // namespace

extern "C" {

int nvmlInit_v2() {
  bool there = false;
  Devices(&there);
  return there ? kSuccess : kDriverNotLoaded;
}
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int) { return "Driver Not Loaded"; }
int nvmlDeviceGetCount_v2(unsigned* count) {
  bool there = false;
  *count = static_cast<unsigned>(Devices(&there).size());
  return there ? kSuccess : kDriverNotLoaded;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  *handle = reinterpret_cast<void*>(static_cast<size_t>(index) + 1);
  return kSuccess;
}
int nvmlDeviceGetName(void* handle, char* name, unsigned size) {
  return Text(handle, 0, name, size);
}
int nvmlDeviceGetUUID(void* handle, char* uuid, unsigned size) {
  return Text(handle, 1, uuid, size);
}
int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  const int result = Figure(handle, 2, &memory->total);
  if (result != kSuccess) return result;
  const int used = Figure(handle, 3, &memory->used);
  memory->free = memory->total - memory->used;
  return used;
}
int nvmlDeviceGetUtilizationRates(void* handle, Utilization* utilization) {
  utilization->memory = 0;
  return Figure(handle, 4, &utilization->gpu);
}
int nvmlDeviceGetPowerUsage(void* handle, unsigned* milliwatts) {
  return Figure(handle, 5, milliwatts);
}
int nvmlDeviceGetTemperature(void* handle, int, unsigned* celsius) {
  return Figure(handle, 6, celsius);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* handle, unsigned long long* reasons) {
  return Figure(handle, 7, reasons);
}

}  // extern "C"
