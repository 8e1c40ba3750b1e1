#pragma once

#include <optional>
#include <string>
#include <utility>

#include "genesis/training/v1/job.pb.h"
#include "server/base/trace_context.h"
#include "spdlog/common.h"
#include "spdlog/fmt/fmt.h"

namespace genesis {

// The logger of one job's records: text records begin with "job ID: ", and JSON records have its
// ID, owner and trace as members.
//
// Copyable. Threads: any.
class JobLog {
 public:
  explicit JobLog(const training::v1::Job& job);
  // For a caller that has only the ID of the job.
  explicit JobLog(const std::string& job_id) { job_.set_id(job_id); }

  template <typename... Args>
  void Info(spdlog::format_string_t<Args...> text, Args&&... args) const {
    Log(spdlog::level::info, spdlog::fmt_lib::format(text, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Warn(spdlog::format_string_t<Args...> text, Args&&... args) const {
    Log(spdlog::level::warn, spdlog::fmt_lib::format(text, std::forward<Args>(args)...));
  }
  void Log(spdlog::level::level_enum level, const std::string& message) const;

  // Returns the logger whose Log this thread is running; null for a record that is not about one
  // job. Called by formatters.
  static const JobLog* Current();

  const std::string& job_id() const { return job_.id(); }
  const std::string& owner() const { return job_.owner(); }  // Empty if not known.
  // Returns the trace of the job; nullopt if it is not known. Computes two hashes.
  std::optional<TraceContext> trace() const;

 private:
  training::v1::Job job_;  // Only the fields that identify the job and its trace.
};

}  // namespace genesis
