// The method that predicts.
#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "server/api/training_api.h"
#include "server/predictions/prediction_hub.h"

namespace genesis {

void TrainingApi::Predict(const Caller& caller, const training::v1::PredictRequest& request,
                          const Callback<training::v1::PredictResponse>& callback) {
  const absl::StatusOr<training::v1::Job> job =
      parts_.jobs->queries().Get(caller, request.job_id());
  if (!job.ok()) return callback(job.status());
  if (request.checkpoint_id().empty()) {
    return parts_.predictions->Predict(*job, nullptr, {caller, request, callback});
  }
  const absl::StatusOr<training::v1::Checkpoint> checkpoint =
      parts_.jobs->queries().GetCheckpoint(caller, request.checkpoint_id());
  if (!checkpoint.ok()) return callback(checkpoint.status());
  if (checkpoint->job_id() != job->id()) {
    return callback(absl::NotFoundError(absl::StrCat(
        "checkpoint ", QuoteValue(checkpoint->id()), " is of job ",
        QuoteValue(checkpoint->job_id()), "; accepted: one of job ", QuoteValue(job->id()))));
  }
  parts_.predictions->Predict(*job, &*checkpoint, {caller, request, callback});
}

}  // namespace genesis
