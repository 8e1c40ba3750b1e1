#include "trainer/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDigits = 12;
constexpr char kSuffix[] = ".pt";

// Names in the folder; empty when it cannot be read.
std::vector<std::string> Names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

}  // namespace

CheckpointFolder::CheckpointFolder(const std::string& folder, const std::string& job_id)
    : folder_(fs::absolute(folder).lexically_normal().string()), prefix_(job_id + "-step-") {}

absl::Status CheckpointFolder::Prepare() {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    return absl::UnknownError(
        absl::StrCat(folder_, ": the checkpoint folder cannot be made: ", error.message()));
  }
  for (const std::string& name : Names(folder_)) {
    if (absl::StartsWith(name, "." + prefix_) && absl::StrContains(name, ".tmp-")) {
      fs::remove(fs::path(folder_) / name, error);
    }
  }
  return absl::OkStatus();
}

std::string CheckpointFolder::Path(int64_t step) const {
  const std::string name = absl::StrFormat("%s%012d%s", prefix_, step, kSuffix);
  return (fs::path(folder_) / name).string();
}

std::string CheckpointFolder::Id(int64_t step) const { return absl::StrCat(prefix_, step); }

std::vector<int64_t> CheckpointFolder::Steps() const {
  std::vector<int64_t> steps;
  for (const std::string& name : Names(folder_)) {
    if (!absl::StartsWith(name, prefix_) || !absl::EndsWith(name, kSuffix)) continue;
    const std::string digits =
        name.substr(prefix_.size(), name.size() - prefix_.size() - std::size(kSuffix) + 1);
    int64_t step = 0;
    if (digits.size() == kDigits &&
        std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) &&
        absl::SimpleAtoi(digits, &step)) {
      steps.push_back(step);
    }
  }
  return steps;
}

std::vector<std::string> CheckpointFolder::Retain(int64_t keep, int64_t step) const {
  std::vector<int64_t> steps = Steps();
  const auto rank = [step](int64_t s) { return std::pair(s <= step, s); };
  std::sort(steps.begin(), steps.end(), [&](int64_t a, int64_t b) { return rank(a) > rank(b); });
  std::vector<std::string> removed;
  for (size_t i = static_cast<size_t>(keep); i < steps.size(); ++i) {
    std::error_code error;
    if (fs::remove(Path(steps[i]), error)) removed.push_back(Id(steps[i]));
  }
  return removed;
}

}  // namespace genesis
