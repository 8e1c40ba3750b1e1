#include "server/jobs/submissions.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/random_bytes.h"
#include "base/text/enum_names.h"
#include "base/text/text.h"
#include "config/job/job_spec.h"
#include "server/base/job_log.h"
#include "server/launchers/describe_submission.h"
#include "server/ledger/job_state.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::ClusterSubmission;
using training::v1::Job;

constexpr char kDaemonKey[] = "launchers.daemon";
// Time for workers to exit by themselves after their attempt has ended.
constexpr absl::Duration kEndGrace = absl::Seconds(30);
// Time to wait for late reports of workers that are gone.
constexpr absl::Duration kLastWords = absl::Seconds(5);
// Time until a cluster lists what it has accepted. Lists come from caches and
// may be empty for a while.
constexpr absl::Duration kListing = absl::Seconds(30);
// Interval of polls without pending requests; these polls find workers that were left behind.
constexpr absl::Duration kIdlePoll = absl::Minutes(1);
constexpr absl::Duration kMaxBackoff = absl::Minutes(1);
constexpr absl::Duration kCancelPause = absl::Seconds(10);

// Returns 32 random bits in hex, which suffice because few daemons share a cluster.
std::string NewDaemonName() { return absl::StrFormat("%08x", RandomNumber() & 0xffffffffU); }

bool IsLive(const ClusterSubmission& submission) {
  return submission.state() != training::v1::SUBMISSION_STATE_UNSPECIFIED &&
         submission.state() != training::v1::SUBMISSION_STATE_ENDED;
}

// Returns true if the request's workers hold the job or will get it.
bool IsWanted(const Job& job) {
  return IsOnWorker(job.state()) ||
         (job.state() == training::v1::JOB_STATE_QUEUED && job.submission().claim() == 0);
}

// Returns the time to exit after an attempt; 0 without one, or if the job is paused or cancelled.
absl::Duration GraceOf(const Job* job) {
  if (job == nullptr) return absl::ZeroDuration();
  const bool over = job->submission().claim() != 0 &&
                    job->state() != training::v1::JOB_STATE_PAUSED &&
                    job->state() != training::v1::JOB_STATE_CANCELLED;
  return over ? kEndGrace : absl::ZeroDuration();
}

}  // namespace

std::string Submissions::prefix() const { return absl::StrCat("genesis-", daemon_, "-"); }

std::vector<Submissions::Kind> Submissions::kinds() const {
  std::vector<Kind> kinds;
  for (const Kind kind :
       {training::v1::LAUNCHER_KIND_SLURM, training::v1::LAUNCHER_KIND_KUBERNETES}) {
    if (launchers_ != nullptr && launchers_->Has(kind)) kinds.push_back(kind);
  }
  return kinds;
}

absl::Duration Submissions::Backoff(int failures) {
  constexpr int kMaxDoublings = 6;
  return std::min(kMaxBackoff, absl::Seconds(int64_t{1} << std::min(failures, kMaxDoublings)));
}

void Submissions::Recover() {
  if (kinds().empty()) return;
  const std::optional<std::string> known = context_.table.Metadata(kDaemonKey);
  daemon_ = known.value_or("");
  if (daemon_.empty()) {
    daemon_ = NewDaemonName();
    context_.table.PutMetadata(kDaemonKey, daemon_);
  }
  for (const std::string& id : context_.table.Ids()) {
    const Job& job = *context_.table.Find(id);
    const ClusterSubmission& submission = job.submission();
    if (!IsLive(submission)) continue;
    tracked_[submission.name()] = {.kind = submission.launcher(),
                                   .job_id = id,
                                   .cluster_id = submission.cluster_id(),
                                   .seen = context_.clock.Running(),
                                   .restarts = job.restarts()};
    context_.workers->OpenReservation(submission.name());
  }
}

const Job* Submissions::JobOf(const std::string& name, const Tracked& tracked) const {
  const Job* job = context_.table.Find(tracked.job_id);
  return job != nullptr && job->submission().name() == name ? job : nullptr;
}

void Submissions::SetReason(const Job& job, const std::string& reason) {
  if (job.submission().reason() == reason) return;
  context_.table.Edit(job.id())->mutable_submission()->set_reason(reason);
}

void Submissions::OnTime() {
  if (context_.dispatcher.draining()) return;
  for (const std::string& id : context_.table.IdsIn(training::v1::JOB_STATE_QUEUED)) {
    const Job& job = *context_.table.Find(id);
    if (!IsSubmitted(job.spec()) || IsLive(job.submission())) continue;
    const Kind kind = LauncherOf(job.spec());
    if (launchers_ == nullptr || !launchers_->Has(kind)) {
      SetReason(job, absl::StrCat("this daemon is not set up for ", ShortEnumName(kind)));
    } else if (context_.dispatcher.MayStart(job)) {
      Begin(job);
    }
  }
  for (auto& [name, tracked] : tracked_) {
    const Job* const job = JobOf(name, tracked);
    // A request that is being ended is not used again; its job gets a new one.
    const bool ending = tracked.end_at != absl::InfiniteFuture();
    if (job == nullptr || ending || !IsWanted(*job)) {
      Tidy(name, tracked);
      continue;
    }
    if (IsOnWorker(job->state())) tracked.restarts = job->restarts();
    if (job->submission().state() == training::v1::SUBMISSION_STATE_SUBMITTING) {
      Submit(name, tracked);
    }
  }
  for (const Kind kind : kinds()) Poll(kind);
}

void Submissions::Begin(const Job& job) {
  const std::string id = job.id();
  ClusterSubmission& submission = *context_.table.Edit(id)->mutable_submission();
  const int number = submission.number() + 1;
  submission.Clear();
  submission.set_number(number);
  submission.set_name(absl::StrCat(prefix(), number, "-", id));
  submission.set_launcher(LauncherOf(job.spec()));
  submission.set_state(training::v1::SUBMISSION_STATE_SUBMITTING);
  const Tracked tracked = {.kind = submission.launcher(), .job_id = id, .restarts = job.restarts()};
  context_.table.Count([this, name = submission.name(), tracked] {
    tracked_[name] = tracked;
    context_.workers->OpenReservation(name);
  });
}

// Sends the request to the cluster, now that its name is durable.
void Submissions::Submit(const std::string& name, Tracked& tracked) {
  if (tracked.calling || context_.clock.Running() < tracked.next_call) return;
  tracked.calling = true;
  const Job& job = *context_.table.Find(tracked.job_id);
  const LaunchRequest request = {
      .name = name, .job_id = job.id(), .workers = std::max(job.spec().distributed().ranks(), 1)};
  launchers_->Submit(tracked.kind, request, [this, name](const absl::StatusOr<std::string>& id) {
    context_.writer.Post({[this, name, id] { OnSubmitted(name, id); }, nullptr});
  });
}

void Submissions::OnSubmitted(const std::string& name, const absl::StatusOr<std::string>& id) {
  const auto found = tracked_.find(name);
  if (found == tracked_.end()) return;
  Tracked& tracked = found->second;
  tracked.calling = false;
  const Job* const job = JobOf(name, tracked);
  if (!id.ok()) {
    tracked.next_call = context_.clock.Running() + Backoff(++tracked.failures);
    const std::string reason = OneLine(id.status().message(), kMaxMessageBytes);
    JobLog(tracked.job_id).Warn("{}; it is submitted again", reason);
    if (job != nullptr) SetReason(*job, reason);
    return;
  }
  tracked.failures = 0;
  tracked.cluster_id = *id;
  tracked.seen = context_.clock.Running();
  next_polls_[tracked.kind] = absl::InfinitePast();
  if (job == nullptr) return;
  ClusterSubmission& submission = *context_.table.Edit(tracked.job_id)->mutable_submission();
  submission.set_cluster_id(*id);
  submission.set_state(training::v1::SUBMISSION_STATE_PENDING);
  submission.clear_reason();
  JobLog(*job).Info("submitted as {}", SubmissionName(submission));
}

void Submissions::Tidy(const std::string& name, Tracked& tracked) {
  if (tracked.end_at == absl::InfiniteFuture()) {
    tracked.end_at = context_.clock.Running() + GraceOf(JobOf(name, tracked));
    context_.workers->CloseReservation(name);
  }
  if (context_.clock.Running() >= tracked.end_at) Cancel(name, tracked);
}

void Submissions::Cancel(const std::string& name, Tracked& tracked) {
  if (tracked.calling || context_.clock.Running() < tracked.next_call ||
      !launchers_->Has(tracked.kind)) {
    return;
  }
  tracked.calling = true;
  tracked.ended = true;
  launchers_->Cancel(
      tracked.kind, name, tracked.cluster_id, [this, name](const absl::Status& status) {
        context_.writer.Post({[this, name, status] {
                                const auto found = tracked_.find(name);
                                if (found == tracked_.end()) return;
                                found->second.calling = false;
                                // Cancel again until a poll reports that the request is gone.
                                found->second.next_call = context_.clock.Running() + kCancelPause;
                                next_polls_[found->second.kind] = absl::InfinitePast();
                                if (status.ok()) return;
                                JobLog(found->second.job_id)
                                    .Warn("{}; it is tried again",
                                          OneLine(status.message(), kMaxMessageBytes));
                              },
                              nullptr});
      });
}

void Submissions::CancelStranger(Kind kind, const LaunchStatus& status) {
  spdlog::warn("{} lists {} ({}), but no job of this daemon needs it; ending it",
               ShortEnumName(kind), status.name, status.cluster_id);
  launchers_->Cancel(kind, status.name, status.cluster_id, [](const absl::Status& cancelled) {
    if (!cancelled.ok()) spdlog::warn("{}", OneLine(cancelled.message(), kMaxMessageBytes));
  });
}

absl::Duration Submissions::PollPause(Kind kind) const {
  const bool any = std::any_of(tracked_.begin(), tracked_.end(),
                               [kind](const auto& each) { return each.second.kind == kind; });
  return any ? absl::Seconds(context_.options.launcher_poll_seconds) : kIdlePoll;
}

void Submissions::Poll(Kind kind) {
  const absl::Time now = context_.clock.Running();
  absl::Time& next = next_polls_.try_emplace(kind, absl::InfinitePast()).first->second;
  if (polling_[kind] || now < next) {
    next = std::min(next, now + PollPause(kind));
    return;
  }
  next = now + PollPause(kind);
  polling_[kind] = true;
  launchers_->Poll(kind, prefix(),
                   [this, kind](const absl::StatusOr<std::vector<LaunchStatus>>& all) {
                     context_.writer.Post({[this, kind, all] { OnPolled(kind, all); }, nullptr});
                   });
}

void Submissions::OnPolled(Kind kind, const absl::StatusOr<std::vector<LaunchStatus>>& all) {
  polling_[kind] = false;
  const std::string problem = all.ok() ? "" : OneLine(all.status().message(), kMaxMessageBytes);
  if (problem != problems_[kind]) {
    if (!problem.empty()) spdlog::warn("{}", problem);
    problems_[kind] = problem;
  }
  if (!all.ok()) {
    for (const auto& [name, tracked] : tracked_) {
      const Job* const job = JobOf(name, tracked);
      if (tracked.kind == kind && !tracked.cluster_id.empty() && job != nullptr && IsWanted(*job)) {
        SetReason(*job, absl::StrCat("in a state that is not known: ", problem));
      }
    }
    return;
  }
  std::set<std::string> seen;
  for (const LaunchStatus& status : *all) {
    const auto found = tracked_.find(status.name);
    const bool ours =
        found != tracked_.end() && found->second.kind == kind &&
        (found->second.cluster_id.empty() || found->second.cluster_id == status.cluster_id);
    if (ours) {
      seen.insert(status.name);
      found->second.seen = context_.clock.Running();
      if (!found->second.cluster_id.empty() || found->second.ended) {
        OnStatus(status.name, found->second, status);
      }
    } else if (status.end == LaunchEnd::kNone) {
      CancelStranger(kind, status);
    }
  }
  // Skip requests that are still being submitted, because they may not be listed yet.
  for (const auto& [name, tracked] : tracked_) {
    const bool known = !tracked.cluster_id.empty() || (tracked.ended && !tracked.calling);
    if (tracked.kind == kind && known && !seen.contains(name)) OnUnlisted(name, tracked);
  }
}

void Submissions::OnUnlisted(const std::string& name, const Tracked& tracked) {
  const Job* const job = JobOf(name, tracked);
  const bool wanted = !tracked.ended && job != nullptr && IsWanted(*job);
  if (wanted && context_.clock.Running() < tracked.seen + kListing) {
    return SetReason(*job, "not in the cluster's list");
  }
  OnEnded(name, tracked,
          {.name = name,
           .cluster_id = tracked.cluster_id,
           .end = LaunchEnd::kUnknown,
           .reason = "the cluster does not know it"});
}

void Submissions::OnStatus(const std::string& name, Tracked& tracked, const LaunchStatus& status) {
  if (status.end != LaunchEnd::kNone) return OnEnded(name, tracked, status);
  const Job* const job = JobOf(name, tracked);
  if (job == nullptr) return;
  SetReason(*job, status.reason);
  if (status.suspended) Keep(name, tracked, *job);
  const auto state = status.running ? training::v1::SUBMISSION_STATE_RUNNING
                                    : training::v1::SUBMISSION_STATE_PENDING;
  if (job->submission().state() == state) return;
  context_.table.Edit(job->id())->mutable_submission()->set_state(state);
}

void Submissions::Keep(const std::string& name, Tracked& tracked, const Job& job) {
  const bool over = job.state() == training::v1::JOB_STATE_QUEUED && job.submission().claim() != 0;
  if (!over || tracked.ended) return;
  context_.table.Edit(job.id())->mutable_submission()->clear_claim();
  tracked.end_at = absl::InfiniteFuture();
  context_.table.Count([this, name] { context_.workers->OpenReservation(name); });
}

void Submissions::OnEnded(const std::string& name, const Tracked& tracked,
                          const LaunchStatus& status) {
  if (const Job* const job = JobOf(name, tracked); job != nullptr) {
    ClusterSubmission& submission = *context_.table.Edit(job->id())->mutable_submission();
    submission.set_state(training::v1::SUBMISSION_STATE_ENDED);
    submission.set_reason(status.reason);
    JobLog(*job).Info("{} has ended: {}", SubmissionName(submission), status.reason);
    EndFor(*job, tracked, status);
  }
  context_.table.Count([this, name] {
    context_.workers->CloseReservation(name);
    tracked_.erase(name);
  });
}

void Submissions::EndFor(const Job& job, const Tracked& tracked, const LaunchStatus& status) {
  const std::string id = job.id();
  const std::string what =
      absl::StrCat(SubmissionName(job.submission()), " has ended: ", status.reason);
  if (IsOnWorker(job.state())) {
    if (status.end == LaunchEnd::kPreempted && IsTraining(job.state()) &&
        context_.stops.Find(id) == nullptr) {
      context_.stops.Stop(id, {StopCause::kPreempted, what});
    }
    context_.table.Announce(
        [this, id, what] { context_.workers->ExpectExit(id, kLastWords, what); });
    return;
  }
  if (job.state() != training::v1::JOB_STATE_QUEUED || tracked.ended) return;
  const bool began = job.submission().claim() != 0;
  // Count: a cancelled attempt not counted yet; without an attempt, any end except preemption.
  const bool counts =
      began ? status.end == LaunchEnd::kCancelled && job.restarts() == tracked.restarts
            : status.end != LaunchEnd::kPreempted;
  if (!counts) return;
  attempts_.LoseSubmission(
      id, absl::StrCat(what, began ? "" : ", before all of its workers had attached"));
}

}  // namespace genesis
