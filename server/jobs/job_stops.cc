#include "server/jobs/job_stops.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "server/base/job_log.h"

namespace genesis {

void JobStops::Stop(const std::string& job_id, const StopRequest& request) {
  const training::v1::Job& job = *table_.Find(job_id);
  JobLog(job).Info("stop requested: {}", request.reason);
  const bool checkpoint = request.cause != StopCause::kPolicy;
  table_.Count([this, job_id, request] { stops_[job_id] = request; });
  Ask(job, checkpoint, request.reason);
}

void JobStops::Ask(const training::v1::Job& job, bool checkpoint, const std::string& why) {
  const absl::Duration grace = absl::Seconds(job.spec().scheduling().stop_grace_seconds());
  table_.Announce([this, id = job.id(), checkpoint, grace, why] {
    training::v1::AttachResponse stop;
    stop.mutable_stop_job()->set_checkpoint(checkpoint);
    workers_->Send(id, stop);
    workers_->ExpectExit(id, grace, absl::StrCat(why, ", and it did not stop in time"));
  });
}

const StopRequest* JobStops::Find(const std::string& job_id) const {
  const auto found = stops_.find(job_id);
  return found == stops_.end() ? nullptr : &found->second;
}

}  // namespace genesis
