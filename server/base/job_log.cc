#include "server/base/job_log.h"

#include "absl/cleanup/cleanup.h"
#include "server/base/trace_context.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

thread_local const JobLog* current = nullptr;

}  // namespace

JobLog::JobLog(const training::v1::Job& job) : job_id_(job.id()), owner_(job.owner()) {
  TraceContext trace = TraceOf(job);
  trace_id_ = std::move(trace.trace_id);
  span_id_ = std::move(trace.span_id);
}

void JobLog::Log(spdlog::level::level_enum level, const std::string& message) const {
  current = this;
  const absl::Cleanup leave = [] { current = nullptr; };
  spdlog::log(level, "{}", message);
}

const JobLog* JobLog::Current() { return current; }

}  // namespace genesis
