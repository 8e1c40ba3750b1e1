#include "server/rpc/download_reactor.h"

#include <memory>
#include <string>

#include "replay/crc32c.h"
#include "server/files/checkpoint_download.h"
#include "server/rpc/status_mapping.h"

namespace genesis {
namespace {

using training::v1::DownloadCheckpointResponse;

constexpr int64_t kPieceBytes = int64_t{1} << 20;

// Either a read of the file or a write to the client is under way, never both, so nothing here
// needs a lock. A cancel makes the write fail, and there the call is finished.
class DownloadReactor final : public grpc::ServerWriteReactor<DownloadCheckpointResponse> {
 public:
  DownloadReactor(const ApiCall& call, JobManager* jobs, CheckpointFiles* files,
                  const training::v1::DownloadCheckpointRequest& request)
      : call_(call), jobs_(jobs), files_(files), id_(request.checkpoint_id()) {
    Begin(request.offset());
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return End(absl::CancelledError("the reader is gone"));
    files_->Post([this] { SendNext(); });
  }

  void OnDone() override { delete this; }

 private:
  void Begin(int64_t offset) {
    if (!call_.admission().ok()) return End(call_.admission());
    const absl::StatusOr<training::v1::Checkpoint> checkpoint = jobs_->GetCheckpoint(id_);
    if (!checkpoint.ok()) return End(checkpoint.status());
    auto download = CheckpointDownload::Begin(files_, *checkpoint, offset);
    if (!download.ok()) return End(download.status());
    download_ = *std::move(download);
    *response_.mutable_checkpoint() = *checkpoint;
    files_->Post([this] {
      if (absl::Status status = download_->Open(); !status.ok()) return End(status);
      SendNext();
    });
  }

  // After StartWrite or End another thread may have deleted this.
  void SendNext() {
    absl::StatusOr<std::string> piece = download_->Read(kPieceBytes);
    if (!piece.ok()) return End(piece.status());
    if (sent_) response_.clear_checkpoint();
    // An empty rest still tells what it is the rest of.
    if (piece->empty() && sent_) return End(absl::OkStatus());
    sent_ = true;
    response_.set_content_crc32c(Crc32c(0, piece->data(), piece->size()));
    response_.set_content(*std::move(piece));
    StartWrite(&response_);
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
