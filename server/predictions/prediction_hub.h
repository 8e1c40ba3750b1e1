#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "genesis/training/v1/job.pb.h"
#include "server/ledger/job_view.h"
#include "server/predictions/predictor.h"
#include "server/weights/weights_hub.h"

namespace genesis {

// The predictors of the jobs and checkpoints that callers ask. The first call starts one. If there
// would be too many, the one unused for longest ends, unless it was used in the last seconds:
// callers of more jobs than there may be predictors would else only start and end them.
//
// Owner: the daemon. Threads: any may call Predict; one calls Tend and Stop.
class PredictionHub {
 public:
  struct Options {
    std::string program;         // genesis-worker.
    std::string log_dir;         // Takes the output of each process.
    std::string datasets_root;   // Against which the paths of jobs are resolved.
    std::string checkpoint_dir;  // May contain weights that jobs start from.
    int max_processes = 0;       // 0 turns predictions off.
  };

  // `post` runs a task on the thread that requests weights from workers.
  PredictionHub(Options options, const JobView* view, WeightsHub* weights,
                std::function<void(std::function<void()>)> post)
      : options_(std::move(options)), view_(view), weights_(weights), post_(std::move(post)) {}
  ~PredictionHub() { Stop(); }

  // Passes a call to the predictor of the job, or of the checkpoint if it is not null. The callback
  // gets FAILED_PRECONDITION if predictions are off, RESOURCE_EXHAUSTED if too many processes are
  // in use, and what Predictor says.
  void Predict(const training::v1::Job& job, const training::v1::Checkpoint* checkpoint,
               PredictCall call);
  // Forgets predictors that have ended. Called a few times a second.
  void Tend();
  // Ends all predictors and refuses further calls. Idempotent.
  void Stop();

 private:
  struct Started {
    std::shared_ptr<Predictor> predictor;
    std::string watched;  // The job whose weights it loads; empty for none.
  };

  // Returns the predictor that takes calls under `key`, and starts it if there is none. Moves
  // predictors that are no longer needed to `ended`.
  absl::StatusOr<std::shared_ptr<Predictor>> FindOrStart(const std::string& key,
                                                         const training::v1::Job& job,
                                                         const training::v1::Checkpoint* checkpoint,
                                                         std::vector<Started>& ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Predictor::Options OptionsFor(const training::v1::Job& job,
                                const training::v1::Checkpoint* checkpoint) const;
  absl::Status MakeRoom(std::vector<Started>& ended) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Stops the versions for predictors that have ended, and joins their threads. Without the lock.
  void Release(std::vector<Started> ended);

  const Options options_;
  const JobView* const view_;
  WeightsHub* const weights_;
  const std::function<void(std::function<void()>)> post_;
  absl::Mutex mutex_;
  std::map<std::string, Started> started_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace genesis
