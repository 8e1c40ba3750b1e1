#pragma once

#include <string>
#include <utility>

#include "genesis/training/v1/job.pb.h"
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
  // For a job whose record is not at hand.
  explicit JobLog(std::string job_id) : job_id_(std::move(job_id)) {}

  template <typename... Args>
  void Info(spdlog::format_string_t<Args...> text, Args&&... args) const {
    Log(spdlog::level::info, spdlog::fmt_lib::format(text, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void Warn(spdlog::format_string_t<Args...> text, Args&&... args) const {
    Log(spdlog::level::warn, spdlog::fmt_lib::format(text, std::forward<Args>(args)...));
  }
  void Log(spdlog::level::level_enum level, const std::string& message) const;

  // Returns the logger that this thread is in Log of; null if the record is not about one job.
  // Called by formatters.
  static const JobLog* Current();

  const std::string& job_id() const { return job_id_; }
  const std::string& owner() const { return owner_; }        // Empty if not known.
  const std::string& trace_id() const { return trace_id_; }  // Empty if not known.
  const std::string& span_id() const { return span_id_; }    // Span of the job's life.

 private:
  std::string job_id_;
  std::string owner_;
  std::string trace_id_;
  std::string span_id_;
};

}  // namespace genesis
