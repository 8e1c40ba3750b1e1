#include "server/api/weights_feed.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/files/crc32c.h"
#include "base/files/safetensors_head.h"
#include "base/steady_time.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "config/job/faults.h"
#include "server/ledger/job_state.h"

namespace genesis {
namespace {

using training::v1::Job;
using training::v1::PublishedTensor;
using training::v1::WeightsVersion;

constexpr double kMaxIntervalSeconds = 86400;
constexpr size_t kWeightsPieceBytes = size_t{1} << 20;

WeightsKind KindOf(const training::v1::WatchWeightsRequest& request) {
  const bool bf16 = request.format() == training::v1::WEIGHTS_FORMAT_BF16;
  return {bf16 ? training::v1::WEIGHTS_FORMAT_BF16 : training::v1::WEIGHTS_FORMAT_FP32,
          request.average()};
}

}  // namespace

absl::Status WeightsFeed::CheckFields(const Job& job) const {
  Faults faults;
  const double interval = interval_seconds();
  if (!std::isfinite(interval) || interval < 0 || interval > kMaxIntervalSeconds) {
    faults.Add("interval_seconds", FormatNumber(interval),
               absl::StrCat("0 to ", kMaxIntervalSeconds));
  }
  if (request_.since() < 0) faults.Add("since", absl::StrCat(request_.since()), "0 or more");
  if (request_.average() && job.spec().training().ema_decay() <= 0) {
    faults.Add("average", "true", "false, because the job has no training.ema_decay");
  }
  const std::vector<FieldError> errors = faults.Take();
  if (!errors.empty()) return ToStatus(errors);
  if (request_.since() / kVersionsOfAttempt <= job.claim()) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat(
      "since is ", request_.since(), ", of attempt ", request_.since() / kVersionsOfAttempt,
      "; job ", QuoteValue(job_id_), " has made ", job.claim(),
      "; accepted: the number of a version of this job, or 0"));
}

absl::Status WeightsFeed::HasEnded(const Job& job) const {
  const std::string& checkpoint = job.latest_checkpoint().id();
  return absl::FailedPreconditionError(absl::StrCat(
      "job ", QuoteValue(job_id_), " has ended as ", ShortEnumName(job.state()),
      " and publishes no more weights; ",
      checkpoint.empty() ? "it has no checkpoint"
                         : absl::StrCat("load its checkpoint ", checkpoint,
                                        " (DownloadCheckpoint, `genesisctl checkpoint-download`, "
                                        "in Python job.checkpoint().model_state_dict)")));
}

absl::Status WeightsFeed::Watch() {
  const absl::StatusOr<Job> job = jobs_->queries().Get(call_.caller(), job_id_);
  if (!job.ok()) return job.status();
  if (absl::Status fits = CheckFields(*job); !fits.ok()) return fits;
  // A reader that reconnects after it got a version gets the last versions of an ended job.
  if (IsFinal(job->state()) && request_.since() == 0) return HasEnded(*job);
  const absl::Status opened =
      call_.gate().watches().Open(shared_from_this(), call_.caller().name, call_.protocol());
  if (!opened.ok()) return opened;
  {
    absl::MutexLock lock(&mutex_);
    open_ = true;
  }
  weights_->Add(job_id_, KindOf(request_), interval_seconds(), shared_from_this());
  RequestWeights();
  return jobs_->queries().Watch(call_.caller(), job_id_, shared_from_this());
}

// Posted, so that the requests of all feeds come from one thread.
void WeightsFeed::RequestWeights() const {
  call_.gate().Post([weights = weights_, id = job_id_] { weights->Request(id); });
}

void WeightsFeed::Detach() {
  bool was_open = false;
  {
    absl::MutexLock lock(&mutex_);
    sink_ = nullptr;
    was_open = std::exchange(open_, false);
  }
  if (!was_open) return;
  call_.gate().watches().Close(this);
  jobs_->queries().Unwatch(job_id_, this);
  weights_->Remove(job_id_, this);
  RequestWeights();
}

void WeightsFeed::Notify(std::shared_ptr<const JobSnapshot> snapshot, const JobEvents&) {
  if (!IsFinal(snapshot->job.state())) return;
  absl::MutexLock lock(&mutex_);
  ended_ = std::move(snapshot);
  WakeUp();
}

void WeightsFeed::OnWeights(std::shared_ptr<const HeldWeights> weights) {
  absl::MutexLock lock(&mutex_);
  if (weights->number() <= request_.since()) return;
  if (newest_ != nullptr && newest_->number() >= weights->number()) return;
  newest_ = std::move(weights);
  WakeUp();
}

void WeightsFeed::WakeUp() {
  if (std::exchange(busy_, true)) return;
  call_.gate().Post([self = shared_from_this()] { self->Advance(); });
}

// Called a few times a second, so it also sends a version that arrived before it was due.
void WeightsFeed::CheckAdmission() {
  if (absl::Status admitted = call_.StillAdmitted(); !admitted.ok()) return End(admitted);
  absl::MutexLock lock(&mutex_);
  if (newest_ != nullptr && IsDue(*newest_)) WakeUp();
}

void WeightsFeed::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  FinishOnce(status);
}

void WeightsFeed::FinishOnce(const absl::Status& status) {
  if (sink_ == nullptr || finished_) return;
  finished_ = true;
  call_.Done(job_id_, status);
  sink_->Finish(status);
}

// An interval has passed by the worker's clock, which differs between attempts, or by this one.
bool WeightsFeed::IsDue(const HeldWeights& held) const {
  return sent_.number == 0 || ended_ != nullptr || held.weights.last() ||
         held.weights.claim() != sent_.claim ||
         held.weights.seconds() - sent_.seconds >= interval_seconds() ||
         SteadyNow() - sent_.time >= absl::Seconds(interval_seconds());
}

void WeightsFeed::Advance() {
  if (absl::Status admitted = call_.StillAdmitted(); !admitted.ok()) return End(admitted);
  absl::MutexLock lock(&mutex_);
  if (sink_ == nullptr || finished_) return;
  response_.Clear();
  if (left_.empty() && newest_ != nullptr && IsDue(*newest_)) {
    Begin(std::exchange(newest_, nullptr));
  } else if (left_.empty()) {
    if (!request_.shared_memory()) sending_ = nullptr;
    busy_ = false;
    if (ended_ == nullptr) return;
    const bool none = sent_.number == 0 && request_.since() == 0;
    return FinishOnce(none ? HasEnded(ended_->job) : absl::OkStatus());
  }
  TakePiece();
  sink_->Write(response_);
}

void WeightsFeed::Begin(std::shared_ptr<const HeldWeights> weights) {
  const int64_t before = sent_.number;
  sending_ = std::move(weights);
  sent_ = {.number = sending_->number(),
           .claim = sending_->weights.claim(),
           .seconds = sending_->weights.seconds(),
           .time = SteadyNow()};
  WeightsVersion& version = *response_.mutable_version();
  version = sending_->weights.version();
  if (request_.shared_memory()) {
    version.set_size_bytes(static_cast<int64_t>(sending_->file->content().size()));
    version.mutable_memory()->set_socket(weights_->socket());
    version.mutable_memory()->set_key(sending_->key);
    return;
  }
  const auto changed = [before](const PublishedTensor& tensor) {
    return tensor.changed_in() > before;
  };
  head_ = WeightsHead(sending_->weights, changed);
  left_ = {head_};
  uint32_t crc = Crc32c(0, head_.data(), head_.size());
  size_t size = head_.size();
  const std::vector<std::string_view> elements =
      WeightsElements(sending_->weights, sending_->file->content());
  for (size_t i = 0; i < elements.size(); ++i) {
    const PublishedTensor& tensor = sending_->weights.tensors(static_cast<int>(i));
    if (!changed(tensor)) {
      version.add_unchanged(tensor.name());
      continue;
    }
    crc = CombineCrc32c(crc, tensor.crc32c(), elements[i].size());
    size += elements[i].size();
    if (!elements[i].empty()) left_.push_back(elements[i]);
  }
  version.set_size_bytes(static_cast<int64_t>(size));
  version.set_crc32c(crc);
  std::reverse(left_.begin(), left_.end());
}

void WeightsFeed::TakePiece() {
  std::string& piece = *response_.mutable_content();
  while (!left_.empty() && piece.size() < kWeightsPieceBytes) {
    std::string_view& next = left_.back();
    const size_t count = std::min(next.size(), kWeightsPieceBytes - piece.size());
    piece.append(next.substr(0, count));
    next.remove_prefix(count);
    if (next.empty()) left_.pop_back();
  }
}

}  // namespace genesis
