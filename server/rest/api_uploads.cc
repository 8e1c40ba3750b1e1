#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/api/checkpoint_upload.h"
#include "server/base/guard.h"
#include "server/base/request_check.h"
#include "server/datasets/append_stream.h"
#include "server/rest/api_error.h"
#include "server/rest/api_json.h"
#include "server/rest/api_path.h"
#include "server/rest/api_streams.h"
#include "server/rest/request_reader.h"

namespace genesis {
namespace {

using training::v1::AppendTrajectoriesRequest;
using training::v1::ImportCheckpointRequest;
using training::v1::ImportCheckpointResponse;

// Same limit as for a gRPC message.
constexpr size_t kMaxLineBytes = size_t{4} * 1024 * 1024;
// Allows an object with columns of numbers.
constexpr JsonLimits kLineLimits = {.max_depth = 4, .max_values = 500'000};

// The end of an upload call. Completes the call exactly once.
class UploadEnd {
 public:
  UploadEnd(const ApiCall& call, Respond respond) : call_(call), respond_(std::move(respond)) {}

  void Answer(const std::string& subject, const google::protobuf::Message& response) {
    if (!Tell(subject, absl::OkStatus())) return;
    respond_(JsonResponse(response));
  }
  void Fail(const std::string& subject, const absl::Status& status) {
    if (Tell(subject, status)) respond_(ErrorResponse(status));
  }
  absl::Status StillAdmitted() const { return call_.StillAdmitted(); }
  void Cancel(const std::string& subject) {
    Tell(subject, absl::CancelledError("the sender is gone"));
  }

 private:
  bool Tell(const std::string& subject, const absl::Status& status) {
    if (told_.exchange(true)) return false;
    call_.Done(subject, status);
    return true;
  }

  const ApiCall call_;
  const Respond respond_;
  std::atomic<bool> told_{false};
};

class ImportUpload final : public HttpUpload, public std::enable_shared_from_this<ImportUpload> {
 public:
  ImportUpload(const ApiStreamCall& call, JobManager* jobs, CheckpointFiles* files)
      : end_(call.call, call.respond), upload_(jobs, files, call.call.caller().name) {}

  absl::Status Begin(const CheckpointImport::Announced& announced) {
    id_ = announced.id;
    return upload_.Begin(announced);
  }

  void OnPiece(std::string piece, std::function<void()> more) override {
    if (absl::Status admitted = end_.StillAdmitted(); !admitted.ok()) {
      return end_.Fail(id_, admitted);
    }
    upload_.Write(std::move(piece),
                  [self = shared_from_this(), more = std::move(more)](const absl::Status& status) {
                    if (status.ok()) return more();
                    self->end_.Fail(self->id_, status);
                  });
  }

  void OnEnd() override {
    upload_.Finish(
        [self = shared_from_this()](const absl::StatusOr<training::v1::Checkpoint>& checkpoint) {
          if (!checkpoint.ok()) return self->end_.Fail(self->id_, checkpoint.status());
          ImportCheckpointResponse response;
          *response.mutable_checkpoint() = *checkpoint;
          self->end_.Answer(self->id_, response);
        });
  }

  void OnCancel() override { end_.Cancel(id_); }

 private:
  UploadEnd end_;
  CheckpointUpload upload_;
  std::string id_;
};

class AppendUpload final : public HttpUpload, public std::enable_shared_from_this<AppendUpload> {
 public:
  AppendUpload(const ApiStreamCall& call, ReplayStore* store, Metrics* metrics)
      : end_(call.call, call.respond),
        fields_(call.fields),
        is_lines_(HasContentType(call.request, kJsonLines)),
        store_(store),
        stream_(store, metrics, call.call.caller()) {}

  absl::Status Begin() { return stream_.Begin(); }

  void OnPiece(std::string piece, std::function<void()> more) override {
    store_->Post([self = shared_from_this(), piece = std::move(piece), more = std::move(more)] {
      self->rest_ += piece;
      const absl::Status status =
          GuardedStatus("AppendTrajectories", [&] { return self->AppendLines(/*at_end=*/false); });
      if (status.ok()) return more();
      self->end_.Fail(self->stream_.dataset(), status);
    });
  }

  void OnEnd() override {
    store_->Post([self = shared_from_this()] {
      absl::Status status =
          GuardedStatus("AppendTrajectories", [&] { return self->AppendLines(/*at_end=*/true); });
      if (status.ok()) status = self->stream_.End();
      if (!status.ok()) return self->end_.Fail(self->stream_.dataset(), status);
      self->end_.Answer(self->stream_.dataset(), self->stream_.response());
    });
  }

  // Finishes the call although a task of the store may still be running.
  void OnCancel() override { end_.Cancel(fields_.at("dataset")); }

 private:
  // Appends each complete line and, at the end of the body, the rest. A JSON body is one line.
  absl::Status AppendLines(bool at_end) {
    size_t begin = 0;
    for (size_t end; begin < rest_.size(); begin = end + 1) {
      end = is_lines_ ? rest_.find('\n', begin) : std::string::npos;
      if (end == std::string::npos && !at_end) break;
      end = std::min(end, rest_.size());
      ++line_;
      const absl::Status status = AppendLine(rest_.substr(begin, end - begin));
      if (!status.ok()) return AtLine(status);
    }
    rest_.erase(0, begin);
    if (rest_.size() <= kMaxLineBytes) return absl::OkStatus();
    ++line_;
    return AtLine(absl::ResourceExhaustedError(
        absl::StrCat("is over ", kMaxLineBytes, " bytes; send the transitions in more batches")));
  }

  absl::Status AppendLine(const std::string& line) {
    if (absl::Status admitted = end_.StillAdmitted(); !admitted.ok()) return admitted;
    if (line.find_first_not_of(" \t\r") == std::string::npos) return absl::OkStatus();
    AppendTrajectoriesRequest message;
    if (absl::Status status = ReadJson(line, message, kLineLimits); !status.ok()) return status;
    if (absl::Status status = ReadPathFields(fields_, message); !status.ok()) return status;
    return stream_.Append(message);
  }

  absl::Status AtLine(const absl::Status& status) const {
    if (!is_lines_) return status;
    absl::Status told(status.code(), absl::StrCat("line ", line_, ": ", status.message()));
    status.ForEachPayload([&told](absl::string_view type, const absl::Cord& payload) {
      told.SetPayload(type, payload);
    });
    return told;
  }

  UploadEnd end_;
  const std::map<std::string, std::string> fields_;
  const bool is_lines_;  // Otherwise the body is one batch as JSON.
  ReplayStore* const store_;
  AppendStream stream_;
  std::string rest_;  // Incomplete last line.
  int64_t line_ = 0;
};

HttpUploadStart RefuseUpload(const ApiStreamCall& call, const std::string& subject,
                             const absl::Status& status) {
  call.call.Done(subject, status);
  return {.refusal = ErrorResponse(status)};
}

// Builds the first message of the gRPC stream from path, query and Content-Length.
absl::StatusOr<CheckpointImport::Announced> ReadAnnounced(const ApiStreamCall& call) {
  ImportCheckpointRequest message;
  absl::Status status = CheckContentType(call.request, {"application/octet-stream"});
  if (status.ok()) status = ReadQuery(call.request.query, message);
  if (status.ok()) status = ReadPathFields(call.fields, message);
  if (status.ok()) status = CheckRequest(message);
  if (!status.ok()) return status;
  CheckpointImport::Announced announced{
      .id = message.checkpoint_id(), .size_bytes = message.size_bytes(), .crc32c = std::nullopt};
  if (announced.size_bytes == 0) {
    announced.size_bytes = static_cast<int64_t>(call.request.content_length.value_or(0));
  }
  if (message.has_crc32c()) announced.crc32c = message.crc32c();
  return announced;
}

}  // namespace

HttpUploadStart TakeImport(const ApiStreamCall& call, JobManager* jobs, CheckpointFiles* files) {
  const absl::StatusOr<CheckpointImport::Announced> announced = ReadAnnounced(call);
  const std::string& id = call.fields.at("checkpoint_id");
  if (!announced.ok()) return RefuseUpload(call, id, announced.status());
  const auto upload = std::make_shared<ImportUpload>(call, jobs, files);
  const absl::Status status = upload->Begin(*announced);
  if (!status.ok()) return RefuseUpload(call, id, status);
  return {.upload = upload};
}

HttpUploadStart TakeAppend(const ApiStreamCall& call, ReplayStore* datasets, Metrics* metrics) {
  const std::string& dataset = call.fields.at("dataset");
  absl::Status status = CheckContentType(call.request, {"application/json", kJsonLines});
  if (status.ok() && !call.request.query.empty()) {
    status =
        absl::InvalidArgumentError("the query is not empty; accepted: fields in the body only");
  }
  const auto upload = std::make_shared<AppendUpload>(call, datasets, metrics);
  if (status.ok()) status = upload->Begin();
  if (!status.ok()) return RefuseUpload(call, dataset, status);
  return {.upload = upload};
}

}  // namespace genesis
