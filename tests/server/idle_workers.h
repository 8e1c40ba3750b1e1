// A clock and workers that are controlled by a test of the job rules.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "config/job/job_spec.h"
#include "server/workers/workers.h"

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

// Workers that do nothing by themselves. The test reads the members while the writer is idle.
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
  void OpenReservation(const std::string& name) override { reservations.insert(name); }
  void CloseReservation(const std::string& name) override { reservations.erase(name); }
  std::vector<WorkerLease> ReserveSubmitted(const std::string& name, int ranks) override {
    if (!reservations.contains(name) || WarmOf(name) < ranks) return {};
    std::vector<WorkerLease> leases;
    for (int i = 0; i < ranks; ++i) {
      WorkerLease& lease = leases.emplace_back();
      lease.worker.set_worker_id("c" + std::to_string(++last_));
      lease.worker.set_device("n1/cpu");
      lease.worker.set_reservation(name);
      lease.device.set_name("n1/cpu");
      lease.host = "n1";
      lease.peer = "127.0.0.1";
    }
    return leases;
  }
  int WarmOf(const std::string& name) const override {
    const auto found = submitted.find(name);
    return found == submitted.end() ? 0 : found->second;
  }
  void Begin(const std::string&, const StartJob& start) override {
    begun[start.job_id()] = start;
    held[start.job_id()] = std::max(start.rank().size(), 1);
    if (LauncherOf(start.spec()) != LAUNCHER_KIND_LOCAL) held[start.job_id()] = 0;
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
  std::set<std::string> reservations;    // Open reservations.
  std::map<std::string, int> submitted;  // Warm workers of a cluster, by reservation.
  std::set<std::string> lost;            // Workers that did not survive the daemon.
  std::map<int, std::string> vetoes;  // Reasons against reduced precision, by position in a gang.
  std::string retired;                // The job that Retire returns.
  std::map<std::string, int> held;    // Number of workers of each job, even if detached.
  std::vector<std::pair<std::string, std::string>> abandoned;  // Job and reason.
  std::map<std::string, StartJob> begun;                       // Keyed by job ID.
  std::vector<std::pair<std::string, AttachResponse>> sent;
  std::map<std::string, absl::Duration> expected_exits;

 private:
  int last_ = 0;
};

}  // namespace genesis
