#include "server/jobs/admission.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/random_bytes.h"
#include "base/text/enum_names.h"
#include "base/timestamp.h"
#include "config/job/job_paths.h"
#include "config/job/job_sections.h"
#include "config/job/job_spec.h"
#include "server/auth/ownership.h"
#include "server/base/job_log.h"
#include "server/base/trace_context.h"
#include "server/jobs/job_errors.h"
#include "server/ledger/job_state.h"

namespace genesis {
namespace {

using google::protobuf::util::MessageDifferencer;
using training::v1::Job;
using training::v1::JobSpec;
using training::v1::TrainRequest;

constexpr size_t kLongestRequestId = 255;
constexpr size_t kMaxPathChecks = 64;

std::string NewJobId() { return absl::StrFormat("job-%012x", RandomNumber() & 0xffffffffffffULL); }

// Returns an error unless the path exists below the root, no link leads out of it, and `sees`
// returns true for its path relative to the root, with links resolved.
template <typename Sees>
std::optional<FieldError> PathError(const std::string& datasets_root, const JobPath& named,
                                    const Sees& sees) {
  namespace fs = std::filesystem;
  const fs::path root = datasets_root;
  std::error_code error;
  const fs::path real = fs::weakly_canonical(root / named.path, error);
  const std::string relative = real.lexically_relative(fs::weakly_canonical(root, error)).string();
  if (relative.empty() || relative == "." || relative.substr(0, 2) == "..") {
    return FieldError{named.field, QuoteValue(named.path),
                      absl::StrCat("a path beneath the dataset root ", root.string())};
  }
  const bool there =
      named.folder ? fs::is_directory(real, error) : fs::is_regular_file(real, error);
  if (there && sees(relative)) return std::nullopt;
  const std::string kind = named.folder ? "folder" : "file";
  return FieldError{
      named.field, QuoteValue(named.path),
      absl::StrCat("a ", kind, " beneath the dataset root ", root.string(), "; there is no such ",
                   kind, named.folder ? ": append an episode first" : ": copy it there",
                   ", or set datasets.root")};
}

FieldError NotConfigured(training::v1::LauncherKind launcher) {
  const bool slurm = launcher == training::v1::LAUNCHER_KIND_SLURM;
  return {"distributed.launcher", ShortEnumName(launcher),
          absl::StrCat("LOCAL, for this daemon is not set up for that cluster; set ",
                       slurm ? "slurm.enabled: true" : "kubernetes.pod_template",
                       " and workers.remote: true where it is, and restart it")};
}

}  // namespace

std::vector<FieldError> Admission::MissingPaths(const Caller& caller, const JobSpec& spec) const {
  const auto sees = [this, &caller](const std::string& path) {
    return options_.owners == nullptr || options_.owners->Sees(caller, path);
  };
  std::vector<FieldError> missing;
  for (const JobPath& path : PathsOf(spec)) {
    if (auto error = PathError(options_.datasets_root, path, sees)) {
      missing.push_back(*std::move(error));
    }
  }
  return missing;
}

absl::Status Admission::CheckRoom(const std::string& owner, int64_t more,
                                  const std::string& what) const {
  if (options_.owners == nullptr) return absl::OkStatus();
  return options_.owners->CheckRoom(owner, more, what);
}

void Admission::Train(const TrainRequest& request, const Caller& caller,
                      const Callback<Job>& callback) {
  const auto submit = [this, request, caller, callback] {
    Submission submission = {request, caller, MissingPaths(caller, request.spec()), {}};
    submission.room = CheckRoom(OwnerOf(submission), 1, "the checkpoints of a job");
    writer_.Ask<Job>(
        [this, submission] {
          dispatcher_.StartQueued();
          return Accept(submission);
        },
        callback);
  };
  // Check files on other threads, so that a file system that hangs delays only jobs that use it.
  if (PathsOf(request.spec()).empty()) return submit();
  if (path_checks_.waiting() >= kMaxPathChecks) {
    return callback(absl::UnavailableError(absl::StrCat(
        kMaxPathChecks, " jobs wait for a look at their files beneath ", options_.datasets_root,
        ", which does not answer; see whether that file system hangs, and try again")));
  }
  path_checks_.Post(submit);
}

absl::Status Admission::CheckSpec(const Submission& submission) const {
  const JobSpec& spec = submission.request.spec();
  const std::vector<FieldError> errors = ValidateJobSpec(spec);
  if (!errors.empty()) return ToStatus(errors);
  if (spec.rehearsals_size() > 0 && !options_.rehearsals.allowed) {
    return ToStatus({{"rehearsals", "",
                      "this daemon makes no faults on purpose; set rehearsals.allowed to true "
                      "(GENESIS_REHEARSALS_ALLOWED) where that is wanted, or remove rehearsals"}});
  }
  const training::v1::LauncherKind launcher = LauncherOf(spec);
  if (launcher != training::v1::LAUNCHER_KIND_LOCAL) {
    if (options_.launchers == nullptr || !options_.launchers->Has(launcher)) {
      return ToStatus({NotConfigured(launcher)});
    }
    return submission.missing.empty() ? absl::OkStatus() : ToStatus(submission.missing);
  }
  const absl::Status quota = dispatcher_.quotas().CheckRanks(spec.distributed().ranks());
  if (!quota.ok()) return quota;
  const int slots = workers_->slots();
  if (spec.distributed().ranks() > std::max(slots, 1) && !workers_->takes_remote()) {
    return ToStatus(
        {{"distributed.ranks", absl::StrCat(spec.distributed().ranks()),
          absl::StrCat("1 to ", std::max(slots, 1),
                       ", for each rank takes a slot; raise workers.slots, or set workers.remote "
                       "and start workers on other hosts")}});
  }
  const int64_t most = workers_->largest_device_bytes();
  if (most > 0 && spec.scheduling().memory_bytes() > most) {
    return ToStatus({{"scheduling.memory_bytes", absl::StrCat(spec.scheduling().memory_bytes()),
                      absl::StrCat("at most ", most, ", the memory of the largest device")}});
  }
  return submission.missing.empty() ? absl::OkStatus() : ToStatus(submission.missing);
}

std::string Admission::OwnerOf(const Submission& submission) {
  const std::string& named = submission.request.spec().scheduling().owner();
  return named.empty() ? submission.caller.name : named;
}

absl::Status Admission::CheckOwnerOf(const Submission& submission) {
  const Caller& caller = submission.caller;
  if (caller.role == Role::kAdmin || OwnerOf(submission) == caller.name) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "scheduling.owner is ", QuoteValue(OwnerOf(submission)),
      "; accepted: ", QuoteValue(caller.name), ", the caller, or none; an admin may name another"));
}

absl::StatusOr<Job> Admission::NewJob(const Submission& submission) const {
  const TrainRequest& request = submission.request;
  absl::Status checked = CheckSpec(submission);
  if (!checked.ok()) return checked;
  Job job;
  job.set_id(request.job_id().empty() ? NewJobId() : request.job_id());
  *job.mutable_spec() = WithDefaults(request.spec(), options_.precision.loss_scale);
  job.set_state(training::v1::JOB_STATE_QUEUED);
  job.set_state_reason("accepted");
  *job.mutable_create_time() = ToTimestamp(clock_.Now());
  const training::v1::SchedulingSpec& scheduling = job.spec().scheduling();
  job.set_priority(scheduling.priority());
  *job.mutable_labels() = scheduling.labels();
  job.set_owner(OwnerOf(submission));
  job.set_request_id(request.request_id());
  if (ParseTraceparent(submission.caller.traceparent)) {
    job.set_traceparent(submission.caller.traceparent);
  }
  return job;
}

absl::Status Admission::CheckBeginning(const Submission& submission) const {
  const JobSpec& spec = submission.request.spec();
  const Visibility visibility(options_.own_jobs_only);
  for (const auto& [field, id] : {std::pair("start_from_checkpoint", spec.start_from_checkpoint()),
                                  {"continue_from_checkpoint", spec.continue_from_checkpoint()}}) {
    if (id.empty()) continue;
    const std::optional<training::v1::Checkpoint> found = table_.FindCheckpoint(id);
    if (found && visibility.Sees(submission.caller, found->owner())) continue;
    return absl::NotFoundError(absl::StrCat(field, ": there is no checkpoint ", QuoteValue(id),
                                            "; `genesisctl checkpoints` lists them"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Job> Admission::Accept(const Submission& submission) {
  const TrainRequest& request = submission.request;
  absl::Status named = CheckNames(request);
  if (!named.ok()) return named;
  if (absl::Status owned = CheckOwnerOf(submission); !owned.ok()) return owned;
  if (const Job* existing = FindSame(request)) {
    if (!request.job_id().empty() && existing->id() != request.job_id()) {
      return absl::AlreadyExistsError(absl::StrCat(
          "request_id ", QuoteValue(request.request_id()), " is that of job \"", existing->id(),
          "\", and job_id is \"", request.job_id(), "\"; choose another request_id"));
    }
    const std::string owner = OwnerOf(submission);
    if (owner != existing->owner() && submission.caller.role != Role::kAdmin) {
      return absl::AlreadyExistsError(absl::StrCat(
          existing->id() == request.job_id() ? "job_id " : "request_id ",
          QuoteValue(existing->id() == request.job_id() ? request.job_id() : request.request_id()),
          " is taken by a job of another owner; choose another"));
    }
    const JobSpec spec = WithDefaults(request.spec(), options_.precision.loss_scale);
    if (MessageDifferencer::Equals(spec, existing->spec())) return *existing;
    return absl::AlreadyExistsError(absl::StrCat(
        "job \"", existing->id(), "\" exists with another specification; choose another ",
        existing->id() == request.job_id() ? "id" : "request_id"));
  }
  if (dispatcher_.draining()) {
    return absl::UnavailableError("the daemon is draining; try again when it has started anew");
  }
  if (absl::Status found = CheckBeginning(submission); !found.ok()) return found;
  if (!request.job_id().empty() && !table_.CheckpointsOf(request.job_id()).empty()) {
    return absl::AlreadyExistsError(
        absl::StrCat("there are checkpoints of an earlier job \"", request.job_id(),
                     "\"; choose another job_id, or delete them first (`genesisctl checkpoints ",
                     request.job_id(), "` lists them)"));
  }
  absl::StatusOr<Job> job = NewJob(submission);
  if (!job.ok() || request.validate_only()) return job;
  if (absl::Status room = CheckQueue(job->owner()); !room.ok()) return room;
  if (!submission.room.ok()) return submission.room;
  table_.Insert(*job);
  training::v1::JobEvent accepted;
  accepted.mutable_state_changed()->set_to(job->state());
  accepted.mutable_state_changed()->set_reason(job->state_reason());
  table_.AddEvent(job->id(), std::move(accepted));
  table_.Count([this, log = JobLog(*job)] {
    dispatcher_.OnAccepted(log.job_id());
    log.Info("accepted for {}", log.owner());
    metrics_->JobMoved(training::v1::JOB_STATE_UNSPECIFIED, training::v1::JOB_STATE_QUEUED);
  });
  return job;
}

absl::Status Admission::CheckQueue(const std::string& owner) const {
  const int queued = table_.CountIn(training::v1::JOB_STATE_QUEUED);
  const int limit = queue_limit_;
  if (queued < limit) return dispatcher_.quotas().CheckQueued(table_, owner);
  return absl::ResourceExhaustedError(absl::StrCat("the queue is full: ", queued,
                                                   " jobs wait and queue.max_jobs is ", limit,
                                                   "; try again when one has started"));
}

absl::Status Admission::CheckNames(const TrainRequest& request) {
  std::vector<FieldError> errors;
  if (!request.job_id().empty() && !JobIdFault(request.job_id()).empty()) {
    errors.push_back({"job_id", QuoteValue(request.job_id()), std::string(kNameForm)});
  }
  if (request.request_id().size() > kLongestRequestId) {
    errors.push_back({"request_id", QuoteValue(request.request_id()),
                      absl::StrCat("1 to ", kLongestRequestId, " bytes")});
  }
  return errors.empty() ? absl::OkStatus() : ToStatus(errors);
}

const Job* Admission::FindSame(const TrainRequest& request) const {
  const Job* named = request.job_id().empty() ? nullptr : table_.Find(request.job_id());
  if (named != nullptr || request.request_id().empty()) return named;
  return table_.FindByRequestId(request.request_id());
}

}  // namespace genesis
