#include "server/checkpoints/curve_retention.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "curves/curve_folder.h"
#include "server/base/guard.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kPeriod = absl::Minutes(10);
constexpr absl::Duration kOrphanAge = absl::Hours(7 * 24);

struct JobCurves {
  std::string job_id;
  std::string folder;
  std::vector<CurveFile> files;
  absl::Time written;
  CurveOwner owner = CurveOwner::kUnknown;
};

int64_t BytesOf(const JobCurves& curves) {
  int64_t bytes = 0;
  for (const CurveFile& file : curves.files) bytes += file.size_bytes;
  return bytes;
}

// Returns when a file of the folder was last written.
absl::Time Written(const std::string& folder, const std::vector<CurveFile>& files) {
  absl::Time newest = absl::UnixEpoch();
  for (const CurveFile& file : files) {
    std::error_code error;
    const auto time = fs::last_write_time(folder + "/" + file.name.ToString(), error);
    if (error) continue;
    newest = std::max(newest, absl::FromChrono(fs::file_time_type::clock::to_sys(time)));
  }
  return newest;
}

std::vector<JobCurves> FindCurves(const std::string& dir,
                                  const std::function<CurveOwner(const std::string&)>& owner) {
  std::vector<JobCurves> found;
  std::error_code error;
  for (fs::directory_iterator entry(dir, error), end; !error && entry != end;
       entry.increment(error)) {
    JobCurves curves;
    curves.folder = entry->path().string();
    const std::string name = entry->path().filename().string();
    absl::string_view id = name;
    std::error_code ignored;
    if (!absl::ConsumeSuffix(&id, "-curves") || entry->is_symlink(ignored) ||
        !entry->is_directory(ignored)) {
      continue;
    }
    curves.job_id = std::string(id);
    absl::StatusOr<std::vector<CurveFile>> files = ListCurveFiles(curves.folder);
    if (!files.ok()) continue;
    curves.files = *std::move(files);
    curves.written = Written(curves.folder, curves.files);
    curves.owner = owner(curves.job_id);
    found.push_back(std::move(curves));
  }
  std::sort(found.begin(), found.end(),
            [](const JobCurves& a, const JobCurves& b) { return a.written < b.written; });
  return found;
}

// Combines the files of a level. Returns the bytes that became free.
int64_t CombineLevel(JobCurves& curves, int level) {
  std::vector<CurveFile> of_level = curves.files;
  std::erase_if(of_level, [&](const CurveFile& file) { return file.name.level != level; });
  if (of_level.empty() || !CombineCurveFiles(curves.folder, of_level).ok()) return 0;
  const int64_t before = BytesOf(curves);
  absl::StatusOr<std::vector<CurveFile>> files = ListCurveFiles(curves.folder);
  if (files.ok()) curves.files = *std::move(files);
  return before - BytesOf(curves);
}

}  // namespace

void RemoveCurves(const std::string& checkpoint_dir, const std::string& job_id) {
  std::error_code ignored;
  fs::remove_all(CurveFolder(checkpoint_dir, job_id), ignored);
}

void BoundCurves(const std::string& checkpoint_dir, int64_t max_bytes, absl::Time now,
                 const std::function<CurveOwner(const std::string& job_id)>& owner) {
  std::vector<JobCurves> all = FindCurves(checkpoint_dir, owner);
  int64_t bytes = 0;
  for (JobCurves& curves : all) {
    if (curves.owner == CurveOwner::kUnknown && now - curves.written > kOrphanAge) {
      RemoveCurves(checkpoint_dir, curves.job_id);
      curves.files.clear();
    }
    bytes += BytesOf(curves);
  }
  for (int level = 0; level < kCurveLevels; ++level) {
    for (JobCurves& curves : all) {
      if (bytes <= max_bytes) return;
      if (curves.owner == CurveOwner::kOpen || curves.files.empty()) continue;
      if (level + 1 < kCurveLevels) {
        bytes -= CombineLevel(curves, level);
      } else {
        bytes -= BytesOf(curves);
        RemoveCurves(checkpoint_dir, curves.job_id);
      }
    }
  }
}

CurveRetention::CurveRetention(std::string checkpoint_dir, int64_t max_bytes,
                               std::function<CurveOwner(const std::string& job_id)> owner)
    : checkpoint_dir_(std::move(checkpoint_dir)),
      max_bytes_(max_bytes),
      owner_(std::move(owner)),
      thread_([this] { Loop(); }) {}

CurveRetention::~CurveRetention() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void CurveRetention::Loop() {
  for (bool stopping = false; !stopping;) {
    Guarded("curves", [this] {
      BoundCurves(checkpoint_dir_, max_bytes_, absl::Now(), owner_);
    }).IgnoreError();
    absl::MutexLock lock(&mutex_);
    stopping = changed_.WaitUntil(mutex_, SteadyNow() + kPeriod,
                                  [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_; });
  }
}

}  // namespace genesis
