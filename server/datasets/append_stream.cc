#include "server/datasets/append_stream.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "server/base/request_check.h"

namespace genesis {

using training::v1::AppendTrajectoriesRequest;

AppendStream::~AppendStream() {
  if (target_) store_->Leave(target_->dataset);
  if (begun_) store_->EndStream();
}

absl::Status AppendStream::Begin() {
  absl::Status status = store_->BeginStream();
  begun_ = status.ok();
  return status;
}

absl::Status AppendStream::ReadFirst(const AppendTrajectoriesRequest& first) {
  absl::StatusOr<AppendTarget> target = ReadTarget(first);
  if (!target.ok()) return target.status();
  target->caller = caller_;
  if (target->layout.columns().empty()) {
    absl::StatusOr<ReplayLayout> layout = store_->LayoutOf(*target);
    if (!layout.ok()) return layout.status();
    target->layout = *std::move(layout);
  }
  if (absl::Status status = store_->Join(target->dataset); !status.ok()) return status;
  target_ = *std::move(target);
  return absl::OkStatus();
}

// Adds the rows to the batch of the message.
absl::Status AppendStream::Add(const AppendTrajectoriesRequest& request, const ReplayRows& rows) {
  if (batch_ && batch_->id() != request.batch_id()) {
    return absl::InvalidArgumentError(absl::StrCat("batch_id is ", QuoteValue(request.batch_id()),
                                                   "; accepted: ", QuoteValue(batch_->id()),
                                                   ", which the message before continues"));
  }
  if (!batch_) batch_.emplace(request.batch_id(), store_->root());
  absl::Status status = batch_->Add(target_->layout, rows);
  if (!status.ok()) return InBatch(request.batch_id(), status);
  return request.more() ? store_->CheckRoom(*target_, *batch_) : absl::OkStatus();
}

absl::Status AppendStream::Append(const AppendTrajectoriesRequest& request) {
  if (absl::Status fit = CheckRequest(request); !fit.ok()) return fit;
  if (!target_) {
    if (absl::Status status = ReadFirst(request); !status.ok()) return status;
  }
  const absl::StatusOr<ReplayRows> rows = ReadRows(request, *target_);
  if (!rows.ok()) return rows.status();
  if (absl::Status status = Add(request, *rows); !status.ok()) return status;
  if (request.more()) return absl::OkStatus();
  ReplayBatch batch = *std::move(batch_);
  batch_.reset();
  const absl::StatusOr<ReplayStore::Result> result = store_->Append(*target_, std::move(batch));
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
  if (batch_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the stream ends inside batch ", QuoteValue(batch_->id()), ", after ", batch_->count(),
        " transitions; accepted: a last message of the batch, without more; send the whole batch "
        "again"));
  }
  if (target_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the stream has no batch; accepted: at least 1 message before its end");
}

}  // namespace genesis
