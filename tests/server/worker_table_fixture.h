#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/version.h"
#include "server/workers/worker_table.h"

namespace genesis {

class TableClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::FromUnixSeconds(1'900'000'000) + passed_; }
  absl::Time Steady() const override { return absl::FromUnixSeconds(5'000) + passed_; }
  absl::Time Running() const override { return Steady() - stopped_; }
  void Advance(absl::Duration duration) { passed_ += duration; }
  // Advances the time while this process is stopped.
  void Stop(absl::Duration duration) {
    passed_ += duration;
    stopped_ += duration;
  }

 private:
  absl::Duration passed_;
  absl::Duration stopped_;
};

// A link that the table returns but must not call.
class UnusedLink final : public WorkerLink {
 public:
  void Send(const training::v1::AttachResponse&) override { ADD_FAILURE(); }
  void Close() override { ADD_FAILURE(); }
};

inline WorkerTable::Options TableOptions() {
  WorkerTable::Options options;
  options.workers.devices = {"cuda:0"};
  options.workers.slots = 2;
  options.workers.quarantine_failures = 2;
  options.workers.quarantine_seconds = 420;
  options.workers.start_timeout_seconds = 40;
  options.workers.reattach_timeout_seconds = 26;
  options.hang = {.setup_seconds = 180,
                  .step_seconds = 60,
                  .evaluation_seconds = 240,
                  .checkpoint_seconds = 300};
  options.remote.emplace();
  options.remote->set_path("/shared/checkpoints");
  options.remote->set_id("folder-1");
  return options;
}

// A fixture with a table without processes and streams. Helpers simulate the daemon, a worker or
// time, and record the resulting actions and moves.
class WorkerTableTest : public testing::Test {
 protected:
  void Open(WorkerTable::Options options) {
    phases_.clear();
    table_ = std::make_unique<WorkerTable>(std::move(options), "w9-", clock_);
  }

  // Stores the actions for the test, and records the moves that were made.
  void Note(WorkerActions actions = {}) {
    done_ = std::move(actions);
    WorkerCounts shown;
    for (const training::v1::WorkerInfo& info : table_->workers()) {
      const WorkerPhase now = *table_->PhaseOf(info.id());
      const auto [known, entered] = phases_.emplace(info.id(), now);
      if (!entered && known->second != now) moves_.emplace(known->second, now);
      known->second = now;
      if (!info.reservation().empty()) continue;  // These workers take no slots.
      shown.busy += info.state() == training::v1::WORKER_STATE_BUSY ? 1 : 0;
      shown.warm += info.state() == training::v1::WORKER_STATE_WARM ? 1 : 0;
      shown.starting += info.state() == training::v1::WORKER_STATE_STARTING ? 1 : 0;
    }
    EXPECT_EQ(table_->counts().busy, shown.busy);
    EXPECT_EQ(table_->counts().warm, shown.warm);
    EXPECT_EQ(table_->counts().starting, shown.starting);
  }
  // Returns the actions of type T of the last call.
  template <typename T>
  std::vector<T> Done() const {
    std::vector<T> found;
    for (const WorkerAction& action : done_) {
      if (const T* each = std::get_if<T>(&action)) found.push_back(*each);
    }
    return found;
  }
  // Returns the signals, such as "w9-1:15" for SIGTERM to w9-1.
  std::vector<std::string> Signals() const {
    std::vector<std::string> signals;
    for (const SignalProcess& each : Done<SignalProcess>()) {
      signals.push_back(each.worker_id + ":" + std::to_string(each.signal));
    }
    return signals;
  }
  TellGone Gone() const {
    const std::vector<TellGone> gone = Done<TellGone>();
    EXPECT_EQ(gone.size(), 1U);
    return gone.empty() ? TellGone() : gone.front();
  }

  std::string Starting() {
    const std::optional<SpawnWorker> spawn = table_->NextSpawn();
    if (!spawn.has_value()) return "none was missing";
    ++pid_;
    Note(table_->OnSpawned(spawn->worker_id, pid_, /*start_ticks=*/700 + pid_));
    return spawn->worker_id;
  }
  absl::Status Attach(const std::string& id, const std::string& job = "", int64_t claim = 0,
                      const std::string& host = "", const std::string& reservation = "") {
    training::v1::AttachRequest request;
    training::v1::Hello& hello = *request.mutable_hello();
    hello.set_worker_id(id);
    hello.set_pid(31);
    hello.set_version(kVersion);
    hello.mutable_device()->set_name("cuda:0");
    hello.mutable_device()->set_cuda(true);
    hello.mutable_device()->set_memory_bytes(8000);
    if (!host.empty()) {
      hello.mutable_remote()->set_name(host);
      *hello.mutable_remote()->mutable_checkpoints() = *TableOptions().remote;
      hello.mutable_remote()->set_reservation(reservation);
    }
    request.set_job_id(job);
    request.set_claim(claim);
    WorkerActions actions;
    auto link = std::make_shared<UnusedLink>();
    const absl::Status attached = table_->Attach(request, !host.empty(), link, actions);
    if (attached.ok()) links_[id] = link;
    Note(std::move(actions));
    return attached;
  }
  void Detach(const std::string& id) {
    table_->OnDetached(id, links_[id].get());
    Note();
  }
  std::string Warm() {
    const std::string id = Starting();
    EXPECT_TRUE(Attach(id).ok());
    return id;
  }
  std::string Reserved(int64_t memory_bytes = 100) {
    const std::vector<WorkerLease> leases = table_->ReserveGang(1, memory_bytes);
    Note();
    return leases.empty() ? "none was free" : leases[0].worker.worker_id();
  }
  void Begin(const std::string& id, const std::string& job, int64_t claim = 1) {
    training::v1::StartJob start;
    start.set_job_id(job);
    start.set_claim(claim);
    Note(table_->Begin(id, start));
  }
  std::string Busy(const std::string& job) {
    Warm();
    const std::string id = Reserved();
    Begin(id, job);
    return id;
  }
  void Release(const std::string& id) { Note(table_->Release(id)); }
  bool Report(const std::string& id, training::v1::AttachRequest message, const std::string& job,
              int64_t claim = 1) {
    message.set_job_id(job);
    message.set_claim(claim);
    WorkerActions actions;
    const std::optional<int> rank = table_->OnMessage(id, message, actions);
    Note(std::move(actions));
    return rank.has_value();
  }
  bool Finish(const std::string& id, const std::string& job, bool by_device = false) {
    training::v1::AttachRequest message;
    training::v1::Finished& finished = *message.mutable_finished();
    finished.set_outcome(by_device ? training::v1::Finished::OUTCOME_FAILED
                                   : training::v1::Finished::OUTCOME_COMPLETED);
    if (by_device) {
      finished.mutable_failure()->set_cause(training::v1::FAILURE_CAUSE_DEVICE);
      finished.mutable_failure()->set_message("the bus fell silent");
    }
    return Report(id, message, job);
  }
  void Adopt(const std::string& id, const std::string& job) {
    training::v1::WorkerProcessRef ref;
    ref.set_worker_id(id);
    ref.set_pid(12);
    ref.set_start_ticks(34);
    ref.set_device("cuda:0");
    table_->Adopt(ref, job, /*rank=*/0, /*claim=*/1, /*acknowledged=*/6, /*memory_bytes=*/100);
    Note();
  }
  absl::StatusOr<std::string> Retire(const std::string& id) {
    WorkerActions actions;
    absl::StatusOr<std::string> job = table_->Retire(id, actions);
    Note(std::move(actions));
    return job;
  }
  void Exit(const std::string& id, int exit_code = 3) {
    table_->OnExit(id, ProcessExit{.exit_code = exit_code});
    Note();
  }
  void Pass(absl::Duration duration) {
    clock_.Advance(duration);
    Note(table_->Tend());
  }
  WorkerPhase Phase(const std::string& id) { return *table_->PhaseOf(id); }
  bool IsDraining(const std::string& id) {
    for (const training::v1::WorkerInfo& info : table_->workers()) {
      if (info.id() == id) return info.draining();
    }
    return false;
  }

  TableClock clock_;
  std::unique_ptr<WorkerTable> table_ =
      std::make_unique<WorkerTable>(TableOptions(), "w9-", clock_);
  std::map<std::string, std::shared_ptr<UnusedLink>> links_;
  std::map<std::string, WorkerPhase> phases_;
  std::set<std::pair<WorkerPhase, WorkerPhase>> moves_;
  WorkerActions done_;
  int pid_ = 400;
};

}  // namespace genesis
