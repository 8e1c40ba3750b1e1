// Methods about checkpoints, but for the two that are streams.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "config/field_error.h"
#include "config/timestamp.h"
#include "server/api/page.h"
#include "server/api/training_api.h"

namespace genesis {
namespace {

using training::v1::CheckpointRequest;

constexpr size_t kLongestName = 63;

Answer<training::v1::Checkpoint> AnswerWithCheckpoint(
    const Answer<training::v1::CheckpointResponse>& answer) {
  return [answer](const absl::StatusOr<training::v1::Checkpoint>& checkpoint) {
    if (!checkpoint.ok()) return answer(checkpoint.status());
    training::v1::CheckpointResponse response;
    *response.mutable_checkpoint() = *checkpoint;
    answer(response);
  };
}

std::string NamedId(const CheckpointRequest& request) {
  return absl::StrCat(request.job_id(), "-", request.name());
}

absl::Status NameTaken(const CheckpointRequest& request) {
  return absl::AlreadyExistsError(absl::StrCat(
      "job \"", request.job_id(), "\" has a checkpoint named ", QuoteValue(request.name()),
      " already; choose another name, or delete ", NamedId(request), " first"));
}

// Gives what a worker has just written a second name, on a thread that may wait, and records it.
void KeepUnderName(JobManager* jobs, CheckpointFiles* files, const CheckpointRequest& request,
                   training::v1::Checkpoint checkpoint,
                   const Answer<training::v1::Checkpoint>& answer) {
  files->Post([=]() mutable {
    const absl::StatusOr<std::string> path = files->Link(checkpoint, NamedId(request));
    if (absl::IsAlreadyExists(path.status())) return answer(NameTaken(request));
    if (!path.ok()) return answer(path.status());
    checkpoint.set_id(NamedId(request));
    checkpoint.set_name(request.name());
    checkpoint.set_path(*path);
    *checkpoint.mutable_create_time() = TimestampNow();
    jobs->RecordCheckpoint(checkpoint,
                           [=](const absl::StatusOr<training::v1::Checkpoint>& recorded) {
                             // Without its record nobody would ever remove the file.
                             if (!recorded.ok())
                               files->Post([=] { files->Remove(checkpoint).IgnoreError(); });
                             answer(recorded);
                           });
  });
}

}  // namespace

void TrainingApi::Checkpoint(const Caller&, const CheckpointRequest& request,
                             const Answer<training::v1::CheckpointResponse>& answer) {
  const Answer<training::v1::Checkpoint> done = AnswerWithCheckpoint(answer);
  if (request.name().empty()) return parts_.jobs->Checkpoint(request.job_id(), done);
  std::string fault = CheckpointIdFault(request.name());
  if (fault.empty() && request.name().size() > kLongestName) fault = "at most 63 letters";
  if (!fault.empty()) return answer(ToStatus({{"name", QuoteValue(request.name()), fault}}));
  if (parts_.jobs->Get(request.job_id()).ok() &&
      parts_.jobs->GetCheckpoint(NamedId(request)).ok()) {
    return answer(NameTaken(request));
  }
  parts_.jobs->Checkpoint(request.job_id(),
                          [jobs = parts_.jobs, files = parts_.files, request,
                           done](const absl::StatusOr<training::v1::Checkpoint>& checkpoint) {
                            if (!checkpoint.ok()) return done(checkpoint);
                            KeepUnderName(jobs, files, request, *checkpoint, done);
                          });
}

void TrainingApi::ListCheckpoints(const Caller&,
                                  const training::v1::ListCheckpointsRequest& request,
                                  const Answer<training::v1::ListCheckpointsResponse>& answer) {
  const absl::StatusOr<int> page_size = PageSize(request.page_size());
  if (!page_size.ok()) return answer(page_size.status());
  int64_t before = 0;
  if (!request.page_token().empty()) {
    const auto keys = ReadPageKeys<1>(request);
    if (!keys.ok()) return answer(keys.status());
    before = (*keys)[0];
  }
  // One more tells whether there is a next page.
  absl::StatusOr<std::vector<StoredCheckpoint>> checkpoints =
      parts_.jobs->view().Checkpoints(request.job_id(), before, *page_size + 1);
  if (!checkpoints.ok()) return answer(checkpoints.status());
  // Those of a job that was forgotten are listed all the same.
  if (checkpoints->empty() && !request.job_id().empty() && before == 0) {
    const absl::Status known = parts_.jobs->Get(request.job_id()).status();
    if (!known.ok()) return answer(known);
  }
  training::v1::ListCheckpointsResponse response;
  if (checkpoints->size() > static_cast<size_t>(*page_size)) {
    checkpoints->resize(static_cast<size_t>(*page_size));
    response.set_next_page_token(MakePageToken(request, PlaceOf({checkpoints->back().place})));
  }
  for (StoredCheckpoint& each : *checkpoints) {
    *response.add_checkpoints() = std::move(each.checkpoint);
  }
  answer(response);
}

void TrainingApi::GetCheckpoint(const Caller&, const training::v1::GetCheckpointRequest& request,
                                const Answer<training::v1::GetCheckpointResponse>& answer) {
  const absl::StatusOr<training::v1::Checkpoint> checkpoint =
      parts_.jobs->GetCheckpoint(request.checkpoint_id());
  if (!checkpoint.ok()) return answer(checkpoint.status());
  training::v1::GetCheckpointResponse response;
  *response.mutable_checkpoint() = *checkpoint;
  answer(response);
}

// First the record, so that nobody is given a file that is about to go.
void TrainingApi::DeleteCheckpoint(const Caller&,
                                   const training::v1::DeleteCheckpointRequest& request,
                                   const Answer<training::v1::DeleteCheckpointResponse>& answer) {
  parts_.jobs->ForgetCheckpoint(
      request.checkpoint_id(),
      [files = parts_.files, answer](const absl::StatusOr<training::v1::Checkpoint>& forgotten) {
        if (!forgotten.ok()) return answer(forgotten.status());
        files->Post([files, checkpoint = *forgotten, answer] {
          const absl::Status removed = files->Remove(checkpoint);
          if (!removed.ok()) return answer(removed);
          answer(training::v1::DeleteCheckpointResponse());
        });
      });
}

}  // namespace genesis
