#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cli/session.h"

namespace genesis::cli {

// Reads at most `points` points of the metrics over the whole run.
grpc::Status GetCurves(const std::string& job_id, const std::vector<std::string>& metrics,
                       int points, Session& session, training::v1::GetCurvesResponse& response);

// A summary of a job's curves for the terminal.
struct JobSketch {
  std::string loss = {};     // Sparkline over the whole run; "" before the first step.
  int64_t memory_bytes = 0;  // Device memory at the newest step; 0 if no device is measured.
};

// Sketches of jobs, each read again after five seconds. If that fails, the old one remains, which
// is empty at first. For one thread.
class JobSketches {
 public:
  explicit JobSketches(Session& session) : session_(session) {}

  // Returns the newest sketch of the job.
  const JobSketch& Of(const std::string& job_id);

 private:
  struct Entry {
    JobSketch sketch = {};
    absl::Time read = absl::InfinitePast();
  };

  Session& session_;
  std::map<std::string, Entry> entries_;
};

}  // namespace genesis::cli
