// Which job gets which worker, and which one has to give its own: a part of JobManager. Every
// method here runs on the writer thread.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/steady_time.h"
#include "base/timestamp.h"
#include "config/job/job_paths.h"
#include "config/job/workload.h"
#include "config/precision/precision.h"
#include "server/jobs/job_errors.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_state.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::Job;

// How many jobs may go past the first one when that needs more memory than is free, and how long it
// lets them.
constexpr size_t kMaxPassing = 32;
constexpr absl::Duration kPassingPatience = absl::Minutes(10);

// Half the micro-batch and twice the accumulation, as often as the job ran out of memory.
void Shrink(int halvings, training::v1::TrainingSpec& training) {
  training.set_batch_size(training.batch_size() >> halvings);
  training.set_gradient_accumulation_steps(training.gradient_accumulation_steps() << halvings);
}

}  // namespace

// Assigning is a change of its own, after the commit of the one that made it possible: a worker is
// reserved only for a job that is durably queued.
void JobManager::StartQueued() {
  table_.Announce([this] {
    const WorkerPool::Counts workers = pool_->counts();
    metrics_->SetWorkers(workers.busy, workers.warm, pool_->slots());
    metrics_->SetQueueDepth(table_.CountIn(training::v1::JOB_STATE_QUEUED));
    if (draining_ || table_.CountIn(training::v1::JOB_STATE_QUEUED) == 0) return;
    auto leased = std::make_shared<std::string>();
    writer_.Post({[this, leased] { *leased = AssignNext(); },
                  [this, leased](const absl::Status&) { pool_->Release(*leased); }});
  });
}

// A time that the store has is of the wall clock, which may have been set since.
void JobManager::NoteTimes(const Job& job) {
  const absl::Time now = SteadyNow();
  const absl::Duration age = absl::Now() - FromTimestamp(job.create_time());
  accepted_[job.id()] = now - std::max(age, absl::ZeroDuration());
  if (!job.has_retry_time()) return;
  const absl::Duration wait = FromTimestamp(job.retry_time()) - absl::Now();
  retries_[job.id()] = now + std::clamp(wait, absl::ZeroDuration(), kMaxRestartBackoff);
}

absl::Time JobManager::DeadlineOf(const Job& job) const {
  const double limit = job.spec().scheduling().deadline_seconds();
  return limit > 0 ? AcceptedAt(job) + absl::Seconds(limit) : absl::InfiniteFuture();
}

absl::Time JobManager::AcceptedAt(const Job& job) const {
  const auto accepted = accepted_.find(job.id());
  return accepted == accepted_.end() ? SteadyNow() : accepted->second;
}

bool JobManager::MayStart(const Job& job, absl::Time now) const {
  const auto retry = retries_.find(job.id());
  return now < DeadlineOf(job) && (retry == retries_.end() || retry->second <= now);
}

std::vector<HoldingJob> JobManager::HoldingJobs() const {
  std::vector<HoldingJob> holding;
  for (const auto& [id, start] : attempt_starts_)
    holding.push_back(Holding(*table_.Find(id), start));
  return holding;
}

std::vector<std::string> JobManager::QueueInOrder() const {
  std::vector<WaitingJob> waiting;
  int64_t ordinal = 0;
  for (const std::string& id : table_.IdsIn(training::v1::JOB_STATE_QUEUED)) {
    const Job& job = *table_.Find(id);
    waiting.push_back({id, job.priority(), job.owner(), ordinal++});
  }
  return QueueOrder(waiting, HoldingJobs(), usage_, SteadyNow());
}

int64_t JobManager::MemoryOf(const training::v1::JobSpec& spec) const {
  if (spec.scheduling().memory_bytes() > 0) return spec.scheduling().memory_bytes();
  const auto known = peak_memory_.find(WorkloadKey(spec));
  return known == peak_memory_.end() ? 0 : known->second;
}

std::string JobManager::AssignNext() {
  if (draining_) return "";
  const absl::Time now = SteadyNow();
  std::vector<std::string> queue = QueueInOrder();
  std::erase_if(queue, [&](const std::string& id) { return !MayStart(*table_.Find(id), now); });
  if (queue.empty()) return "";
  for (size_t i = 0; i < std::min(queue.size(), kMaxPassing); ++i) {
    const Job& job = *table_.Find(queue[i]);
    const std::optional<WorkerPool::Lease> lease = pool_->Reserve(MemoryOf(job.spec()));
    if (lease) {
      Assign(queue[i], *lease);
      StartQueued();
      return lease->worker.worker_id();
    }
    if (now - AcceptedAt(job) > kPassingPatience) break;
  }
  PreemptFor(*table_.Find(queue.front()));
  return "";
}

void JobManager::Assign(const std::string& job_id, const WorkerPool::Lease& lease) {
  Move(job_id, training::v1::JOB_STATE_STARTING,
       absl::StrCat("given to worker ", lease.worker.worker_id()));
  Job* job = table_.Edit(job_id);
  job->set_claim(job->claim() + 1);
  job->set_worker_sequence(0);
  job->clear_retry_time();
  *job->mutable_worker() = lease.worker;
  if (!job->has_start_time()) *job->mutable_start_time() = TimestampNow();
  *job->mutable_precision() = ComputeEffectivePrecision(job->spec().precision().mode(), gate(),
                                                        options_.cpu_fallback, lease.device);
  table_.Count([this, job_id] {
    retries_.erase(job_id);
    attempt_starts_[job_id] = SteadyNow();
  });
  const std::vector<training::v1::PrecisionMode> allowed =
      AllowedModes(job->spec().precision(), gate(), options_.cpu_fallback, lease.device);

  training::v1::StartJob start;
  start.set_job_id(job_id);
  start.set_claim(job->claim());
  *start.mutable_spec() = job->spec();
  Shrink(job->batch_halvings(), *start.mutable_spec()->mutable_training());
  for (const JobPath& path : PathsOf(*start.mutable_spec())) {
    *path.path = absl::StrCat(options_.datasets_root, "/", *path.path);
  }
  if (const auto initial = table_.FindCheckpoint(job->spec().start_from_checkpoint())) {
    start.mutable_spec()->mutable_model()->set_initial_weights(initial->path());
  }
  *start.mutable_precision() = job->precision();
  start.mutable_allowed_modes()->Assign(allowed.begin(), allowed.end());
  *start.mutable_baseline() = table_.BaselineOf(WorkloadKey(job->spec()));
  const int64_t fp32_peak = start.baseline().peak_device_bytes();
  start.set_checkpoint_dir(options_.checkpoints_dir);
  start.set_datasets_root(options_.datasets_root);
  start.set_compiled_dir(options_.compiled_dir);
  start.set_cuda_graphs(options_.cuda_graphs);
  const std::vector<training::v1::Checkpoint> checkpoints = table_.CheckpointsOf(job_id);
  for (auto it = checkpoints.rbegin(); it != checkpoints.rend(); ++it) {
    start.add_resume_from(it->path());
  }
  table_.Announce([this, start, fp32_peak, worker_id = lease.worker.worker_id()] {
    spdlog::info("job {}: {}", start.job_id(), start.precision().reason());
    if (!gate().enabled) spdlog::info("FP16 training disabled - using FP32");
    metrics_->JobBegins(start.job_id(), start.precision(), fp32_peak);
    pool_->Begin(worker_id, start);
  });
}

// One at a time: what the first one frees may be enough.
void JobManager::PreemptFor(const Job& waiting) {
  if (!options_.preemption || pool_->counts().busy < pool_->slots()) return;
  std::vector<HoldingJob> holding;
  for (HoldingJob& job : HoldingJobs()) {
    if (stops_.contains(job.id) || !IsTraining(table_.Find(job.id)->state())) return;
    holding.push_back(std::move(job));
  }
  const std::optional<std::string> victim = ChooseVictim(waiting.priority(), holding);
  if (!victim) return;
  StopFor(*victim,
          {StopCause::kPreempted,
           absl::StrCat("preempted by job ", waiting.id(), " of priority ", waiting.priority(),
                        ", its own is ", table_.Find(*victim)->priority())});
}

void JobManager::StopFor(const std::string& job_id, const StopRequest& request) {
  const Job& job = *table_.Find(job_id);
  spdlog::info("job {} is stopped: {}", job_id, request.reason);
  const bool checkpoint = request.cause != StopCause::kPolicy;
  table_.Count([this, job_id, request] { stops_[job_id] = request; });
  AskToStop(job, checkpoint, request.reason);
}

void JobManager::AskToStop(const Job& job, bool checkpoint, const std::string& why) {
  const absl::Duration grace = absl::Seconds(job.spec().scheduling().stop_grace_seconds());
  table_.Announce([this, id = job.id(), checkpoint, grace, why] {
    training::v1::AttachResponse stop;
    stop.mutable_stop_job()->set_checkpoint(checkpoint);
    pool_->Send(id, stop);
    pool_->ExpectExit(id, grace, absl::StrCat(why, ", and it did not stop in time"));
  });
}

void JobManager::OnTime() {
  const absl::Time now = SteadyNow();
  stats_.Sample(now);
  bool retry = false;
  for (const std::string& id : table_.Ids()) {
    const Job& job = *table_.Find(id);
    retry = retry || (job.has_retry_time() && MayStart(job, now));
    if (now < DeadlineOf(job)) continue;
    const std::string reason =
        absl::StrCat("scheduling.deadline_seconds ", job.spec().scheduling().deadline_seconds(),
                     " passed since the job was accepted");
    if (IsTraining(job.state())) {
      if (!stops_.contains(id)) StopFor(id, {StopCause::kDeadline, reason});
    } else if (!IsOnWorker(job.state())) {
      Fail(id, MakeFailure(training::v1::FAILURE_CAUSE_DEADLINE,
                           absl::StrCat(reason, "; it was ", JobStateName(job.state()))));
    }
  }
  // A quarantine may be over, or the first one in the queue may have waited long enough.
  const bool waits =
      table_.CountIn(training::v1::JOB_STATE_QUEUED) > 0 && pool_->counts().busy < pool_->slots();
  const absl::Status store = store_status();
  if (waits || retry || !store.ok()) StartQueued();
  if (store.ok()) return;
  // A checkpoint that cannot be recorded would leave them waiting until somebody frees some space.
  for (const auto& [id, waiters] : std::exchange(checkpoint_waiters_, {})) {
    for (const auto& callback : waiters) callback(store);
  }
}

}  // namespace genesis
