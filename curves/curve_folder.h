#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "curves/curve_file.h"

namespace genesis {

// Returns the folder of a job's curves in the folder of checkpoints.
std::string CurveFolder(const std::string& checkpoint_dir, const std::string& job_id);

struct CurveFile {
  CurveFileName name;
  int64_t size_bytes = 0;
};

// Returns the files of a folder in the order in which they are read; empty if there is no folder.
absl::StatusOr<std::vector<CurveFile>> ListCurveFiles(const std::string& folder);

// Returns the content of a file; "" if it was combined into another file and no longer exists.
absl::StatusOr<std::string> ReadCurveFile(const std::string& folder, const CurveFileName& name);

// Combines files of one level, in the order of ListCurveFiles, into one file of the next level, or
// of the same level if it is the last. The new file is durable before the old ones are removed, so
// that a reader always finds every step.
absl::Status CombineCurveFiles(const std::string& folder, const std::vector<CurveFile>& files);

struct CurveQuery {
  int64_t from_step = 0;
  int64_t to_step = 0;  // Inclusive; 0 for the newest.
  int64_t points = 1000;
};

struct Curves {
  // Points of the same number of steps each, unless old steps are kept only as coarser points.
  std::vector<CurvePoint> points;
  int64_t last_step = 0;      // Newest step in the files.
  int64_t damaged_bytes = 0;  // Unreadable bytes in the files that were read.
};

// Reads the curves of a job, also while its worker writes. Reads at most about 16 MiB (CurveLimits)
// and skips files that contain only steps before `from_step`.
absl::StatusOr<Curves> ReadCurves(const std::string& folder, const CurveQuery& query);

}  // namespace genesis
