#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/files/memory_socket.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "server/auth/caller.h"
#include "server/base/callback.h"
#include "server/weights/weights_hub.h"
#include "server/workers/worker_process.h"

namespace genesis {

// A call of Predict that waits for its response.
struct PredictCall {
  Caller caller;
  training::v1::PredictRequest request;
  Callback<training::v1::PredictResponse> callback;
};

// A process that predicts with the weights of one job, and the calls that wait for it. Calls that
// arrive during a computation form the next request, so that a call never waits for a later one.
// Newer weights are loaded between two requests. The process ends after kMaxIdle without a call.
//
// Owner: PredictionHub. Threads: any may call; one of its own talks to the process. Failure: if
// the process cannot start, load the first weights or respond in time, it ends and its calls get
// the reason.
class Predictor final : public WeightsWatcher {
 public:
  struct Options {
    std::string program;   // genesis-worker.
    std::string log_path;  // Receives the output of the process.
    std::string job_id;    // For messages.
    // Specification of the job, and the checkpoint: the requested one, or the job's latest.
    training::v1::LoadWeights first;
    // Returns true if the job has a worker, for whose first version the predictor then waits. Null
    // for a checkpoint.
    std::function<bool()> has_worker;
  };

  static constexpr absl::Duration kMaxIdle = absl::Minutes(5);
  static constexpr size_t kMaxWaitingCalls = 1024;
  static constexpr size_t kMaxWaitingBytes = size_t{64} << 20;

  explicit Predictor(Options options);
  // Ends the process. Calls that wait get UNAVAILABLE.
  ~Predictor() override;
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;

  // Takes a call. Returns false if the process has ended; a call over the limit fails at once.
  bool Add(PredictCall& call);
  void OnWeights(std::shared_ptr<const HeldWeights> weights) override;

  // The end of the process; nullopt before it.
  struct End {
    absl::Status status;  // OK if the process was idle.
    absl::Time time;
    bool has_served = false;  // The process had loaded weights.
  };
  std::optional<End> end() const;
  // Returns the time of the last call; InfiniteFuture while one waits, InfinitePast after the end.
  absl::Time last_use() const;

 private:
  // The next request.
  struct Work {
    std::shared_ptr<const HeldWeights> weights;  // Null for none.
    std::vector<PredictCall> calls;
  };

  void Run();
  absl::Status Serve();
  absl::Status StartProcess();
  absl::Status LoadFirst();
  // Returns the first version; null if there is none, because the job lost its worker or is slow.
  std::shared_ptr<const HeldWeights> AwaitFirst();
  // Waits for work. Empty work means that the process must end.
  Work Next();
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || newest_ != nullptr || !waiting_.empty();
  }
  bool HasFirst() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || newest_ != nullptr;
  }
  // Returns the error that the process reports, or that of a broken connection, also in `broken`.
  absl::Status Load(const training::v1::LoadWeights& load, int descriptor, absl::Status& broken);
  // Sends the requests of `calls` and runs their callbacks. Returns an error of the connection.
  absl::Status Compute(std::vector<PredictCall>& calls);
  absl::Status Send(const training::v1::PredictorRequest& request, int descriptor = -1);
  absl::StatusOr<training::v1::PredictorResponse> Receive();
  // Returns the error of a process that has ended by itself.
  absl::Status Gone() const;

  const Options options_;
  std::optional<WorkerProcess> process_;  // Used by the thread only.
  std::optional<MemorySocket> socket_;    // Used by the thread only.
  bool has_served_ = false;               // Used by the thread only.
  mutable absl::Mutex mutex_;
  std::deque<PredictCall> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool computing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time last_use_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const HeldWeights> newest_ ABSL_GUARDED_BY(mutex_);  // Not loaded yet.
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  const WorkerProcess* running_ ABSL_GUARDED_BY(mutex_) = nullptr;  // process_ while it runs.
  std::optional<End> end_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace genesis
