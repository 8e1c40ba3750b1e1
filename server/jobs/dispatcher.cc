#include "server/jobs/dispatcher.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/timestamp.h"
#include "config/job/job_paths.h"
#include "config/job/job_spec.h"
#include "config/job/workload.h"
#include "config/precision/precision.h"
#include "server/base/job_log.h"
#include "server/jobs/followed_metric.h"
#include "server/jobs/gang.h"
#include "server/ledger/job_state.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::Job;

// Maximum number of queued jobs that are tried in order, and the age at which a job that cannot
// start lets no later job overtake it.
constexpr size_t kMaxPassing = 32;
constexpr absl::Duration kPassingPatience = absl::Minutes(10);
// How long a job with distributed.min_ranks waits for all its ranks before it starts with fewer,
// and how long it then runs before it may grow.
constexpr absl::Duration kAllRanksPatience = absl::Seconds(30);

// Halves the micro-batch and doubles the accumulation steps, `halvings` times: once for each time
// the job ran out of memory.
void Shrink(int halvings, training::v1::TrainingSpec& training) {
  training.set_batch_size(training.batch_size() >> halvings);
  training.set_gradient_accumulation_steps(training.gradient_accumulation_steps() << halvings);
}

std::vector<std::string> IdsOf(const std::vector<WorkerLease>& leases) {
  std::vector<std::string> ids;
  for (const WorkerLease& lease : leases) ids.push_back(lease.worker.worker_id());
  return ids;
}

// Maximum number of workloads whose peak memory is kept.
constexpr size_t kMaxPeaks = 1000;

// Returns the warning for a job that falls back to FP32; "" for other jobs. A job that names no
// mode expects FP32 while the gate is closed.
std::string FallbackAtStart(const training::v1::EffectivePrecision& precision, bool gate_open) {
  const bool named = precision.requested() != training::v1::PRECISION_MODE_UNSPECIFIED;
  if (precision.mode() != training::v1::PRECISION_MODE_FP32 || precision.refused().empty() ||
      !(named || gate_open)) {
    return "";
  }
  return absl::StrCat("Falling back to FP32: ", precision.refused(0));
}

}  // namespace

// Assignment is a separate change, after the commit that made it possible, so that a worker is
// reserved only for a job that is durably queued.
void Dispatcher::StartQueued() {
  table_.Announce([this] {
    const WorkerCounts workers = workers_->counts();
    metrics_->SetWorkers(workers.busy, workers.warm, workers_->slots());
    metrics_->SetQueueDepth(table_.CountIn(training::v1::JOB_STATE_QUEUED));
    if (draining_ || table_.CountIn(training::v1::JOB_STATE_QUEUED) == 0) return;
    auto leased = std::make_shared<std::vector<std::string>>();
    writer_.Post({[this, leased] { *leased = AssignNext(); },
                  [this, leased](const absl::Status&) {
                    for (const std::string& id : *leased) workers_->Release(id);
                  }});
  });
}

// Stored times are wall-clock times, and the wall clock may have been changed since.
void Dispatcher::OnRecovered(const Job& job) {
  const absl::Time now = clock_.Steady();
  const absl::Duration age = clock_.Now() - FromTimestamp(job.create_time());
  accepted_[job.id()] = now - std::max(age, absl::ZeroDuration());
  if (!job.has_retry_time()) return;
  const absl::Duration wait = FromTimestamp(job.retry_time()) - clock_.Now();
  retries_[job.id()] = now + std::clamp(wait, absl::ZeroDuration(), kMaxRestartBackoff);
}

absl::Time Dispatcher::DeadlineOf(const Job& job) const {
  const double limit = job.spec().scheduling().deadline_seconds();
  return limit > 0 ? AcceptedAt(job) + absl::Seconds(limit) : absl::InfiniteFuture();
}

absl::Time Dispatcher::AcceptedAt(const Job& job) const {
  const auto accepted = accepted_.find(job.id());
  return accepted == accepted_.end() ? clock_.Steady() : accepted->second;
}

bool Dispatcher::MayStart(const Job& job, absl::Time now) const {
  const auto retry = retries_.find(job.id());
  return now < DeadlineOf(job) && (retry == retries_.end() || retry->second <= now);
}

std::vector<HoldingJob> Dispatcher::HoldingJobs() const {
  std::vector<HoldingJob> holding;
  for (const auto& [id, start] : attempt_starts_) {
    const Job& job = *table_.Find(id);
    if (!IsSubmitted(job.spec())) holding.push_back(Holding(job, start));
  }
  return holding;
}

std::vector<std::string> Dispatcher::QueueInOrder() const {
  std::vector<WaitingJob> waiting;
  int64_t ordinal = 0;
  for (const std::string& id : table_.IdsIn(training::v1::JOB_STATE_QUEUED)) {
    const Job& job = *table_.Find(id);
    if (IsSubmitted(job.spec())) continue;
    waiting.push_back({id, job.priority(), job.owner(), ordinal++, RanksOf(job)});
  }
  const std::vector<HoldingJob> holding = HoldingJobs();
  std::vector<std::string> order = QueueOrder(waiting, holding, usage_, clock_.Steady());
  const std::set<std::string> over = quotas_.OverQuota(order, waiting, holding);
  if (!over.empty()) std::erase_if(order, [&](const auto& id) { return over.contains(id); });
  return order;
}

int64_t Dispatcher::MemoryOf(const training::v1::JobSpec& spec) const {
  if (spec.scheduling().memory_bytes() > 0) return spec.scheduling().memory_bytes();
  const auto known = peak_memory_.find(WorkloadKey(spec));
  return known == peak_memory_.end() ? 0 : known->second;
}

int Dispatcher::RanksOf(const Job& job) const {
  return genesis::RanksOf(job.spec(), workers_->slots());
}

bool Dispatcher::MayBeginWithFewer(const Job& job, absl::Time now) const {
  if (job.spec().distributed().min_ranks() == 0) return false;
  const auto left = left_.find(job.id());
  return now - (left == left_.end() ? AcceptedAt(job) : left->second) >= kAllRanksPatience;
}

std::vector<WorkerLease> Dispatcher::ReserveFor(const Job& job, absl::Time now) {
  const int64_t memory = MemoryOf(job.spec());
  const int slots = workers_->slots();
  const int ranks = RanksOf(job);
  std::vector<WorkerLease> leases = workers_->ReserveGang(ranks, memory);
  if (!leases.empty() || !MayBeginWithFewer(job, now)) return leases;
  for (int fewer = std::min(ranks - 1, slots); fewer >= FewestRanksOf(job.spec(), slots); --fewer) {
    leases = workers_->ReserveGang(fewer, memory);
    if (!leases.empty()) break;
  }
  return leases;
}

void Dispatcher::GrowOne(absl::Time now) {
  // Queued jobs take the free slots before a running job grows.
  if (draining_ || table_.CountIn(training::v1::JOB_STATE_QUEUED) > 0) return;
  const int free_slots = workers_->free_slots();
  for (const auto& [id, start] : attempt_starts_) {
    const Job& job = *table_.Find(id);
    if (IsSubmitted(job.spec())) continue;
    const int missing = RanksOf(job) - std::max(job.ranks_size(), 1);
    // The delay avoids growing for workers that soon leave again.
    if (missing <= 0 || missing > free_slots || now - start < kAllRanksPatience ||
        job.state() != training::v1::JOB_STATE_RUNNING || stops_.Find(id) != nullptr) {
      continue;
    }
    return stops_.Stop(
        id, {StopCause::kGrown, absl::StrCat("there are slots for all ", RanksOf(job), " ranks")});
  }
}

std::vector<std::string> Dispatcher::AssignNext() {
  if (draining_) return {};
  const absl::Time now = clock_.Steady();
  if (std::vector<std::string> leased = AssignSubmitted(now); !leased.empty()) return leased;
  const int slots = workers_->slots();
  std::vector<std::string> queue = QueueInOrder();
  std::erase_if(queue, [&](const std::string& id) {
    const Job& job = *table_.Find(id);
    // A job that needs workers of other hosts does not block other jobs.
    return !MayStart(job, now) || FewestRanksOf(job.spec(), slots) > std::max(slots, 1);
  });
  if (queue.empty()) return {};
  for (size_t i = 0; i < std::min(queue.size(), kMaxPassing); ++i) {
    const Job& job = *table_.Find(queue[i]);
    const std::vector<WorkerLease> leases = ReserveFor(job, now);
    if (!leases.empty()) {
      Assign(queue[i], leases);
      StartQueued();
      return IdsOf(leases);
    }
    if (i == 0 && MakeRoomFor(job)) break;
    if (now - AcceptedAt(job) > kPassingPatience) break;
  }
  return {};
}

std::vector<std::string> Dispatcher::AssignSubmitted(absl::Time now) {
  for (const std::string& id : table_.IdsIn(training::v1::JOB_STATE_QUEUED)) {
    const Job& job = *table_.Find(id);
    if (!IsSubmitted(job.spec()) || job.submission().claim() != 0 || !MayStart(job, now)) continue;
    const std::vector<WorkerLease> leases =
        workers_->ReserveSubmitted(job.submission().name(), RanksOf(job));
    if (leases.empty()) continue;
    Assign(id, leases);
    StartQueued();
    return IdsOf(leases);
  }
  return {};
}

training::v1::EffectivePrecision Dispatcher::PrecisionOf(
    const training::v1::JobSpec& spec, const std::vector<WorkerLease>& leases) const {
  training::v1::EffectivePrecision decided;
  for (const WorkerLease& lease : leases) {
    training::v1::EffectivePrecision own = ComputeEffectivePrecision(
        spec.precision().mode(), precision_.gate(), options_.precision.cpu_fallback, lease.device);
    const bool first = &lease == &leases.front();
    if (first || own.mode() == training::v1::PRECISION_MODE_FP32) {
      decided = std::move(own);
    }
  }
  return decided;
}

std::vector<training::v1::PrecisionMode> Dispatcher::AllowedOn(
    const training::v1::PrecisionSpec& spec, const std::vector<WorkerLease>& leases) const {
  std::vector<training::v1::PrecisionMode> allowed;
  for (const WorkerLease& lease : leases) {
    const std::vector<training::v1::PrecisionMode> own =
        AllowedModes(spec, precision_.gate(), options_.precision.cpu_fallback, lease.device);
    if (&lease == &leases.front()) {
      allowed = own;
      continue;
    }
    std::erase_if(allowed, [&own](training::v1::PrecisionMode mode) {
      return std::find(own.begin(), own.end(), mode) == own.end();
    });
  }
  return allowed;
}

training::v1::StartJob Dispatcher::MakeStart(const Job& job) const {
  training::v1::StartJob start;
  start.set_job_id(job.id());
  start.set_claim(job.claim());
  *start.mutable_spec() = job.spec();
  Shrink(job.batch_halvings(), *start.mutable_spec()->mutable_training());
  PutPathsBelow(options_.datasets_root, *start.mutable_spec());
  if (const auto initial = table_.FindCheckpoint(job.spec().start_from_checkpoint())) {
    start.mutable_spec()->mutable_model()->set_initial_weights(initial->path());
  }
  if (const auto before = table_.FindCheckpoint(job.spec().continue_from_checkpoint())) {
    start.set_continue_from(before->path());
  }
  *start.mutable_precision() = job.precision();
  *start.mutable_baseline() = table_.BaselineOf(WorkloadKey(job.spec()));
  start.set_checkpoint_dir(options_.checkpoints_dir);
  start.set_datasets_root(options_.datasets_root);
  start.set_compiled_dir(options_.compiled_dir);
  start.set_cuda_graphs(options_.cuda_graphs);
  const std::vector<training::v1::Checkpoint> checkpoints = table_.CheckpointsOf(job.id());
  for (auto it = checkpoints.rbegin(); it != checkpoints.rend(); ++it) {
    start.add_resume_from(it->path());
  }
  if (!job.spec().evaluation().metric().empty()) {
    *start.mutable_metric_values() = MetricValuesOf(job, checkpoints);
  }
  return start;
}

void Dispatcher::Assign(const std::string& job_id, const std::vector<WorkerLease>& leases) {
  const WorkerLease& first = leases.front();
  ledger_.Move(job_id, training::v1::JOB_STATE_STARTING,
               absl::StrCat("given to worker ", first.worker.worker_id(),
                            leases.size() > 1 ? absl::StrCat(" and ", leases.size() - 1,
                                                             " more, one for each rank")
                                              : ""));
  Job* job = table_.Edit(job_id);
  job->set_claim(job->claim() + 1);
  job->set_worker_sequence(0);
  if (IsSubmitted(job->spec())) job->mutable_submission()->set_claim(job->claim());
  job->clear_retry_time();
  *job->mutable_worker() = first.worker;
  const std::vector<training::v1::RankStatus> statuses = RankStatusesOf(leases);
  job->mutable_ranks()->Assign(statuses.begin(), statuses.end());
  if (!job->has_start_time()) *job->mutable_start_time() = ToTimestamp(clock_.Now());
  const bool first_attempt = !job->has_precision();
  const training::v1::PrecisionMode before = job->precision().mode();
  *job->mutable_precision() = PrecisionOf(job->spec(), leases);
  table_.Count([this, job_id] {
    retries_.erase(job_id);
    attempt_starts_[job_id] = clock_.Steady();
  });
  training::v1::StartJob start = MakeStart(*job);
  const std::vector<training::v1::PrecisionMode> allowed =
      AllowedOn(job->spec().precision(), leases);
  start.mutable_allowed_modes()->Assign(allowed.begin(), allowed.end());
  const std::string fallback = FallbackAtStart(start.precision(), precision_.gate().enabled);
  const training::v1::PrecisionMode from = first_attempt ? start.precision().requested() : before;
  if (!fallback.empty() && from != start.precision().mode()) {
    training::v1::JobEvent event;
    training::v1::PrecisionChange& change = *event.mutable_precision_changed();
    change.set_step(job->progress().step());
    change.set_from(from);
    change.set_to(start.precision().mode());
    change.set_resumed_step(job->progress().step());
    change.set_trigger("policy");
    change.set_reason(start.precision().refused(0));
    *change.mutable_time() = ToTimestamp(clock_.Now());
    table_.AddEvent(job_id, std::move(event));
  }
  table_.Announce([this, log = JobLog(*job), start, leases, fallback]() mutable {
    log.Info("{}", start.precision().reason());
    if (!fallback.empty()) log.Warn("{}", fallback);
    if (!precision_.gate().enabled) spdlog::info("FP16 training disabled - using FP32");
    stats_.NoteBegin(start.job_id(), start.precision(), start.baseline().peak_device_bytes());
    const std::vector<training::v1::RankAssignment> ranks = AssignRanks(leases);
    for (size_t i = 0; i < leases.size(); ++i) {
      if (!ranks.empty()) *start.mutable_rank() = ranks[i];
      workers_->Begin(leases[i].worker.worker_id(), start);
    }
  });
}

// Stops only as many jobs as needed; counts the slots of jobs that are already stopping.
bool Dispatcher::MakeRoomFor(const Job& waiting) {
  const WorkerCounts counts = workers_->counts();
  const int ranks = MayBeginWithFewer(waiting, clock_.Steady())
                        ? FewestRanksOf(waiting.spec(), workers_->slots())
                        : RanksOf(waiting);
  if (ranks > 1 && workers_->free_slots() >= ranks && counts.warm < ranks) return true;
  int missing = ranks - (workers_->slots() - counts.busy);
  if (missing <= 0 || !options_.scheduler.preemption) return false;
  std::vector<HoldingJob> holding;
  for (HoldingJob& job : HoldingJobs()) {
    if (stops_.Find(job.id) == nullptr && IsTraining(table_.Find(job.id)->state())) {
      holding.push_back(std::move(job));
    } else {
      missing -= job.slots;  // The job is already ending.
    }
  }
  if (missing <= 0) return true;
  const std::vector<std::string> victims = ChooseVictims(waiting.priority(), missing, holding);
  for (const std::string& victim : victims) {
    stops_.Stop(victim, {StopCause::kPreempted,
                         absl::StrCat("preempted by job ", waiting.id(), " of priority ",
                                      waiting.priority(), ", its own is ",
                                      table_.Find(victim)->priority())});
  }
  return !victims.empty();
}

void Dispatcher::NotePeak(Job& job, int64_t host_bytes, int64_t device_bytes) {
  job.set_peak_memory_bytes(std::max(job.peak_memory_bytes(), host_bytes));
  job.set_peak_device_bytes(std::max(job.peak_device_bytes(), device_bytes));
  const int64_t peak =
      job.peak_device_bytes() > 0 ? job.peak_device_bytes() : job.peak_memory_bytes();
  if (peak_memory_.size() >= kMaxPeaks) peak_memory_.erase(peak_memory_.begin());
  int64_t& known = peak_memory_[WorkloadKey(job.spec())];
  known = std::max(known, peak);
}

void Dispatcher::OnAccepted(const std::string& job_id) { accepted_[job_id] = clock_.Steady(); }

void Dispatcher::OnAdopted(const std::string& job_id) { attempt_starts_[job_id] = clock_.Steady(); }

void Dispatcher::RetryAfter(const std::string& job_id, absl::Duration backoff) {
  *table_.Edit(job_id)->mutable_retry_time() = ToTimestamp(clock_.Now() + backoff);
  table_.Count([this, job_id, retry = clock_.Steady() + backoff] { retries_[job_id] = retry; });
}

bool Dispatcher::OnLeftWorker(Job& job) {
  const auto start = attempt_starts_.find(job.id());
  if (start == attempt_starts_.end()) return false;
  const double seconds = absl::ToDoubleSeconds(clock_.Steady() - start->second);
  job.set_worker_seconds(job.worker_seconds() + seconds);
  const int slots = IsSubmitted(job.spec()) ? 0 : std::max(job.ranks_size(), 1);
  table_.Count([this, job_id = job.id(), owner = job.owner(), seconds, slots] {
    usage_.Add(owner, seconds * slots, clock_.Steady());
    left_[job_id] = clock_.Steady();
    attempt_starts_.erase(job_id);
  });
  return true;
}

void Dispatcher::OnEnded(const std::string& job_id) {
  accepted_.erase(job_id);
  left_.erase(job_id);
  retries_.erase(job_id);
}

void Dispatcher::OnTime() {
  const absl::Time now = clock_.Steady();
  bool retry = false;
  for (const std::string& id : table_.Ids()) {
    const Job& job = *table_.Find(id);
    retry = retry || (job.has_retry_time() && MayStart(job, now));
  }
  // A quarantine may have expired, or the first job in the queue may have waited long enough.
  const bool waits = table_.CountIn(training::v1::JOB_STATE_QUEUED) > 0 &&
                     workers_->counts().busy < workers_->slots();
  if (waits || retry || !writer_.store_status().ok()) StartQueued();
  GrowOne(now);
}

}  // namespace genesis
