// A fixture for the job rules, with a clock and workers controlled by the test: nothing waits.
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
#include "server/jobs/job_manager.h"
#include "server/ledger/job_state.h"
#include "tests/server/idle_workers.h"
#include "tests/server/jobs_for_test.h"
#include "tests/temp_dir.h"

namespace genesis {

using namespace training::v1;  // NOLINT: state names.

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
    options.launchers = launchers_;
    manager_ = std::make_unique<JobManager>(options, store_.get(), &workers_, &metrics_, clock_);
    ASSERT_TRUE(manager_->Recover().ok());
    manager_->Start();
    Settle();
  }

  // Waits until the writer has applied all changes and their consequences.
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

  static TrainRequest Request(const std::string& id) {
    TrainRequest request;
    request.set_job_id(id);
    JobSpec& spec = *request.mutable_spec();
    spec.mutable_model()->mutable_world_model();
    spec.mutable_dataset()->mutable_synthetic()->mutable_trajectories()->set_episodes(4);
    spec.mutable_training()->set_epochs(1);
    spec.set_max_restarts(1);
    return request;
  }
  absl::Status Train(const std::string& id, int priority = 0, double deadline = 0, int ranks = 0) {
    TrainRequest request = Request(id);
    JobSpec& spec = *request.mutable_spec();
    spec.mutable_scheduling()->set_priority(priority);
    spec.mutable_scheduling()->set_deadline_seconds(deadline);
    if (ranks > 0) spec.mutable_distributed()->set_ranks(ranks);
    return TrainAs(request);
  }
  absl::Status TrainAs(const TrainRequest& request) {
    ids_.insert(request.job_id());
    return Await<Job>(
               [&](const auto& callback) { manager_->admission().Train(request, {}, callback); })
        .status();
  }
  absl::Status Pause(const std::string& id) {
    return Await<Job>([&](const auto& callback) { manager_->requests().Pause({}, id, callback); })
        .status();
  }
  absl::Status Resume(const std::string& id) {
    return Await<Job>([&](const auto& callback) { manager_->requests().Resume({}, id, callback); })
        .status();
  }
  absl::Status Cancel(const std::string& id) {
    return Await<Job>([&](const auto& callback) {
             manager_->requests().Cancel({}, id, Cancellation(), callback);
           })
        .status();
  }

  Job Get(const std::string& id) { return *manager_->queries().Get({}, id); }
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
    // The worker exits, which frees a slot.
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
  // Records the moves that the jobs' events contain.
  void Note() {
    for (const std::string& id : ids_) {
      const auto events = manager_->view().EventsAfter({.job_id = id}, 0, 10000, false);
      ASSERT_TRUE(events.ok()) << events.status();
      for (const JobEvent& event : events->events) {
        const StateChange& change = event.state_changed();
        if (change.from() != JOB_STATE_UNSPECIFIED) moves_.emplace(change.from(), change.to());
      }
    }
  }

  TempDir temp_;
  ManualClock clock_;
  IdleWorkers workers_;
  Launchers* launchers_ = nullptr;
  Metrics metrics_{"stable", "test"};
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<JobManager> manager_;
  std::set<std::string> ids_;
  std::set<std::pair<JobState, JobState>> moves_;
};

}  // namespace genesis
