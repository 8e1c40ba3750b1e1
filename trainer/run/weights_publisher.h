#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/files/memory_file.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/checkpoint/state_copy.h"
#include "trainer/runtime/run_control.h"
#include "trainer/runtime/run_observer.h"
#include "trainer/step/training_session.h"

namespace genesis {

// The publisher of a run's newest weights. While any are wanted, a separate thread copies them
// between two updates into a file in memory: forward and backward of the next step only read the
// weights, and the update waits until they are copied. Then the thread computes checksums and
// passes the file to the observer. It drops a version that equals the previous one, such as that of
// a skipped step, unless it is the first of a request or the last of the attempt.
//
// Owner: the run of rank 0, with a session that outlives it. Threads: the run's. Failure: none; if
// a version cannot be copied or passed on, the error is logged and the version dropped.
class WeightsPublisher {
 public:
  WeightsPublisher(const training::v1::StartJob& start, RunControl& control, RunObserver& observer,
                   TrainingSession& session);
  ~WeightsPublisher();
  WeightsPublisher(const WeightsPublisher&) = delete;
  WeightsPublisher& operator=(const WeightsPublisher&) = delete;

  // Call between two steps. Begins a version of the weights after `step` if one is due and the
  // previous one is complete.
  void AtBoundary(int64_t step);
  // Publishes the last version of the attempt. Returns once the observer has it, or on an error.
  void Finish(int64_t step);

 private:
  using Time = std::chrono::steady_clock::time_point;

  // The kind of a version: its format, and whether it is the average.
  using Kind = std::pair<training::v1::WeightsFormat, bool>;

  // The newest version of a kind that was passed on, and when the next is due.
  struct Newest {
    double interval_seconds = 0;
    int64_t step = -1;
    Time next;          // When the next version is due.
    bool again = true;  // Pass on the next version even if no tensor changed.
    training::v1::PublishedWeights weights;
    std::unique_ptr<MemoryFile> file;  // Null if there is no version.
  };

  // A version that the thread copies and passes on.
  struct Version {
    training::v1::PublishedWeights weights;
    NamedTensors tensors;                // In the order of weights.tensors().
    std::shared_ptr<StateCopy> on_host;  // Set if the tensors come from a GPU.
  };
  struct Task {
    std::vector<Version> versions;
    absl::Notification copied;  // Notified once the run may change the tensors.
    absl::Notification done;
  };

  void ReadRequest();
  void Begin(int64_t step, Time now, bool last);
  Version Describe(Kind kind, int64_t step, bool last);
  void Work();
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return waiting_ || ending_; }
  void Make(Task& task);
  absl::StatusOr<std::unique_ptr<MemoryFile>> Copy(const Version& version);
  absl::Status Publish(Version& version, std::unique_ptr<MemoryFile> file);
  void Log(const absl::Status& status);

  const training::v1::StartJob& start_;
  RunControl& control_;
  RunObserver& observer_;
  TrainingSession& session_;
  int64_t request_ = 0;  // RunControl::weights_request at the last read.
  int64_t number_ = 0;   // Versions begun in this attempt.
  // The wanted kinds. Used by the thread until its task is done, otherwise by the run.
  std::map<Kind, Newest> newest_;
  bool failing_ = false;        // Whether the last version failed. Used like newest_.
  std::shared_ptr<Task> task_;  // The newest task; null before the first.
  absl::Mutex mutex_;
  std::shared_ptr<Task> waiting_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // Runs once there is a task.
};

}  // namespace genesis
