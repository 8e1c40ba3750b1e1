#include "server/predictions/prediction_hub.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "config/job/job_paths.h"
#include "server/ledger/job_state.h"

namespace genesis {
namespace {

using training::v1::Checkpoint;
using training::v1::Job;

// Minimum time between two versions that a predictor loads, in seconds.
constexpr double kVersionInterval = 0.2;
// Time for which a predictor must be unused before another one may replace it.
constexpr absl::Duration kMinStay = absl::Seconds(5);
// Time after a failure for which the predictor is not started again.
constexpr absl::Duration kRetryInterval = absl::Seconds(5);

// Returns true if a predictor that ended like this may be started again.
bool MayStart(const Predictor::End& end) {
  return end.status.ok() || end.has_served || absl::Now() - end.time >= kRetryInterval;
}

absl::Status HasNoWeights(const Job& job) {
  return absl::FailedPreconditionError(absl::StrCat(
      "job ", QuoteValue(job.id()), " is ", ShortEnumName(job.state()), " and has no checkpoint",
      IsFinal(job.state()) ? "; accepted: a job that has trained" : "; retry when it trains"));
}

}  // namespace

Predictor::Options PredictionHub::OptionsFor(const Job& job, const Checkpoint* checkpoint) const {
  Predictor::Options predictor;
  predictor.program = options_.program;
  predictor.log_path = absl::StrCat(options_.log_dir, "/predictor.log");
  predictor.job_id = job.id();
  *predictor.first.mutable_spec() = job.spec();
  predictor.first.mutable_spec()->clear_dataset();  // A predictor reads no data.
  PutPathsBelow(options_.datasets_root, *predictor.first.mutable_spec());
  predictor.first.set_datasets_root(options_.datasets_root);
  predictor.first.set_checkpoint_dir(options_.checkpoint_dir);
  const Checkpoint& newest = checkpoint == nullptr ? job.latest_checkpoint() : *checkpoint;
  predictor.first.set_checkpoint_path(newest.path());
  predictor.first.set_checkpoint_step(newest.step());
  if (checkpoint != nullptr) return predictor;
  predictor.has_worker = [view = view_, id = job.id()] {
    const auto snapshot = view->Snapshot(id);
    return snapshot.ok() && *snapshot != nullptr && IsOnWorker((*snapshot)->job.state());
  };
  return predictor;
}

void PredictionHub::Predict(const Job& job, const Checkpoint* checkpoint, PredictCall call) {
  if (options_.max_processes == 0) {
    return call.callback(absl::FailedPreconditionError(
        "predictions are off, because workers.predictors is 0; accepted: 1 or more"));
  }
  // A later job may reuse the ID of a deleted one, so the key includes the creation time.
  const std::string key =
      absl::StrCat(job.id(), " ", job.create_time().seconds(), ".", job.create_time().nanos(), " ",
                   checkpoint == nullptr ? "" : checkpoint->id());
  std::vector<Started> ended;
  absl::StatusOr<std::shared_ptr<Predictor>> predictor;
  {
    absl::MutexLock lock(&mutex_);
    predictor = FindOrStart(key, job, checkpoint, ended);
  }
  Release(std::move(ended));
  if (!predictor.ok()) return call.callback(predictor.status());
  if ((*predictor)->Add(call)) return;
  call.callback(absl::UnavailableError("the process that predicts has just ended; retry"));
}

absl::StatusOr<std::shared_ptr<Predictor>> PredictionHub::FindOrStart(const std::string& key,
                                                                      const Job& job,
                                                                      const Checkpoint* checkpoint,
                                                                      std::vector<Started>& ended) {
  if (stopped_) return absl::UnavailableError("the daemon is ending; retry");
  const bool has_weights =
      checkpoint != nullptr || IsOnWorker(job.state()) || !job.latest_checkpoint().path().empty();
  if (const auto found = started_.find(key); found != started_.end()) {
    const std::optional<Predictor::End> end = found->second.predictor->end();
    if (!end.has_value()) return found->second.predictor;
    if (has_weights && !MayStart(*end)) return end->status;
    ended.push_back(std::move(found->second));
    started_.erase(found);
  }
  if (!has_weights) return HasNoWeights(job);
  if (absl::Status room = MakeRoom(ended); !room.ok()) return room;
  Started started;
  started.predictor = std::make_shared<Predictor>(OptionsFor(job, checkpoint));
  if (checkpoint == nullptr) {
    started.watched = job.id();
    // Posted to one thread, so that this Add runs before the Remove that Release posts.
    post_([weights = weights_, id = job.id(), predictor = started.predictor] {
      weights->Add(id, WeightsKind(), kVersionInterval, predictor);
      weights->Request(id);
    });
  }
  return started_.emplace(key, std::move(started)).first->second.predictor;
}

absl::Status PredictionHub::MakeRoom(std::vector<Started>& ended) {
  if (started_.size() < static_cast<size_t>(options_.max_processes)) return absl::OkStatus();
  const auto oldest =
      std::min_element(started_.begin(), started_.end(), [](const auto& a, const auto& b) {
        return a.second.predictor->last_use() < b.second.predictor->last_use();
      });
  if (oldest->second.predictor->last_use() > absl::Now() - kMinStay) {
    return absl::ResourceExhaustedError(
        absl::StrCat("workers.predictors is ", options_.max_processes,
                     ", and as many jobs and checkpoints were asked in the last ",
                     absl::FormatDuration(kMinStay),
                     "; accepted: no more than these; raise it, or retry later"));
  }
  ended.push_back(std::move(oldest->second));
  started_.erase(oldest);
  return absl::OkStatus();
}

void PredictionHub::Release(std::vector<Started> ended) {
  for (Started& each : ended) {
    if (each.watched.empty()) continue;
    post_([weights = weights_, id = each.watched, predictor = each.predictor] {
      weights->Remove(id, predictor.get());
      weights->Request(id);
    });
  }
}

void PredictionHub::Tend() {
  std::vector<Started> ended;
  {
    absl::MutexLock lock(&mutex_);
    for (auto it = started_.begin(); it != started_.end();) {
      const std::optional<Predictor::End> end = it->second.predictor->end();
      const bool over = end.has_value() && MayStart(*end);
      if (over) ended.push_back(std::move(it->second));
      it = over ? started_.erase(it) : std::next(it);
    }
  }
  Release(std::move(ended));
}

void PredictionHub::Stop() {
  std::vector<Started> ended;
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    for (auto& [key, started] : started_) ended.push_back(std::move(started));
    started_.clear();
  }
  Release(std::move(ended));
}

}  // namespace genesis
