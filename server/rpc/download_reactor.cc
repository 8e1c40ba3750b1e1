#include "server/rpc/download_reactor.h"

#include <memory>
#include <string>

#include "base/files/crc32c.h"
#include "server/base/guard.h"
#include "server/base/request_check.h"
#include "server/checkpoints/checkpoint_download.h"
#include "server/rpc/status_mapping.h"

namespace genesis {
namespace {

using training::v1::DownloadCheckpointResponse;

constexpr char kMethod[] = "DownloadCheckpoint";
constexpr int64_t kPieceBytes = int64_t{1} << 20;

// The writer of one download. It has at most one file read or client write in progress, so it needs
// no lock. A cancel makes the write fail, after which OnWriteDone ends the call.
class DownloadReactor final : public grpc::ServerWriteReactor<DownloadCheckpointResponse> {
 public:
  DownloadReactor(const ApiCall& call, JobManager* jobs, CheckpointFiles* files,
                  const training::v1::DownloadCheckpointRequest& request)
      : call_(call), jobs_(jobs), files_(files), id_(request.checkpoint_id()) {
    Begin(request);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return End(absl::CancelledError("the reader is gone"));
    files_->Post([this] { SendNext(); });
  }

  void OnDone() override { delete this; }

 private:
  void Begin(const training::v1::DownloadCheckpointRequest& request) {
    const absl::Status begun = call_.admission().ok()
                                   ? GuardedStatus(kMethod, [&] { return TryBegin(request); })
                                   : call_.admission();
    if (!begun.ok()) return End(begun);
    files_->Post([this] { SendNext(); });
  }

  absl::Status TryBegin(const training::v1::DownloadCheckpointRequest& request) {
    if (absl::Status fit = CheckRequest(request); !fit.ok()) return fit;
    const absl::StatusOr<training::v1::Checkpoint> checkpoint =
        jobs_->queries().GetCheckpoint(call_.caller(), id_);
    if (!checkpoint.ok()) return checkpoint.status();
    auto download = CheckpointDownload::Begin(files_, *checkpoint, request.offset());
    if (!download.ok()) return download.status();
    download_ = *std::move(download);
    *response_.mutable_checkpoint() = *checkpoint;
    return absl::OkStatus();
  }

  // Sends the next piece. After StartWrite or End, another thread may have deleted this object.
  void SendNext() {
    bool whole = false;
    const absl::Status read = GuardedStatus(kMethod, [&] { return ReadNext(whole); });
    if (!read.ok() || whole) return End(read);
    StartWrite(&response_);
  }

  absl::Status ReadNext(bool& whole) {
    if (absl::Status admitted = call_.StillAdmitted(); !admitted.ok()) return admitted;
    if (!sent_) {
      if (absl::Status opened = download_->Open(); !opened.ok()) return opened;
    }
    absl::StatusOr<std::string> piece = download_->Read(kPieceBytes);
    if (!piece.ok()) return piece.status();
    if (sent_) response_.clear_checkpoint();
    // Even an empty file is sent as one message, with the checkpoint's metadata.
    whole = piece->empty() && sent_;
    sent_ = true;
    response_.set_content_crc32c(Crc32c(0, piece->data(), piece->size()));
    response_.set_content(*std::move(piece));
    return absl::OkStatus();
  }

  void End(const absl::Status& status) {
    call_.Done(id_, status);
    Finish(ToGrpcStatus(status));
  }

  const ApiCall call_;
  JobManager* const jobs_;
  CheckpointFiles* const files_;
  const std::string id_;
  std::shared_ptr<CheckpointDownload> download_;
  DownloadCheckpointResponse response_;
  bool sent_ = false;
};

}  // namespace

grpc::ServerWriteReactor<DownloadCheckpointResponse>* StartDownload(
    const ApiCall& call, JobManager* jobs, CheckpointFiles* files,
    const training::v1::DownloadCheckpointRequest& request) {
  return new DownloadReactor(call, jobs, files, request);
}

}  // namespace genesis
