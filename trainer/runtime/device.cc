#include "trainer/runtime/device.h"

#include <dlfcn.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "config/precision/precision.h"
#include "trainer/kernels/math_functions.h"
#include "trainer/kernels/matrix_products.h"
#include "trainer/precision/autocast_guard.h"

namespace genesis {
namespace {

using training::v1::DeviceInfo;

// Returns "AMD EPYC 7763 64-Core Processor", or "CPU" if the system does not report it.
std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(':');
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
    }
  }
  return "CPU";
}

// Returns the memory of the machine, or the limit of the control group if that is lower.
int64_t HostMemory() {
  int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  if (int64_t allowed = 0; limit >> allowed) bytes = std::min(bytes, allowed);
  return bytes;
}

DeviceInfo Processor() {
  DeviceInfo device;
  device.set_name("cpu");
  device.set_cpu_native_bf16(CpuHasNativeBf16());
  device.set_cpu_isa(CpuIsa());
  device.set_description(ProcessorName());
  device.set_memory_bytes(HostMemory());
  return device;
}

// The calls of NVIDIA's driver library that identify the device. The library is installed with the
// driver.
class Driver {
 public:
  Driver() : library_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {}

  bool present() const { return library_ != nullptr || access("/dev/nvidiactl", F_OK) == 0; }

  // Returns false if the driver does not respond.
  bool Describe(DeviceInfo& device) const {
    constexpr int kMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    constexpr int kMinor = 76;
    int major = 0;
    int minor = 0;
    char name[256] = "";
    const bool known = Call<unsigned>("cuInit", 0u) &&
                       Call<int*, int, int>("cuDeviceGetAttribute", &major, kMajor, 0) &&
                       Call<int*, int, int>("cuDeviceGetAttribute", &minor, kMinor, 0) &&
                       Call<char*, int, int>("cuDeviceGetName", name, int{sizeof(name)}, 0);
    size_t memory = 0;
    if (Call<size_t*, int>("cuDeviceTotalMem_v2", &memory, 0)) {
      device.set_memory_bytes(static_cast<int64_t>(memory));
    }
    device.set_compute_capability(major * 10 + minor);
    device.set_description(name);
    return known;
  }

 private:
  template <typename... Arguments>
  bool Call(const char* name, Arguments... arguments) const {
    void* const symbol = library_ != nullptr ? dlsym(library_, name) : nullptr;
    return symbol != nullptr && reinterpret_cast<int (*)(Arguments...)>(symbol)(arguments...) == 0;
  }

  void* const library_;  // Stays loaded because LibTorch uses it too.
};

}  // namespace

DeviceInfo DetectDevice(const std::string& wanted, std::string* note) {
  if (wanted == "cpu") return Processor();
  if (const size_t colon = wanted.find(':'); colon != std::string::npos) {
    setenv("CUDA_VISIBLE_DEVICES", wanted.substr(colon + 1).c_str(), /*overwrite=*/1);
  }
  const Driver driver;
  if (!driver.present()) return Processor();
  // The kernels register themselves when the library is loaded.
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    *note = absl::StrCat(
        "an NVIDIA driver is there but LibTorch's CUDA library is not, so the CPU "
        "is used: ",
        dlerror(), "; run deploy/setup.sh --cuda");
    return Processor();
  }
  DeviceInfo device;
  device.set_name("cuda:0");
  device.set_cuda(true);
  if (!torch::cuda::is_available() || !driver.Describe(device)) {
    *note =
        "an NVIDIA driver is there but shows no usable device, so the CPU is used; see nvidia-smi";
    return Processor();
  }
  return device;
}

std::string DescribeDevice(const DeviceInfo& device) {
  const std::string abilities =
      device.cuda()
          ? absl::StrCat("compute capability ", device.compute_capability() / 10, ".",
                         device.compute_capability() % 10)
          : absl::StrCat(device.cpu_isa(), device.cpu_native_bf16() ? "" : ", no native BF16");
  return absl::StrCat("LibTorch ", TORCH_VERSION, "\n", device.name(), ": ", device.description(),
                      ", ", abilities, ", ", device.memory_bytes() >> 20, " MiB\n");
}

void SetTf32(bool on) {
  at::globalContext().setAllowTF32CuBLAS(on);
  at::globalContext().setAllowTF32CuDNN(on);
}

void WarmUp(const DeviceInfo& device, int threads) {
  torch::set_num_threads(threads);
  ChooseMathFunctions();
  const torch::Device where(device.name());
  // A miniature step: it starts the threads of autograd, the matrix library, and on a GPU the
  // context, in the formats that a job may use. Its products are the three of an inner layer, and
  // large enough for oneDNN, which generates its code at the first use.
  constexpr int64_t kSide = kLeastOneDnnSide;
  torch::nn::Linear layer(kSide, kSide);
  layer->to(where);
  const torch::Tensor input = torch::ones({kSide, kSide}, torch::TensorOptions(where));
  const bool bf16 = device.cuda() || device.cpu_native_bf16();
  for (const bool reduced : {false, true}) {
    if (reduced && !bf16) continue;
    torch::Tensor output;
    {
      const AutocastGuard guard(where.type(),
                                reduced ? std::optional(torch::kBFloat16) : std::nullopt);
      output = layer->forward(torch::silu(layer->forward(input)));
    }
    output.to(torch::kFloat).square().mean().backward();
  }
  torch::_foreach_norm({layer->weight.grad(), layer->bias.grad()}, 2).front().item<float>();
}

}  // namespace genesis
