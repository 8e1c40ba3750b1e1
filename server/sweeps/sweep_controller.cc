#include "server/sweeps/sweep_controller.h"

#include <pthread.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/random_bytes.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "base/timestamp.h"
#include "config/job/final_state.h"
#include "config/job/job_spec.h"
#include "google/protobuf/util/message_differencer.h"
#include "server/base/guard.h"
#include "server/store/event_reads.h"
#include "server/sweeps/halving.h"
#include "server/sweeps/search_space.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using google::protobuf::util::MessageDifferencer;
using training::v1::CreateSweepRequest;
using training::v1::Job;
using training::v1::JobEvent;
using training::v1::Sweep;
using training::v1::Trial;

// Maximum sweeps that have not ended.
constexpr size_t kMaxOpenSweeps = 100;
constexpr int64_t kEventPage = 256;
constexpr absl::Duration kRoundPause = absl::Milliseconds(200);
constexpr absl::Duration kRetryPause = absl::Seconds(1);
// Pause after the daemon had no room for a trial.
constexpr absl::Duration kQueuePause = absl::Seconds(5);

bool IsSubmitted(const Trial& trial) {
  return trial.state() != training::v1::JOB_STATE_UNSPECIFIED;
}

// Returns the caller that submits the trials: the owner of the sweep, with the role submitter.
Caller CallerOf(const Sweep& sweep) {
  return {.name = sweep.owner(), .role = Role::kSubmitter, .peer = ""};
}

absl::Status NoSuchSweep(const std::string& id) {
  return absl::NotFoundError(
      absl::StrCat("there is no sweep ", QuoteValue(id), "; `genesisctl sweeps` lists them"));
}

absl::Status CheckId(const std::string& id) {
  if (id.empty() || (JobIdFault(id).empty() && id.size() <= kMaxSweepIdBytes)) {
    return absl::OkStatus();
  }
  return ToStatus({{"sweep_id", QuoteValue(id),
                    absl::StrCat("1 to ", kMaxSweepIdBytes,
                                 " lower-case letters, digits and '-', the first no '-'")}});
}

Sweep NewSweep(const Caller& caller, const CreateSweepRequest& request) {
  Sweep sweep;
  sweep.set_id(request.sweep_id().empty()
                   ? absl::StrFormat("sweep-%08x", RandomNumber() & 0xffffffffULL)
                   : request.sweep_id());
  *sweep.mutable_spec() = WithSweepDefaults(request.spec());
  sweep.set_state(training::v1::SWEEP_STATE_RUNNING);
  const std::string& named = request.spec().job().scheduling().owner();
  sweep.set_owner(named.empty() ? caller.name : named);
  *sweep.mutable_create_time() = ToTimestamp(absl::Now());
  sweep.set_trial_count(CountTrials(sweep.spec()));
  for (int i = 0; i < sweep.trial_count(); ++i) {
    Trial& trial = *sweep.add_trials();
    trial.set_number(i);
    trial.set_job_id(TrialJobId(sweep.id(), i));
    const std::map<std::string, std::string> values = TrialParameters(sweep.spec(), i);
    trial.mutable_parameters()->insert(values.begin(), values.end());
  }
  return sweep;
}

// Returns the existing sweep for a repeated request; ALREADY_EXISTS for a different one.
absl::StatusOr<Sweep> SameOrError(const Sweep& existing, const Sweep& asked) {
  if (existing.owner() == asked.owner() &&
      MessageDifferencer::Equals(existing.spec(), asked.spec())) {
    return existing;
  }
  return absl::AlreadyExistsError(
      absl::StrCat("sweep ", QuoteValue(asked.id()),
                   " exists with another specification or owner; choose "
                   "another sweep_id"));
}

}  // namespace

absl::Status SweepController::Start() {
  const absl::StatusOr<ReaderPool::Lease> lease = readers_->Borrow();
  if (!lease.ok()) return lease.status();
  absl::StatusOr<std::vector<StoredSweep>> open = ReadOpenSweeps(**lease);
  if (!open.ok()) return open.status();
  for (StoredSweep& each : *open) Add(std::move(each));
  thread_ = std::thread([this] { Loop(); });
  pthread_setname_np(thread_.native_handle(), "sweeps");
  return absl::OkStatus();
}

void SweepController::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void SweepController::Create(const Caller& caller, const CreateSweepRequest& request,
                             const Callback<Sweep>& callback) {
  if (absl::Status named = CheckId(request.sweep_id()); !named.ok()) return callback(named);
  const std::vector<FieldError> errors = ValidateSweep(request.spec());
  if (!errors.empty()) return callback(ToStatus(errors));
  const auto sweep = std::make_shared<const Sweep>(NewSweep(caller, request));
  const absl::StatusOr<std::optional<StoredSweep>> existing = Read(sweep->id());
  if (!existing.ok()) return callback(existing.status());
  if (*existing) return callback(SameOrError((*existing)->sweep, *sweep));
  // The first job shows whether files, owner and daemon allow the jobs of this sweep.
  training::v1::TrainRequest first;
  first.set_job_id(sweep->trials(0).job_id());
  first.set_validate_only(true);
  *first.mutable_spec() = TrialJob(*sweep, 0);
  jobs_->admission().Train(
      first, caller,
      [this, sweep, callback, only = request.validate_only()](const absl::StatusOr<Job>& job) {
        if (!job.ok()) return callback(job.status());
        if (only) return callback(*sweep);
        Post([this, sweep, callback] { callback(CreateNow(*sweep)); },
             [callback](const absl::Status& stopped) { callback(stopped); });
      });
}

void SweepController::Cancel(const Caller& caller, const std::string& sweep_id,
                             const Callback<Sweep>& callback) {
  Post([this, caller, sweep_id, callback] { callback(CancelNow(caller, sweep_id)); },
       [callback](const absl::Status& stopped) { callback(stopped); });
}

absl::StatusOr<std::optional<StoredSweep>> SweepController::Read(const std::string& id) const {
  const absl::StatusOr<ReaderPool::Lease> lease = readers_->Borrow();
  if (!lease.ok()) return lease.status();
  return ReadSweep(**lease, id);
}

absl::StatusOr<Sweep> SweepController::Get(const Caller& caller, const std::string& id) const {
  absl::StatusOr<std::optional<StoredSweep>> stored = Read(id);
  if (!stored.ok()) return stored.status();
  if (!*stored || !visibility_.Sees(caller, (*stored)->sweep.owner())) return NoSuchSweep(id);
  return std::move((*stored)->sweep);
}

absl::StatusOr<std::vector<StoredSweep>> SweepController::List(const Caller& caller, int64_t before,
                                                               int64_t limit) const {
  const absl::StatusOr<ReaderPool::Lease> lease = readers_->Borrow();
  if (!lease.ok()) return lease.status();
  return ReadSweeps(**lease, visibility_.SeesAll(caller) ? "" : caller.name, before, limit);
}

void SweepController::Post(std::function<void()> task,
                           const std::function<void(const absl::Status&)>& refused) {
  {
    absl::MutexLock lock(&mutex_);
    if (!stopping_) {
      tasks_.push_back(std::move(task));
      changed_.NotifyAll();
      return;
    }
  }
  if (refused) refused(absl::UnavailableError("the daemon stops; try again when it has started"));
}

void SweepController::Loop() {
  for (bool stopping = false; !stopping;) {
    std::deque<std::function<void()>> tasks;
    {
      absl::MutexLock lock(&mutex_);
      changed_.WaitUntil(
          mutex_, open_.empty() ? absl::InfiniteFuture() : next_round_,
          [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !tasks_.empty(); });
      stopping = stopping_;
      tasks.swap(tasks_);
    }
    for (const auto& task : tasks) Guarded("sweeps", task).IgnoreError();
    if (stopping || open_.empty()) continue;
    absl::Status status = GuardedStatus("sweeps", [this] { return Round(); });
    next_round_ = SteadyNow() + (status.ok() ? kRoundPause : kRetryPause);
    if (status.code() != told_.code()) {
      status.ok() ? spdlog::info("sweeps go on")
                  : spdlog::error("cannot go on with sweeps; trying again every second: {}",
                                  status.ToString());
    }
    told_ = std::move(status);
  }
}

void SweepController::Add(StoredSweep stored) {
  cursor_ = open_.empty() ? stored.cursor : std::min(cursor_, stored.cursor);
  const std::string id = stored.sweep.id();
  for (const Trial& trial : stored.sweep.trials()) {
    trial_of_job_[trial.job_id()] = {id, trial.number()};
  }
  open_[id].stored = std::move(stored);
}

absl::StatusOr<Sweep> SweepController::CreateNow(const Sweep& sweep) {
  const absl::StatusOr<std::optional<StoredSweep>> existing = Read(sweep.id());
  if (!existing.ok()) return existing.status();
  if (*existing) return SameOrError((*existing)->sweep, sweep);
  if (open_.size() >= kMaxOpenSweeps) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMaxOpenSweeps, " sweeps have not ended; try again when one has"));
  }
  StoredSweep stored{.sweep = sweep, .cursor = jobs_->view().LastSequence()};
  int64_t ordinal = 0;
  const absl::Status written = Write([&stored, &ordinal](Database& database) {
    const absl::StatusOr<int64_t> inserted = InsertSweep(database, stored);
    if (inserted.ok()) ordinal = *inserted;
    return inserted.status();
  });
  if (!written.ok()) return written;
  stored.ordinal = ordinal;
  Add(std::move(stored));
  spdlog::info("sweep {} of {} trials accepted for {}", sweep.id(), sweep.trial_count(),
               sweep.owner());
  return sweep;
}

absl::StatusOr<Sweep> SweepController::CancelNow(const Caller& caller, const std::string& id) {
  const absl::StatusOr<Sweep> found = Get(caller, id);
  if (!found.ok()) return found;
  absl::Status allowed = CheckOwner(caller, found->owner(), absl::StrCat("sweep ", QuoteValue(id)));
  if (!allowed.ok()) return allowed;
  const auto open = open_.find(id);
  if (open == open_.end() || open->second.stored.sweep.has_end_time()) {
    if (found->state() == training::v1::SWEEP_STATE_CANCELLED) return found;
    return absl::FailedPreconditionError(
        absl::StrCat("sweep ", QuoteValue(id), " has ended as ", ShortEnumName(found->state()),
                     "; only a sweep that has not ended can be cancelled"));
  }
  open->second.stored.sweep.set_state(training::v1::SWEEP_STATE_CANCELLING);
  open->second.must_write = true;
  Sweep cancelled = open->second.stored.sweep;
  if (absl::Status written = WriteChanges(); !written.ok()) return written;
  return cancelled;
}

absl::Status SweepController::Round() {
  if (absl::Status status = FollowEvents(); !status.ok()) return status;
  if (!std::exchange(caught_up_, true)) NoteLostJobs();
  for (auto& [id, open] : open_) {
    StopTrials(open);
    SubmitNext(open);
    Summarize(open);
  }
  return WriteChanges();
}

absl::Status SweepController::FollowEvents() {
  if (jobs_->view().LastSequence() <= cursor_) return absl::OkStatus();
  const absl::StatusOr<ReaderPool::Lease> lease = readers_->Borrow();
  if (!lease.ok()) return lease.status();
  const EventQuery query = {.kinds = {"evaluated", "state_changed", "deleted"}};
  for (bool at_end = false; !at_end;) {
    const absl::StatusOr<EventPage> page = ReadEvents(**lease, query, cursor_, kEventPage);
    if (!page.ok()) return page.status();
    for (const JobEvent& event : page->events) NoteEvent(event);
    cursor_ = page->cursor;
    at_end = page->at_end;
  }
  return absl::OkStatus();
}

void SweepController::NoteEvent(const JobEvent& event) {
  const auto place = trial_of_job_.find(event.job_id());
  if (place == trial_of_job_.end()) return;
  const auto& [sweep_id, number] = place->second;
  Open& open = open_.at(sweep_id);
  // After a start, events are read from the oldest cursor of all sweeps on. A sweep skips those up
  // to its own cursor, because a trial is judged only once, with what was known then.
  if (event.sequence() <= open.stored.cursor) return;
  Sweep& sweep = open.stored.sweep;
  Trial& trial = *sweep.mutable_trials(number);
  open.changed.insert(number);
  trial.set_state(event.state());
  if (event.has_evaluated()) {
    const bool climbed = NoteEvaluation(event.evaluated(), sweep, trial) > 0;
    if (!trial.stopped_early()) {
      trial.set_reason(climbed ? WhyItLoses(sweep, trial) : "");
      trial.set_stopped_early(!trial.reason().empty());
    }
    if (!trial.stopped_early()) trial.set_reason(MissingMetric(sweep.spec(), event.evaluated()));
  }
  // A job may end before it is stopped.
  if (trial.stopped_early() && IsFinal(trial.state()) &&
      trial.state() != training::v1::JOB_STATE_CANCELLED) {
    trial.set_stopped_early(false);
    trial.clear_reason();
  }
  if (event.state_changed().to() == training::v1::JOB_STATE_FAILED) {
    trial.set_reason(event.state_changed().reason());
  }
}

// Ends the trials whose jobs are gone and whose events were missed.
void SweepController::NoteLostJobs() {
  for (auto& [id, open] : open_) {
    for (Trial& trial : *open.stored.sweep.mutable_trials()) {
      if (!IsSubmitted(trial) || IsFinal(trial.state())) continue;
      const auto job = jobs_->view().Snapshot(trial.job_id());
      if (!job.ok() || *job != nullptr) continue;
      trial.set_state(training::v1::JOB_STATE_CANCELLED);
      trial.set_reason("the job is gone");
      open.changed.insert(trial.number());
    }
  }
}

void SweepController::StopTrials(Open& open) {
  const Sweep& sweep = open.stored.sweep;
  for (const Trial& trial : sweep.trials()) {
    const bool all = sweep.state() == training::v1::SWEEP_STATE_CANCELLING;
    if (!IsSubmitted(trial) || IsFinal(trial.state()) || !(all || trial.stopped_early())) continue;
    if (!open.cancelling.insert(trial.number()).second) continue;
    const std::string by = all ? absl::StrCat("the end of sweep ", sweep.id())
                               : absl::StrCat("sweep ", sweep.id(), " (", trial.reason(), ")");
    jobs_->requests().Cancel(
        CallerOf(sweep), trial.job_id(), {.now = false, .by = by},
        [this, id = sweep.id(), number = trial.number()](const absl::StatusOr<Job>& job) {
          // A job that has ended, or is gone, reports that by an event.
          if (job.ok() || absl::IsFailedPrecondition(job.status()) ||
              absl::IsNotFound(job.status())) {
            return;
          }
          Post([this, id, number] {
            if (const auto found = open_.find(id); found != open_.end()) {
              found->second.cancelling.erase(number);
            }
          });
        });
  }
}

// Submits one trial after the other, so that they are accepted in order.
void SweepController::SubmitNext(Open& open) {
  const Sweep& sweep = open.stored.sweep;
  if (sweep.state() != training::v1::SWEEP_STATE_RUNNING) return;
  if (open.submitting || SteadyNow() < open.next_submission) return;
  const auto under_way = std::count_if(
      sweep.trials().begin(), sweep.trials().end(),
      [](const Trial& trial) { return IsSubmitted(trial) && !IsFinal(trial.state()); });
  const auto next = std::find_if(sweep.trials().begin(), sweep.trials().end(),
                                 [](const Trial& trial) { return !IsSubmitted(trial); });
  if (under_way >= sweep.spec().max_parallel() || next == sweep.trials().end()) return;
  open.submitting = true;
  training::v1::TrainRequest request;
  request.set_job_id(next->job_id());
  *request.mutable_spec() = TrialJob(sweep, next->number());
  jobs_->admission().Train(
      request, CallerOf(sweep),
      [this, id = sweep.id(), number = next->number()](const absl::StatusOr<Job>& job) {
        Post([this, id, number, job] { OnSubmitted(id, number, job); });
      });
}

void SweepController::OnSubmitted(const std::string& sweep_id, int number,
                                  const absl::StatusOr<Job>& job) {
  const auto found = open_.find(sweep_id);
  if (found == open_.end()) return;
  Open& open = found->second;
  open.submitting = false;
  Trial& trial = *open.stored.sweep.mutable_trials(number);
  if (IsSubmitted(trial)) return;  // The job's events arrived first.
  if (absl::IsResourceExhausted(job.status()) || absl::IsUnavailable(job.status())) {
    open.next_submission = SteadyNow() + kQueuePause;
    return;
  }
  open.changed.insert(number);
  if (job.ok()) return trial.set_state(job->state());
  trial.set_state(training::v1::JOB_STATE_FAILED);
  trial.set_reason(absl::StrCat("cannot be submitted: ", job.status().message()));
  spdlog::warn("sweep {}: trial {} {}", sweep_id, number, trial.reason());
}

// Counts the trials that have ended, names the best one, and ends the sweep if no trial is open.
// Runs in every round, because a sweep that is cancelled before its first job has no event.
void SweepController::Summarize(Open& open) {
  Sweep& sweep = open.stored.sweep;
  SetBestTrial(sweep);
  const bool cancelled = sweep.state() == training::v1::SWEEP_STATE_CANCELLING;
  int ended = 0;
  int open_trials = open.submitting ? 1 : 0;
  for (const Trial& trial : sweep.trials()) {
    ended += IsFinal(trial.state()) ? 1 : 0;
    open_trials += IsFinal(trial.state()) || (cancelled && !IsSubmitted(trial)) ? 0 : 1;
  }
  sweep.set_ended_trials(ended);
  open.must_write |= !open.changed.empty() || open_trials == 0;
  if (open_trials > 0) return;
  sweep.set_state(cancelled                ? training::v1::SWEEP_STATE_CANCELLED
                  : sweep.has_best_trial() ? training::v1::SWEEP_STATE_SUCCEEDED
                                           : training::v1::SWEEP_STATE_FAILED);
  *sweep.mutable_end_time() = ToTimestamp(absl::Now());
}

absl::Status SweepController::WriteChanges() {
  std::vector<std::pair<const StoredSweep*, std::vector<int>>> changes;
  for (auto& [id, open] : open_) {
    if (!open.must_write) continue;
    open.stored.cursor = cursor_;
    changes.emplace_back(&open.stored, std::vector<int>(open.changed.begin(), open.changed.end()));
  }
  if (changes.empty()) return absl::OkStatus();
  const absl::Status written = Write([&changes](Database& database) {
    absl::Status status;
    for (const auto& [stored, trials] : changes) {
      if (status.ok()) status = WriteSweep(database, *stored, trials);
    }
    return status;
  });
  if (!written.ok()) return written;
  for (auto open = open_.begin(); open != open_.end();) {
    open->second.changed.clear();
    open->second.must_write = false;
    const Sweep& sweep = open->second.stored.sweep;
    if (!sweep.has_end_time()) {
      ++open;
      continue;
    }
    spdlog::info("sweep {} ended as {}", sweep.id(), ShortEnumName(sweep.state()));
    for (const Trial& trial : sweep.trials()) trial_of_job_.erase(trial.job_id());
    open = open_.erase(open);
  }
  return absl::OkStatus();
}

absl::Status SweepController::Write(std::function<absl::Status(Database&)> write) {
  absl::Status result;
  absl::Notification done;
  jobs_->Write(std::move(write), [&result, &done](const absl::Status& status) {
    result = status;
    done.Notify();
  });
  done.WaitForNotification();
  return result;
}

}  // namespace genesis
