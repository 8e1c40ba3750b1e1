// The rules of jobs against a clock and workers that the test holds: no process, no waiting.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "config/job/job_names.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_state.h"
#include "tests/server/jobs_for_test.h"
#include "tests/temp_dir.h"

namespace genesis {

using namespace training::v1;  // NOLINT: state names.

class ManualClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::FromUnixSeconds(wall_); }
  absl::Time Steady() const override { return absl::FromUnixSeconds(steady_); }
  void Advance(int seconds) {
    wall_ += seconds;
    steady_ += seconds;
  }
  void SetBack(int seconds) { wall_ -= seconds; }

 private:
  std::atomic<int64_t> wall_{1'800'000'000};
  std::atomic<int64_t> steady_{1'800'000'000};
};

// Workers that do nothing by themselves. Read by the test while the writer rests.
class IdleWorkers final : public Workers {
 public:
  bool Adopt(const WorkerProcessRef& worker, const std::string&, int, int64_t, int64_t,
             int64_t) override {
    return adopts && !lost.contains(worker.worker_id());
  }
  std::vector<WorkerLease> ReserveGang(int ranks, int64_t memory_bytes) override {
    if (cold || free_slots() < ranks || memory_bytes > 1000) return {};
    std::vector<WorkerLease> leases;
    for (int i = 0; i < ranks; ++i) {
      WorkerLease& lease = leases.emplace_back();
      lease.worker.set_worker_id("w" + std::to_string(++last_));
      lease.worker.set_device("cpu");
      lease.device.set_name("cpu");
      const auto vetoed = vetoes.find(i);
      if (vetoed != vetoes.end()) lease.device.set_reduced_precision_disabled(vetoed->second);
    }
    return leases;
  }
  void Release(const std::string&) override {}
  void Begin(const std::string&, const StartJob& start) override {
    begun[start.job_id()] = start;
    held[start.job_id()] = std::max(start.rank().size(), 1);
  }
  void Send(const std::string& job_id, const AttachResponse& command) override {
    sent.emplace_back(job_id, command);
  }
  void Acknowledge(const std::string&, int64_t) override {}
  void ExpectExit(const std::string& job_id, absl::Duration grace, const std::string&) override {
    expected_exits[job_id] = grace;
  }
  void Abandon(const std::string& job_id, const std::string& why) override {
    abandoned.emplace_back(job_id, why);
  }
  absl::StatusOr<std::string> Retire(const std::string&) override { return retired; }
  WorkerCounts counts() const override {
    int busy = 0;
    for (const auto& [job, start] : begun) busy += held.at(job);
    return {.busy = busy, .warm = std::max(free - busy, 0)};
  }
  int slots() const override { return free; }
  int free_slots() const override { return std::max(free - counts().busy, 0); }
  bool takes_remote() const override { return remote; }
  std::vector<WorkerInfo> workers() const override { return {}; }
  int64_t largest_device_bytes() const override { return 0; }

  int free = 1;
  bool cold = false;  // No worker is warm yet.
  bool adopts = false;
  bool remote = false;
  std::set<std::string> lost;         // Workers that did not outlive the daemon.
  std::map<int, std::string> vetoes;  // Of reduced precision, by place in a gang.
  std::string retired;                // The job of a worker that is retired.
  std::map<std::string, int> held;    // Workers by job, whether they are still there or not.
  std::vector<std::pair<std::string, std::string>> abandoned;  // Job and reason.
  std::map<std::string, StartJob> begun;                       // By job that is on a worker.
  std::vector<std::pair<std::string, AttachResponse>> sent;
  std::map<std::string, absl::Duration> expected_exits;

 private:
  int last_ = 0;
};

class JobRulesTest : public testing::Test {
 protected:
  JobRulesTest() { Open(); }

  void Open() {
    manager_.reset();
    store_.reset();
    store_ = *JobStore::Open(temp_.path());
    JobManager::Options options;
    options.checkpoints_dir = temp_.path();
    options.gate.enabled = true;
    manager_ = std::make_unique<JobManager>(options, store_.get(), &workers_, &metrics_, clock_);
    ASSERT_TRUE(manager_->Recover().ok());
    manager_->Start();
    Settle();
  }

  // Waits until the writer has done its work and what followed from it.
  void Settle() {
    for (int i = 0; i < 4; ++i) {
      absl::Notification done;
      manager_->AskWriter([&] { done.Notify(); });
      done.WaitForNotification();
    }
  }
  void Tick() {
    manager_->AskWriter([this] { manager_->OnTime(); });
    Settle();
  }

  template <typename T>
  absl::StatusOr<T> Await(const std::function<void(const Callback<T>&)>& call) {
    absl::Notification done;
    absl::StatusOr<T> result;
    call([&](const absl::StatusOr<T>& answer) {
      result = answer;
      done.Notify();
    });
    done.WaitForNotification();
    Settle();
    Note();
    return result;
  }

  absl::Status Train(const std::string& id, int priority = 0, double deadline = 0, int ranks = 0) {
    TrainRequest request;
    request.set_job_id(id);
    JobSpec& spec = *request.mutable_spec();
    spec.mutable_model()->mutable_world_model();
    spec.mutable_dataset()->mutable_synthetic()->mutable_trajectories()->set_episodes(4);
    spec.mutable_training()->set_epochs(1);
    spec.mutable_scheduling()->set_priority(priority);
    spec.mutable_scheduling()->set_deadline_seconds(deadline);
    if (ranks > 0) spec.mutable_distributed()->set_ranks(ranks);
    spec.set_max_restarts(1);
    ids_.insert(id);
    return Await<Job>(
               [&](const auto& callback) { manager_->admission().Train(request, {}, callback); })
        .status();
  }
  absl::Status Pause(const std::string& id) {
    return Await<Job>([&](const auto& callback) { manager_->requests().Pause(id, callback); })
        .status();
  }
  absl::Status Resume(const std::string& id) {
    return Await<Job>([&](const auto& callback) { manager_->requests().Resume(id, callback); })
        .status();
  }
  absl::Status Cancel(const std::string& id) {
    return Await<Job>(
               [&](const auto& callback) { manager_->requests().Cancel(id, false, callback); })
        .status();
  }

  Job Get(const std::string& id) { return *manager_->queries().Get(id); }
  JobState State(const std::string& id) { return Get(id).state(); }

  AttachRequest Event(const std::string& id) {
    AttachRequest event;
    event.set_job_id(id);
    event.set_claim(Get(id).claim());
    return event;
  }
  void Report(const AttachRequest& event, int rank = 0) {
    manager_->worker_events()->OnWorkerEvent(event, rank);
    Settle();
    Note();
  }
  void Started(const std::string& id) {
    AttachRequest event = Event(id);
    event.mutable_started()->set_total_steps(100);
    Report(event);
  }
  void Run(const std::string& id) {
    ASSERT_TRUE(Train(id).ok());
    Started(id);
    ASSERT_EQ(State(id), JOB_STATE_RUNNING);
  }
  void Finish(const std::string& id, Finished::Outcome outcome,
              FailureCause cause = FAILURE_CAUSE_CONFIG) {
    AttachRequest event = Event(id);
    event.mutable_finished()->set_outcome(outcome);
    if (outcome == Finished::OUTCOME_FAILED) {
      event.mutable_finished()->mutable_failure()->set_cause(cause);
      event.mutable_finished()->mutable_failure()->set_message("it cannot go on");
    }
    workers_.begun.erase(id);
    Report(event);
    // Its worker exits, which frees a slot.
    manager_->worker_events()->OnCapacity();
    Settle();
  }
  void Lose(const std::string& id, int signal = SIGKILL) {
    WorkerExit exit;
    exit.job_id = id;
    exit.claim = Get(id).claim();
    exit.exit.known = true;
    exit.exit.signal = signal;
    workers_.begun.erase(id);
    manager_->worker_events()->OnWorkerGone(exit);
    Settle();
    Note();
  }
  // The moves that the jobs' events tell.
  void Note() {
    for (const std::string& id : ids_) {
      const auto events = manager_->view().EventsAfter(id, 0, 1000);
      ASSERT_TRUE(events.ok()) << events.status();
      for (const JobEvent& event : *events) {
        const StateChange& change = event.state_changed();
        if (change.from() != JOB_STATE_UNSPECIFIED) moves_.emplace(change.from(), change.to());
      }
    }
  }

  TempDir temp_;
  ManualClock clock_;
  IdleWorkers workers_;
  Metrics metrics_{"stable", "test"};
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<JobManager> manager_;
  std::set<std::string> ids_;
  std::set<std::pair<JobState, JobState>> moves_;
};

}  // namespace genesis
