#include "server/telemetry/visible_devices.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace genesis {
namespace {

using Devices = std::vector<Nvml::Device>;

bool AllOfOneModel(const Devices& devices) {
  return std::all_of(devices.begin(), devices.end(), [&](const Nvml::Device& device) {
    return device.handle != nullptr && device.name == devices.front().name;
  });
}

std::optional<Nvml::Device> ByUuid(const Devices& devices, const std::string& begin) {
  const auto matches = [&](const Nvml::Device& device) {
    return device.handle != nullptr && absl::StartsWith(device.uuid, begin);
  };
  if (std::count_if(devices.begin(), devices.end(), matches) != 1) return std::nullopt;
  return *std::find_if(devices.begin(), devices.end(), matches);
}

}  // namespace

DeviceMatch MatchDevices(const std::vector<std::string>& names, const Devices& devices,
                         const Environment& environment) {
  DeviceMatch match;
  const bool ordered = environment("CUDA_DEVICE_ORDER").value_or("") == "PCI_BUS_ID";
  const bool counts = ordered || AllOfOneModel(devices);
  const std::optional<std::string> chosen = environment("CUDA_VISIBLE_DEVICES");
  std::vector<std::string> visible;
  if (chosen) visible = absl::StrSplit(*chosen, ',', absl::SkipWhitespace());
  for (const std::string& name : names) {
    absl::string_view number = name;
    size_t index = 0;
    if (!absl::ConsumePrefix(&number, "cuda:") || !absl::SimpleAtoi(number, &index)) continue;
    std::string word = absl::StrCat(index);
    if (chosen) {
      word = index < visible.size() ? std::string(absl::StripAsciiWhitespace(visible[index])) : "";
    }
    size_t place = 0;
    if (absl::StartsWith(word, "GPU-")) {
      if (const auto device = ByUuid(devices, word)) match.found[name] = *device;
    } else if (counts && absl::SimpleAtoi(word, &place) && place < devices.size()) {
      if (devices[place].handle != nullptr) match.found[name] = devices[place];
    }
    if (match.found.contains(name)) continue;
    absl::StrAppend(&match.problem, match.problem.empty() ? "" : "; ", name,
                    " is not found among the ", devices.size(), " devices of the driver");
  }
  if (!match.problem.empty() && !counts) {
    absl::StrAppend(&match.problem,
                    ": they are of several models, whose order CUDA chooses; set "
                    "CUDA_DEVICE_ORDER=PCI_BUS_ID");
  }
  return match;
}

}  // namespace genesis
