#include "server/rpc/import_reactor.h"

#include <memory>
#include <optional>
#include <string>

#include "server/api/checkpoint_upload.h"
#include "server/base/guard.h"
#include "server/base/request_check.h"
#include "server/rpc/status_mapping.h"

namespace genesis {
namespace {

using training::v1::ImportCheckpointRequest;
using training::v1::ImportCheckpointResponse;

// The reader of one import. At most one read or import step is in progress, so it needs no lock. A
// cancel makes the current or the next read return ok = false.
class ImportReactor final : public grpc::ServerReadReactor<ImportCheckpointRequest> {
 public:
  ImportReactor(const ApiCall& call, grpc::CallbackServerContext* context, JobManager* jobs,
                CheckpointFiles* files, ImportCheckpointResponse* response)
      : call_(call),
        context_(context),
        upload_(jobs, files, call.caller().name),
        response_(response) {
    if (call_.admission().ok()) {
      StartRead(&request_);
    } else {
      End(call_.admission());
    }
  }

  void OnReadDone(bool ok) override {
    if (ok && !upload_.begun()) {
      const absl::Status begun =
          GuardedStatus("ImportCheckpoint", [this] { return BeginUpload(); });
      if (!begun.ok()) return End(begun);
    }
    if (absl::Status admitted = call_.StillAdmitted(); !admitted.ok()) return End(admitted);
    if (ok) {
      upload_.Write(std::move(*request_.mutable_content()), [this](const absl::Status& status) {
        if (!status.ok()) return End(status);
        StartRead(&request_);
      });
    } else if (context_->IsCancelled()) {
      End(absl::CancelledError("the import was cancelled; nothing of it is kept"));
    } else if (!upload_.begun()) {
      End(absl::InvalidArgumentError(
          "the stream has no message; accepted: at least one, with checkpoint_id and size_bytes"));
    } else {
      upload_.Finish([this](const absl::StatusOr<training::v1::Checkpoint>& checkpoint) {
        if (checkpoint.ok()) *response_->mutable_checkpoint() = *checkpoint;
        End(checkpoint.status());
      });
    }
  }

  void OnDone() override { delete this; }

 private:
  absl::Status BeginUpload() {
    if (absl::Status fit = CheckRequest(request_); !fit.ok()) return fit;
    id_ = request_.checkpoint_id();
    CheckpointImport::Announced announced{
        .id = id_, .size_bytes = request_.size_bytes(), .crc32c = {}};
    if (request_.has_crc32c()) announced.crc32c = request_.crc32c();
    return upload_.Begin(announced);
  }

  // Ends the call, after which another thread may have deleted this object.
  void End(const absl::Status& status) {
    call_.Done(id_, status);
    grpc::ServerReadReactor<ImportCheckpointRequest>::Finish(ToGrpcStatus(status));
  }

  const ApiCall call_;
  grpc::CallbackServerContext* const context_;
  CheckpointUpload upload_;
  ImportCheckpointResponse* const response_;
  ImportCheckpointRequest request_;
  std::string id_;
};

}  // namespace

grpc::ServerReadReactor<ImportCheckpointRequest>* StartImport(const ApiCall& call,
                                                              grpc::CallbackServerContext* context,
                                                              JobManager* jobs,
                                                              CheckpointFiles* files,
                                                              ImportCheckpointResponse* response) {
  return new ImportReactor(call, context, jobs, files, response);
}

}  // namespace genesis
