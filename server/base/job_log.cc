#include "server/base/job_log.h"

#include "absl/cleanup/cleanup.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

thread_local const JobLog* current = nullptr;

}  // namespace

JobLog::JobLog(const training::v1::Job& job) {
  job_.set_id(job.id());
  job_.set_owner(job.owner());
  job_.set_traceparent(job.traceparent());
  *job_.mutable_create_time() = job.create_time();
}

std::optional<TraceContext> JobLog::trace() const {
  if (!job_.has_create_time()) return std::nullopt;
  return TraceOf(job_);
}

void JobLog::Log(spdlog::level::level_enum level, const std::string& message) const {
  current = this;
  const absl::Cleanup leave = [] { current = nullptr; };
  spdlog::log(level, "{}", message);
}

const JobLog* JobLog::Current() { return current; }

}  // namespace genesis
