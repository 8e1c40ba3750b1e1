#include <atomic>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/base/guard.h"
#include "server/base/request_check.h"
#include "server/checkpoints/checkpoint_download.h"
#include "server/http/http_range.h"
#include "server/rest/api_error.h"
#include "server/rest/api_json.h"
#include "server/rest/api_streams.h"
#include "server/rest/request_reader.h"

namespace genesis {
namespace {

using training::v1::Checkpoint;
using training::v1::DownloadCheckpointRequest;

constexpr int64_t kPieceBytes = 64 * 1024;

// The body of a download: the file from the download's current position to its end.
class DownloadBody final : public HttpBody, public std::enable_shared_from_this<DownloadBody> {
 public:
  DownloadBody(const ApiCall& call, CheckpointFiles* files,
               std::shared_ptr<CheckpointDownload> download)
      : call_(call), files_(files), download_(std::move(download)) {}

  void Next(Deliver deliver) override {
    files_->Post([self = shared_from_this(), deliver = std::move(deliver)] {
      absl::StatusOr<std::string> piece;
      const absl::Status read = Guarded("DownloadCheckpoint", [&] {
        const absl::Status admitted = self->call_.StillAdmitted();
        piece = admitted.ok() ? self->download_->Read(kPieceBytes)
                              : absl::StatusOr<std::string>(admitted);
      });
      if (!read.ok()) piece = read;
      if (!piece.ok() || piece->empty()) self->End(piece.status());
      deliver(std::move(piece));
    });
  }

  void Cancel() override { End(absl::CancelledError("the reader is gone")); }

 private:
  void End(const absl::Status& status) {
    if (!ended_.exchange(true)) call_.Done(download_->checkpoint().id(), status);
  }

  const ApiCall call_;
  CheckpointFiles* const files_;
  const std::shared_ptr<CheckpointDownload> download_;
  std::atomic<bool> ended_{false};
};

std::string TagOf(const Checkpoint& checkpoint) {
  return absl::StrFormat("\"crc32c-%08x\"", checkpoint.crc32c());
}

// The range to send and its HTTP status.
struct Extent {
  ByteRange range;
  int status = 200;
};

absl::StatusOr<Extent> ExtentOf(const HttpRequest& request,
                                const DownloadCheckpointRequest& message,
                                const Checkpoint& checkpoint) {
  const int64_t size = checkpoint.size_bytes();
  // If-Range: the client already has a part of the file with this tag.
  const std::string condition = request.Header("if-range");
  const bool ranged =
      !request.Header("range").empty() && (condition.empty() || condition == TagOf(checkpoint));
  if (!ranged) return Extent{.range = {message.offset(), size}};
  if (message.offset() != 0) {
    return absl::InvalidArgumentError(
        "the query has an offset and the request a Range; accepted: one of the two");
  }
  const RangeAnswer callback = ReadRange(request.Header("range"), size);
  if (!callback.range) {
    return absl::OutOfRangeError(absl::StrCat("Range is ", request.Header("range"),
                                              "; accepted: bytes of a file that has ", size));
  }
  return Extent{.range = *callback.range, .status = callback.partial ? 206 : 200};
}

HttpResponse HeadOf(const Checkpoint& checkpoint, const Extent& extent) {
  HttpResponse response{.status = extent.status, .content_type = "application/octet-stream"};
  response.headers = {
      {"Accept-Ranges", "bytes"},
      {"Content-Disposition", absl::StrCat("attachment; filename=\"", checkpoint.id(), ".pt\"")}};
  // Checkpoints of earlier releases have no stored checksum.
  if (checkpoint.crc32c() != 0) response.headers.emplace_back("ETag", TagOf(checkpoint));
  if (extent.status == 206) {
    response.headers.emplace_back(
        "Content-Range", absl::StrFormat("bytes %d-%d/%d", extent.range.begin, extent.range.end - 1,
                                         checkpoint.size_bytes()));
  }
  response.stream_length = extent.range.end - extent.range.begin;
  return response;
}

}  // namespace

void ServeDownload(const ApiStreamCall& call, JobManager* jobs, CheckpointFiles* files) {
  DownloadCheckpointRequest message;
  absl::Status status = ReadQuery(call.request.query, message);
  if (status.ok()) status = ReadPathFields(call.fields, message);
  if (status.ok()) status = CheckRequest(message);
  const auto refuse = [done = call.call, respond = call.respond,
                       id = message.checkpoint_id()](const absl::Status& refusal) {
    done.Done(id, refusal);
    respond(absl::IsOutOfRange(refusal) ? ErrorResponse(refusal, 416) : ErrorResponse(refusal));
  };
  if (!status.ok()) return refuse(status);
  const absl::StatusOr<Checkpoint> checkpoint =
      jobs->queries().GetCheckpoint(call.call.caller(), message.checkpoint_id());
  if (!checkpoint.ok()) return refuse(checkpoint.status());
  const absl::StatusOr<Extent> extent = ExtentOf(call.request, message, *checkpoint);
  if (!extent.ok()) return refuse(extent.status());
  auto download = CheckpointDownload::Begin(files, *checkpoint, extent->range.begin);
  if (!download.ok()) return refuse(download.status());
  (*download)->StopAt(extent->range.end);
  const bool head = call.request.method == "HEAD";
  files->Post([=, done = call.call, respond = call.respond, opened = *std::move(download),
               callback = HeadOf(*checkpoint, *extent)]() mutable {
    const absl::Status open = GuardedStatus("DownloadCheckpoint", [&] { return opened->Open(); });
    if (!open.ok()) return refuse(open);
    if (head) {
      done.Done(opened->checkpoint().id(), absl::OkStatus());
    } else {
      callback.stream = std::make_shared<DownloadBody>(done, files, opened);
    }
    respond(std::move(callback));
  });
}

}  // namespace genesis
