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

// The predictors of jobs and checkpoints. The first call for one starts it. If there would be too
// many, the one that has been unused for longest ends, unless it was used in the last seconds:
// otherwise calls for more jobs than max_processes would only start and end predictors.
//
// Owner: the daemon. Threads: any may call Predict; one calls Tend and Stop.
class PredictionHub {
 public:
  struct Options {
    std::string program;         // genesis-worker.
    std::string log_dir;         // Folder for the output of each process.
    std::string datasets_root;   // Root of the paths of jobs.
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
  // in use, and otherwise the result of the Predictor.
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
  // Posts the removal of ended predictors from `weights_` and drops them. Call without the lock.
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
