#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/doctor/checks.h"

namespace genesis::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kGpu[] = "gpu";
// The first driver that supports CUDA 13, for which this version's LibTorch is built. Source: CUDA
// 13.0 release notes, table "CUDA Toolkit and Corresponding Driver Versions".
constexpr int kOldestDriver = 580;

std::string FirstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Counts NVIDIA's display and 3D controllers on the PCI bus, even without a driver.
int CountOnBus(const std::string& sys) {
  int count = 0;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(sys + "/bus/pci/devices", none)) {
    if (FirstLine(entry.path() / "vendor") != "0x10de") continue;
    if (absl::StartsWith(FirstLine(entry.path() / "class"), "0x03")) ++count;
  }
  return count;
}

// Returns "580.65.06" from "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27
// ..." or from the open module's "... Open Kernel Module for x86_64  580.65.06  Release Build ...".
std::string DriverVersion(const std::string& proc) {
  const std::vector<std::string> words =
      absl::StrSplit(FirstLine(proc + "/driver/nvidia/version"), ' ', absl::SkipEmpty());
  for (const std::string& word : words) {
    double number = 0;
    if (absl::StrContains(word, '.') && absl::SimpleAtod(word.substr(0, word.find('.')), &number)) {
      return word;
    }
  }
  return "";
}

Finding CheckDriver(const std::string& version) {
  int major = 0;
  if (!absl::SimpleAtoi(version.substr(0, version.find('.')), &major) || major >= kOldestDriver) {
    return Good(kGpu, absl::StrCat("driver ", version));
  }
  return Problem(kGpu,
                 absl::StrCat("driver ", version, " is older than ", kOldestDriver,
                              ", the first that CUDA 13 works with"),
                 absl::StrCat("install a driver of branch ", kOldestDriver, " or later"));
}

}  // namespace

Findings CheckGpu(const Host& host) {
  const int on_bus = CountOnBus(host.sys);
  const std::string version = DriverVersion(host.proc);
  if (version.empty() && on_bus == 0) {
    return {Note(kGpu, "no NVIDIA GPU is seen; jobs train on the processor",
                 "nothing, unless there should be one: then give it to this machine or container")};
  }
  if (version.empty()) {
    return {Problem(kGpu,
                    absl::StrCat(on_bus, " NVIDIA GPU on the bus, but its driver is not loaded"),
                    "install the driver and load it: modprobe nvidia; then restart genesisd")};
  }
  Findings findings = {CheckDriver(version)};
  const std::string control = host.dev + "/nvidiactl";
  if (access(control.c_str(), R_OK | W_OK) != 0) {
    findings.push_back(Problem(kGpu,
                               absl::StrCat(control, " cannot be opened for reading and writing"),
                               "give the device to the container (--gpus, nvidia.com/gpu) and its "
                               "group to the user that genesisd runs as"));
  }
  if (!host.can_load("libcuda.so.1")) {
    findings.push_back(Problem(kGpu, "libcuda.so.1 is not found: workers cannot use the GPU",
                               "install the driver's libraries (libcuda1); in a container use "
                               "NVIDIA's container runtime"));
  }
  if (!host.can_load("libnvidia-ml.so.1")) {
    findings.push_back(Note(kGpu,
                            "libnvidia-ml.so.1 is not found: no metrics of utilisation, power and "
                            "temperature",
                            "install the driver's management library (libnvidia-ml1)"));
  }
  return findings;
}

}  // namespace genesis::cli
