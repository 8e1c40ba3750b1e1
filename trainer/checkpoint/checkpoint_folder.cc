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
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/verify.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDigits = 12;
constexpr char kSuffix[] = ".pt";

// Returns the names in the folder; empty if it cannot be read.
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
  RemoveStrayShards();
  for (const std::string& name : Names(folder_)) {
    if (absl::StartsWith(name, "." + prefix_) && absl::StrContains(name, ".tmp-")) {
      fs::remove(fs::path(folder_) / name, error);
    }
    if (absl::StartsWith(name, prefix_) && absl::EndsWith(name, ManifestPath(kSuffix))) {
      const std::string checkpoint = name.substr(0, name.size() - ManifestPath("").size());
      if (!fs::exists(fs::path(folder_) / checkpoint)) {
        fs::remove(fs::path(folder_) / name, error);
      }
    }
  }
  return absl::OkStatus();
}

// Removes shards that no checkpoint lists: shards of an incomplete checkpoint, or of an earlier
// attempt to write a checkpoint of the same step.
void CheckpointFolder::RemoveStrayShards() const {
  std::set<std::string> checkpoints;
  for (const std::string& name : Names(folder_)) {
    const size_t end = name.find(kShardInfix);
    if (absl::StartsWith(name, prefix_) && end != std::string::npos) {
      checkpoints.insert(name.substr(0, end));
    }
  }
  for (const std::string& name : checkpoints) {
    if (!StepOf(name)) continue;
    const std::string path = (fs::path(folder_) / name).string();
    if (!fs::exists(path)) {
      RemoveShards(path);
    } else if (const auto listed = ListedShards(path)) {
      RemoveShards(path, *listed);
    }
  }
}

void CheckpointFolder::RemoveShard(int64_t step, const ShardPlace& place) const {
  const std::string shard = ShardPath(Path(step), place);
  const std::string name = fs::path(shard).filename().string();
  const std::vector<ShardFile> listed = ListedShards(Path(step)).value_or(std::vector<ShardFile>());
  if (std::any_of(listed.begin(), listed.end(),
                  [&](const ShardFile& each) { return each.name == name; })) {
    return;
  }
  std::error_code error;
  fs::remove(shard, error);
  fs::remove(ManifestPath(shard), error);
}

std::string CheckpointFolder::Path(int64_t step) const {
  const std::string name = absl::StrFormat("%s%012d%s", prefix_, step, kSuffix);
  return (fs::path(folder_) / name).string();
}

std::string CheckpointFolder::Id(int64_t step) const { return absl::StrCat(prefix_, step); }

std::optional<int64_t> CheckpointFolder::StepOf(const std::string& name) const {
  if (!absl::StartsWith(name, prefix_) || !absl::EndsWith(name, kSuffix)) return std::nullopt;
  const std::string digits =
      name.substr(prefix_.size(), name.size() - prefix_.size() - std::size(kSuffix) + 1);
  int64_t step = 0;
  const bool whole = digits.size() == kDigits &&
                     std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) &&
                     absl::SimpleAtoi(digits, &step);
  return whole ? std::optional(step) : std::nullopt;
}

std::vector<int64_t> CheckpointFolder::Steps() const {
  std::vector<int64_t> steps;
  for (const std::string& name : Names(folder_)) {
    if (const auto step = StepOf(name)) steps.push_back(*step);
  }
  return steps;
}

std::vector<std::string> CheckpointFolder::Missing(const std::vector<std::string>& paths) const {
  std::vector<std::string> missing;
  for (const std::string& path : paths) {
    const std::optional<int64_t> step = StepOf(fs::path(path).filename().string());
    std::error_code error;
    if (step && path == Path(*step) && !fs::exists(path, error) && !error) {
      missing.push_back(Id(*step));
    }
  }
  return missing;
}

std::vector<std::string> CheckpointFolder::Paths() const {
  std::vector<int64_t> steps = Steps();
  std::sort(steps.rbegin(), steps.rend());
  std::vector<std::string> paths;
  for (const int64_t step : steps) paths.push_back(Path(step));
  return paths;
}

// Reads the loss from the manifest, so that it is the same after a restart.
std::optional<double> CheckpointFolder::HeldOutLoss(int64_t step) const {
  const absl::StatusOr<CheckpointManifest> manifest = ReadManifest(Path(step));
  return manifest.ok() ? manifest->held_out_loss : std::nullopt;
}

std::set<int64_t> CheckpointFolder::Best(const std::vector<int64_t>& steps, int64_t count,
                                         const Badness& badness) const {
  std::vector<std::pair<double, int64_t>> losses;
  for (const int64_t step : count > 0 ? steps : std::vector<int64_t>()) {
    const std::optional<double> loss = badness ? badness(step) : HeldOutLoss(step);
    if (loss) losses.emplace_back(*loss, step);
  }
  std::sort(losses.begin(), losses.end());
  std::set<int64_t> best;
  for (size_t i = 0; i < losses.size() && i < static_cast<size_t>(count); ++i) {
    best.insert(losses[i].second);
  }
  return best;
}

std::vector<std::string> CheckpointFolder::Retain(int64_t keep_last, int64_t step,
                                                  int64_t keep_best, int64_t verified_step,
                                                  const Badness& badness) const {
  std::vector<int64_t> current;  // Newest first.
  std::vector<int64_t> going;
  for (const int64_t s : Steps()) (s <= step ? current : going).push_back(s);
  std::sort(current.rbegin(), current.rend());
  std::sort(going.rbegin(), going.rend());
  const std::set<int64_t> best = Best(current, keep_best, badness);
  const auto sound = [&](int64_t s) {
    return s == verified_step || VerifyCheckpoint(Path(s)).ok();
  };
  bool safe = false;  // Whether a kept checkpoint verifies.
  std::vector<int64_t> older;
  for (size_t i = 0; i < current.size(); ++i) {
    const bool kept =
        static_cast<int64_t>(i) < std::max<int64_t>(keep_last, 1) || best.contains(current[i]);
    if (!kept) {
      older.push_back(current[i]);
    } else if (!safe) {
      safe = sound(current[i]);
    }
  }
  older.insert(older.end(), going.begin(), going.end());
  std::vector<std::string> removed;
  for (const int64_t s : older) {
    if (!safe && sound(s)) {
      safe = true;
      continue;
    }
    std::error_code error;
    if (fs::remove(Path(s), error)) removed.push_back(Id(s));
    fs::remove(ManifestPath(Path(s)), error);
    RemoveShards(Path(s));
  }
  return removed;
}

}  // namespace genesis
