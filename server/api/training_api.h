#pragma once

#include <functional>

#include "genesis/training/v1/training_service.pb.h"
#include "server/auth/caller.h"
#include "server/auth/dataset_owners.h"
#include "server/base/callback.h"
#include "server/checkpoints/checkpoint_files.h"
#include "server/datasets/replay_store.h"
#include "server/datasets/upload_store.h"
#include "server/jobs/job_manager.h"
#include "server/store/backup.h"
#include "server/sweeps/sweep_controller.h"
#include "server/workers/worker_pool.h"

// All unary methods of TrainingService. TrainingApi and each transport declare the methods listed
// here.
// clang-format off: one line each.
#define GENESIS_UNARY_METHODS(METHOD) \
  METHOD(Train)                       \
  METHOD(GetJob)                      \
  METHOD(ListJobs)                    \
  METHOD(ListEvents)                  \
  METHOD(PauseJob)                    \
  METHOD(ResumeJob)                   \
  METHOD(CancelJob)                   \
  METHOD(UpdateJob)                   \
  METHOD(DeleteJob)                   \
  METHOD(ReportMetrics)               \
  METHOD(LeaseEvaluation)             \
  METHOD(CreateSweep)                 \
  METHOD(GetSweep)                    \
  METHOD(ListSweeps)                  \
  METHOD(CancelSweep)                 \
  METHOD(Checkpoint)                  \
  METHOD(ListCheckpoints)             \
  METHOD(GetCheckpoint)               \
  METHOD(Predict)                     \
  METHOD(DeleteCheckpoint)            \
  METHOD(ListArtifacts)               \
  METHOD(ReadArtifact)                \
  METHOD(ListDatasets)                \
  METHOD(StartUpload)                 \
  METHOD(WriteUpload)                 \
  METHOD(DeleteDataset)               \
  METHOD(Stats)                       \
  METHOD(GetServerInfo)               \
  METHOD(GetPrecisionPolicy)          \
  METHOD(SetPrecisionPolicy)          \
  METHOD(ListWorkers)                 \
  METHOD(DrainWorker)                 \
  METHOD(GetConfig)                   \
  METHOD(ReloadConfig)                \
  METHOD(BackupStore)                 \
  METHOD(GetHistory)                  \
  METHOD(GetCurves)                   \
  METHOD(ListWebhookDeliveries)       \
  METHOD(CreateLoginCode)
// clang-format on

namespace genesis {

class EventWatches;
class HistoryStore;
class PredictionHub;
class RuntimeConfig;
class TokenAuthenticator;

// The unary methods of TrainingService, for every transport: gRPC (rpc/) and HTTP with JSON (rest/)
// both call it. Stateless: each method validates, calls the core, and runs its callback once. A
// method may read the store but waits for no change. ApiGate has already admitted the caller.
class TrainingApi {
 public:
  struct Parts {
    JobManager* jobs;
    SweepController* sweeps;
    WorkerPool* pool;
    CheckpointFiles* files;
    ReplayStore* datasets;
    UploadStore* uploads;
    DatasetOwners* owners;
    StoreBackup* backup;
    HistoryStore* history;
    RuntimeConfig* config;
    EventWatches* watches;
    PredictionHub* predictions;
    TokenAuthenticator* authenticator;
    std::function<training::v1::GetServerInfoResponse()> info;
  };
  explicit TrainingApi(Parts parts) : parts_(std::move(parts)) {}

#define GENESIS_METHOD(Name)                                                  \
  void Name(const Caller& caller, const training::v1::Name##Request& request, \
            const Callback<training::v1::Name##Response>& callback);
  GENESIS_UNARY_METHODS(GENESIS_METHOD)
#undef GENESIS_METHOD

 private:
  const Parts parts_;
};

}  // namespace genesis
