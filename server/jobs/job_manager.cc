#include "server/jobs/job_manager.h"

#include <google/protobuf/util/message_differencer.h>
#include <sys/random.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "config/field_error.h"
#include "config/job_paths.h"
#include "config/timestamp.h"
#include "server/jobs/job_state.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using google::protobuf::util::MessageDifferencer;
using training::v1::JobSpec;
using training::v1::TrainRequest;

// How long a cancelled worker may take to reach a step boundary and write its checkpoint.
constexpr absl::Duration kCancelGrace = absl::Seconds(60);

absl::Status NoSuchJob(const std::string& id) {
  return absl::NotFoundError(
      absl::StrCat("there is no job \"", id, "\"; `genesisctl jobs` lists them"));
}

std::string NewJobId() {
  uint64_t random = 0;
  while (getrandom(&random, sizeof(random), 0) != sizeof(random)) {
  }
  return absl::StrFormat("job-%012x", random & 0xffffffffffffULL);
}

// Whether what a job names is there, beneath the root and no link out of it.
std::optional<FieldError> PathError(const std::string& datasets_root, const JobPath& named) {
  namespace fs = std::filesystem;
  const fs::path root = datasets_root;
  std::error_code error;
  const fs::path real = fs::weakly_canonical(root / *named.path, error);
  const std::string relative = real.lexically_relative(fs::weakly_canonical(root, error)).string();
  if (relative.empty() || relative.substr(0, 2) == "..") {
    return FieldError{named.field, *named.path,
                      absl::StrCat("a path beneath the dataset root ", root.string())};
  }
  const bool there =
      named.folder ? fs::is_directory(real, error) : fs::is_regular_file(real, error);
  if (there) return std::nullopt;
  const std::string kind = named.folder ? "folder" : "file";
  return FieldError{
      named.field, *named.path,
      absl::StrCat("a ", kind, " beneath the dataset root ", root.string(), "; there is no such ",
                   kind, ": copy it there, or set datasets.root")};
}

}  // namespace

JobManager::JobManager(Options options, JobStore* store, WorkerPool* pool, Metrics* metrics)
    : options_(std::move(options)),
      pool_(pool),
      metrics_(metrics),
      table_(store, &hub_),
      writer_(&table_),
      failure_watch_(options_.failure_watch) {
  counters_.current_scale = options_.loss_scale.initial;
}

JobManager::~JobManager() { Stop(); }

absl::Status JobManager::Recover() {
  absl::Status loaded = table_.Load();
  if (!loaded.ok()) return loaded;
  for (const std::string& id : table_.Ids()) {
    const JobState state = table_.Find(id)->state();
    metrics_->JobMoved(training::v1::JOB_STATE_UNSPECIFIED, state);
    if (state == training::v1::JOB_STATE_CANCELLING) {
      End(id, training::v1::JOB_STATE_CANCELLED, "cancelled; the daemon was restarted meanwhile");
    } else if (state == training::v1::JOB_STATE_PAUSING) {
      Move(id, training::v1::JOB_STATE_PAUSED, "paused; the daemon was restarted meanwhile");
    } else if (IsOnWorker(state)) {
      metrics_->WorkerRestarted("daemon_restart");
      Requeue(id, "the daemon was restarted while the job ran");
    } else if (state == training::v1::JOB_STATE_RECOVERING) {
      Move(id, training::v1::JOB_STATE_QUEUED, table_.Find(id)->state_reason());
    }
  }
  return table_.Commit();
}

void JobManager::Start() { writer_.Start(); }

void JobManager::Stop() { writer_.Stop(); }

void JobManager::Drain() {
  draining_ = true;
  writer_.Post({[this] {
                  training::v1::AttachResponse stop;
                  stop.mutable_stop_job()->set_checkpoint(true);
                  for (const std::string& id : table_.Ids()) {
                    if (IsOnWorker(table_.Find(id)->state())) pool_->Send(id, stop);
                  }
                },
                nullptr});
}

void JobManager::Train(const TrainRequest& request, const Answer<Job>& answer) {
  writer_.Post({[this, request, answer] {
                  absl::StatusOr<Job> job = Accept(request);
                  table_.Announce([answer, job = std::move(job)] { answer(job); });
                  StartQueued();
                },
                answer});
}

absl::Status JobManager::CheckSpec(const JobSpec& spec) const {
  const std::vector<FieldError> errors = ValidateJobSpec(spec);
  if (!errors.empty()) return ToStatus(errors);
  if (spec.rehearsals_size() > 0 && !options_.rehearsals_allowed) {
    return ToStatus({{"rehearsals", "",
                      "this daemon makes no faults on purpose; set rehearsals.allowed to true "
                      "(GENESIS_REHEARSALS_ALLOWED) where that is wanted, or remove rehearsals"}});
  }
  JobSpec named = spec;
  std::vector<FieldError> path_errors;
  for (const JobPath& path : PathsOf(named)) {
    if (auto error = PathError(options_.datasets_root, path)) {
      path_errors.push_back(*std::move(error));
    }
  }
  if (!path_errors.empty()) return ToStatus(path_errors);
  return absl::OkStatus();
}

absl::StatusOr<JobManager::Job> JobManager::NewJob(const TrainRequest& request) const {
  absl::Status checked = CheckSpec(request.spec());
  if (!checked.ok()) return checked;
  Job job;
  job.set_id(request.job_id().empty() ? NewJobId() : request.job_id());
  *job.mutable_spec() = WithDefaults(request.spec(), options_.loss_scale);
  job.set_state(training::v1::JOB_STATE_QUEUED);
  job.set_state_reason("accepted");
  *job.mutable_create_time() = TimestampNow();
  return job;
}

absl::StatusOr<JobManager::Job> JobManager::Accept(const TrainRequest& request) {
  if (!request.job_id().empty()) {
    const std::string fault = JobIdFault(request.job_id());
    if (!fault.empty()) return ToStatus({{"job_id", request.job_id(), fault}});
    const Job* existing = table_.Find(request.job_id());
    if (existing != nullptr) {
      const JobSpec spec = WithDefaults(request.spec(), options_.loss_scale);
      if (MessageDifferencer::Equals(spec, existing->spec())) return *existing;
      return absl::AlreadyExistsError(absl::StrCat(
          "job \"", request.job_id(), "\" exists with another specification; choose another id"));
    }
  }
  if (draining_) {
    return absl::UnavailableError("the daemon is draining; try again when it has started anew");
  }
  absl::StatusOr<Job> job = NewJob(request);
  if (!job.ok() || request.validate_only()) return job;
  const int queued = table_.CountIn(training::v1::JOB_STATE_QUEUED);
  if (queued >= options_.queue_max_jobs) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the queue is full: ", queued, " jobs wait and queue.max_jobs is ",
                     options_.queue_max_jobs, "; try again when one has started"));
  }
  table_.Insert(*job);
  table_.Count([this, id = job->id()] {
    spdlog::info("job {} accepted", id);
    metrics_->JobMoved(training::v1::JOB_STATE_UNSPECIFIED, training::v1::JOB_STATE_QUEUED);
  });
  return job;
}

void JobManager::Cancel(const std::string& job_id, const Answer<Job>& answer) {
  writer_.Post({[this, job_id, answer] {
                  absl::StatusOr<Job> job = CancelNow(job_id);
                  table_.Announce([answer, job = std::move(job)] { answer(job); });
                },
                answer});
}

absl::StatusOr<JobManager::Job> JobManager::CancelNow(const std::string& job_id) {
  const Job* job = table_.Find(job_id);
  if (job == nullptr) return NoSuchJob(job_id);
  const JobState state = job->state();
  if (state == training::v1::JOB_STATE_CANCELLED || state == training::v1::JOB_STATE_CANCELLING) {
    return *job;
  }
  if (IsFinal(state)) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", job_id, "\" has ended as ", JobStateName(state),
                     "; only a job that has not ended can be cancelled"));
  }
  if (!IsOnWorker(state)) {
    End(job_id, training::v1::JOB_STATE_CANCELLED, "cancelled by a user");
    return *table_.Find(job_id);
  }
  Move(job_id, training::v1::JOB_STATE_CANCELLING, "cancelled by a user");
  table_.Announce([this, job_id] {
    training::v1::AttachResponse stop;
    stop.mutable_stop_job()->set_checkpoint(true);
    pool_->Send(job_id, stop);
    pool_->ExpectExit(job_id, kCancelGrace);
  });
  return *table_.Find(job_id);
}

void JobManager::Checkpoint(const std::string& job_id,
                            const Answer<training::v1::Checkpoint>& answer) {
  writer_.Post({[this, job_id, answer] {
                  const Job* job = table_.Find(job_id);
                  if (job == nullptr) {
                    table_.Announce([answer, job_id] { answer(NoSuchJob(job_id)); });
                    return;
                  }
                  if (job->state() != training::v1::JOB_STATE_RUNNING) {
                    const absl::Status status = absl::FailedPreconditionError(
                        absl::StrCat("job \"", job_id, "\" is ", JobStateName(job->state()),
                                     "; only a RUNNING job can be checkpointed"));
                    table_.Announce([answer, status] { answer(status); });
                    return;
                  }
                  table_.Announce([this, job_id, answer] {
                    checkpoint_waiters_[job_id].push_back(answer);
                    training::v1::AttachResponse take;
                    take.mutable_take_checkpoint();
                    pool_->Send(job_id, take);
                  });
                },
                answer});
}

absl::StatusOr<JobManager::Job> JobManager::Get(const std::string& job_id) const {
  const std::shared_ptr<const JobSnapshot> snapshot = table_.Snapshot(job_id);
  if (snapshot == nullptr) return NoSuchJob(job_id);
  if (snapshot->job.state() != training::v1::JOB_STATE_QUEUED) return snapshot->job;
  int queued = 0;
  for (const auto& each : table_.Snapshots()) {
    const bool waits = each->job.state() == training::v1::JOB_STATE_QUEUED;
    if (waits) ++queued;
    if (each->job.id() != job_id) continue;
    Job job = each->job;
    if (waits) job.set_queue_position(queued);
    return job;
  }
  return snapshot->job;
}

std::vector<JobManager::Job> JobManager::List() const {
  std::vector<Job> jobs;
  int queued = 0;
  for (const auto& snapshot : table_.Snapshots()) {
    Job& job = jobs.emplace_back(snapshot->job);
    if (job.state() == training::v1::JOB_STATE_QUEUED) job.set_queue_position(++queued);
  }
  return jobs;
}

std::vector<training::v1::Checkpoint> JobManager::ListCheckpoints() const {
  return table_.PublishedCheckpoints();
}

training::v1::StatsResponse JobManager::Stats() const {
  training::v1::StatsResponse stats;
  stats.set_fp16_enabled_runtime(options_.gate.enabled);
  stats.set_overflow_rate(counters_.OverflowRate());
  stats.set_training_steps(counters_.steps);
  stats.set_current_scale(counters_.current_scale);
  stats.set_samples(counters_.samples);
  for (const JobState state : AllJobStates()) (*stats.mutable_jobs_by_state())[JobStateName(state)];
  for (const auto& snapshot : table_.Snapshots()) {
    ++(*stats.mutable_jobs_by_state())[JobStateName(snapshot->job.state())];
  }
  const WorkerPool::Counts workers = pool_->counts();
  stats.set_busy_workers(workers.busy);
  stats.set_warm_workers(workers.warm);
  stats.set_slots(pool_->slots());
  return stats;
}

absl::Status JobManager::Watch(const std::string& job_id,
                               const std::shared_ptr<JobWatcher>& watcher) {
  // First the subscription, then the present: a change in between is then told, not lost.
  hub_.Subscribe(job_id, watcher);
  const std::shared_ptr<const JobSnapshot> snapshot = table_.Snapshot(job_id);
  if (snapshot == nullptr) {
    hub_.Unsubscribe(job_id, watcher.get());
    return NoSuchJob(job_id);
  }
  watcher->Notify(snapshot);
  return absl::OkStatus();
}

void JobManager::Unwatch(const std::string& job_id, const JobWatcher* watcher) {
  hub_.Unsubscribe(job_id, watcher);
}

}  // namespace genesis
