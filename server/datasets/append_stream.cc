#include "server/datasets/append_stream.h"

#include <vector>

#include "absl/status/statusor.h"
#include "server/base/request_check.h"

namespace genesis {

AppendStream::~AppendStream() {
  if (target_) store_->Leave(target_->dataset);
  if (begun_) store_->EndStream();
}

absl::Status AppendStream::Begin() {
  absl::Status status = store_->BeginStream();
  begun_ = status.ok();
  return status;
}

absl::Status AppendStream::Append(const training::v1::AppendTrajectoriesRequest& request) {
  if (absl::Status fit = CheckRequest(request); !fit.ok()) return fit;
  if (!target_) {
    absl::StatusOr<AppendTarget> target = ReadTarget(request);
    if (!target.ok()) return target.status();
    if (absl::Status status = store_->Join(target->dataset); !status.ok()) return status;
    target_ = *std::move(target);
    target_->caller = caller_;
  }
  const absl::StatusOr<std::vector<ReplayTransition>> transitions = ReadBatch(request, *target_);
  if (!transitions.ok()) return transitions.status();
  const absl::StatusOr<ReplayStore::Result> result =
      store_->Append(*target_, request.batch_id(), *transitions);
  if (!result.ok()) return result.status();
  if (result->appended.repeated) {
    response_.set_repeated_batches(response_.repeated_batches() + 1);
  } else {
    const int64_t count = result->appended.count;
    response_.set_appended_batches(response_.appended_batches() + 1);
    response_.set_appended_transitions(response_.appended_transitions() + count);
    metrics_->TransitionsAppended(count);
  }
  response_.set_buffer_transitions(result->size);
  return absl::OkStatus();
}

absl::Status AppendStream::End() const {
  if (target_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the stream has no batch; accepted: at least 1 message before its end");
}

}  // namespace genesis
