// Methods for files that clients upload for their jobs.
#include <string>

#include "server/api/training_api.h"

namespace genesis {
namespace {

template <typename Request>
UploadStore::File FileOf(const Request& request) {
  return {.sha256 = request.sha256(), .kind = request.kind(), .size_bytes = request.size_bytes()};
}

// Wraps an upload in the response type.
template <typename Response>
absl::StatusOr<Response> AnswerOf(absl::StatusOr<training::v1::Upload> upload) {
  if (!upload.ok()) return upload.status();
  Response response;
  *response.mutable_upload() = *std::move(upload);
  return response;
}

}  // namespace

void TrainingApi::StartUpload(const Caller& caller, const training::v1::StartUploadRequest& request,
                              const Callback<training::v1::StartUploadResponse>& callback) {
  const absl::Status posted =
      parts_.uploads->Post([uploads = parts_.uploads, caller, file = FileOf(request), callback] {
        callback(AnswerOf<training::v1::StartUploadResponse>(uploads->Start(caller, file)));
      });
  if (!posted.ok()) callback(posted);
}

void TrainingApi::WriteUpload(const Caller& caller, const training::v1::WriteUploadRequest& request,
                              const Callback<training::v1::WriteUploadResponse>& callback) {
  const absl::Status posted =
      parts_.uploads->Post([uploads = parts_.uploads, caller, request, callback] {
        callback(AnswerOf<training::v1::WriteUploadResponse>(
            uploads->Write(caller, FileOf(request), request.offset(), request.piece())));
      });
  if (!posted.ok()) callback(posted);
}

}  // namespace genesis
