// Methods for checkpoints, except the two streaming ones.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "base/timestamp.h"
#include "server/api/page.h"
#include "server/api/training_api.h"

namespace genesis {
namespace {

using training::v1::CheckpointRequest;

constexpr size_t kLongestName = 63;

Callback<training::v1::Checkpoint> AnswerWithCheckpoint(
    const Callback<training::v1::CheckpointResponse>& callback) {
  return [callback](const absl::StatusOr<training::v1::Checkpoint>& checkpoint) {
    if (!checkpoint.ok()) return callback(checkpoint.status());
    training::v1::CheckpointResponse response;
    *response.mutable_checkpoint() = *checkpoint;
    callback(response);
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

// Gives a newly written checkpoint a second name, a hard link, and records it. Runs on a
// thread that may block.
void KeepUnderName(JobManager* jobs, CheckpointFiles* files, const CheckpointRequest& request,
                   training::v1::Checkpoint checkpoint,
                   const Callback<training::v1::Checkpoint>& callback) {
  files->Post([=]() mutable {
    const absl::StatusOr<std::string> path = files->Link(checkpoint, NamedId(request));
    if (absl::IsAlreadyExists(path.status())) return callback(NameTaken(request));
    if (!path.ok()) return callback(path.status());
    checkpoint.set_id(NamedId(request));
    checkpoint.set_name(request.name());
    checkpoint.set_path(*path);
    *checkpoint.mutable_create_time() = TimestampNow();
    jobs->checkpoints().Record(checkpoint,
                               [=](const absl::StatusOr<training::v1::Checkpoint>& recorded) {
                                 // A file without a record would never be removed.
                                 if (!recorded.ok())
                                   files->Post([=] { files->Remove(checkpoint).IgnoreError(); });
                                 callback(recorded);
                               });
  });
}

}  // namespace

void TrainingApi::Checkpoint(const Caller& caller, const CheckpointRequest& request,
                             const Callback<training::v1::CheckpointResponse>& callback) {
  const Callback<training::v1::Checkpoint> done = AnswerWithCheckpoint(callback);
  if (request.name().empty())
    return parts_.jobs->checkpoints().Take(caller, request.job_id(), done);
  std::string fault = CheckpointIdFault(request.name());
  if (fault.empty() && request.name().size() > kLongestName) fault = "at most 63 letters";
  if (!fault.empty()) return callback(ToStatus({{"name", QuoteValue(request.name()), fault}}));
  if (const auto job = parts_.jobs->queries().Get(caller, request.job_id()); job.ok()) {
    if (parts_.jobs->queries().GetCheckpoint(caller, NamedId(request)).ok()) {
      return callback(NameTaken(request));
    }
    const int64_t bytes = std::max<int64_t>(1, job->latest_checkpoint().size_bytes());
    const absl::Status room = parts_.jobs->admission().CheckRoom(
        job->owner(), bytes, absl::StrCat("checkpoint ", QuoteValue(request.name())));
    if (!room.ok()) return callback(room);
  }
  parts_.jobs->checkpoints().Take(caller, request.job_id(),
                                  [jobs = parts_.jobs, files = parts_.files, request, done](
                                      const absl::StatusOr<training::v1::Checkpoint>& checkpoint) {
                                    if (!checkpoint.ok()) return done(checkpoint);
                                    KeepUnderName(jobs, files, request, *checkpoint, done);
                                  });
}

void TrainingApi::ListCheckpoints(const Caller& caller,
                                  const training::v1::ListCheckpointsRequest& request,
                                  const Callback<training::v1::ListCheckpointsResponse>& callback) {
  const absl::StatusOr<int> page_size = PageSize(request.page_size());
  if (!page_size.ok()) return callback(page_size.status());
  const absl::StatusOr<int64_t> before = ReadPageNumber(request);
  if (!before.ok()) return callback(before.status());
  const absl::Status sees = parts_.jobs->queries().CheckSees(caller, request.job_id());
  if (!sees.ok()) return callback(sees);
  // One extra row shows whether there is a next page.
  absl::StatusOr<std::vector<StoredCheckpoint>> checkpoints =
      parts_.jobs->view().Checkpoints(request.job_id(), *before, *page_size + 1);
  if (!checkpoints.ok()) return callback(checkpoints.status());
  // Checkpoints of a deleted job are still listed.
  if (checkpoints->empty() && !request.job_id().empty() && *before == 0) {
    const absl::Status known = parts_.jobs->queries().Get(caller, request.job_id()).status();
    if (!known.ok()) return callback(known);
  }
  training::v1::ListCheckpointsResponse response;
  if (checkpoints->size() > static_cast<size_t>(*page_size)) {
    checkpoints->resize(static_cast<size_t>(*page_size));
    response.set_next_page_token(MakePageToken(request, PlaceOf({checkpoints->back().place})));
  }
  for (StoredCheckpoint& each : *checkpoints) {
    *response.add_checkpoints() = std::move(each.checkpoint);
  }
  callback(response);
}

void TrainingApi::GetCheckpoint(const Caller& caller,
                                const training::v1::GetCheckpointRequest& request,
                                const Callback<training::v1::GetCheckpointResponse>& callback) {
  const absl::StatusOr<training::v1::Checkpoint> checkpoint =
      parts_.jobs->queries().GetCheckpoint(caller, request.checkpoint_id());
  if (!checkpoint.ok()) return callback(checkpoint.status());
  training::v1::GetCheckpointResponse response;
  *response.mutable_checkpoint() = *checkpoint;
  callback(response);
}

// Removes the record first, so that no client receives a file about to be removed.
void TrainingApi::DeleteCheckpoint(
    const Caller& caller, const training::v1::DeleteCheckpointRequest& request,
    const Callback<training::v1::DeleteCheckpointResponse>& callback) {
  parts_.jobs->checkpoints().Forget(
      caller, request.checkpoint_id(),
      [files = parts_.files, callback](const absl::StatusOr<training::v1::Checkpoint>& forgotten) {
        if (!forgotten.ok()) return callback(forgotten.status());
        files->Post([files, checkpoint = *forgotten, callback] {
          const absl::Status removed = files->Remove(checkpoint);
          if (!removed.ok()) return callback(removed);
          callback(training::v1::DeleteCheckpointResponse());
        });
      });
}

}  // namespace genesis
