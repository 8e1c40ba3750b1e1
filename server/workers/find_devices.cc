#include "server/workers/find_devices.h"

#include <filesystem>

#include "absl/strings/str_cat.h"

namespace genesis {

std::vector<std::string> FindDevices(const std::vector<std::string>& wanted,
                                     const std::string& driver) {
  if (wanted == std::vector<std::string>{"none"}) return {};
  if (wanted != std::vector<std::string>{"auto"}) return wanted;
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(driver, none)) {
    if (entry.is_directory()) names.push_back(absl::StrCat("cuda:", names.size()));
  }
  if (names.empty()) names.push_back("cpu");
  return names;
}

}  // namespace genesis
