// Records of checkpoints that users make and remove, and what jobs need: a part of JobManager.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "config/job/job_paths.h"
#include "server/jobs/job_manager.h"
#include "server/jobs/job_state.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

absl::Status NoSuchCheckpoint(const std::string& id) {
  return absl::NotFoundError(absl::StrCat("there is no checkpoint ", QuoteValue(id),
                                          "; `genesisctl checkpoints` lists them"));
}

// Whether a job reads the dataset or something in it.
bool Names(training::v1::JobSpec spec, const std::string& dataset) {
  for (const JobPath& path : PathsOf(spec)) {
    const std::string named = std::filesystem::path(*path.path).lexically_normal().string();
    if (named == dataset || absl::StartsWith(named, dataset + "/")) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<training::v1::Checkpoint> JobManager::GetCheckpoint(const std::string& id) const {
  absl::StatusOr<training::v1::Checkpoint> checkpoint = view().GetCheckpoint(id);
  return absl::IsNotFound(checkpoint.status()) ? NoSuchCheckpoint(id) : checkpoint;
}

void JobManager::RecordCheckpoint(const training::v1::Checkpoint& checkpoint,
                                  const Callback<training::v1::Checkpoint>& callback) {
  writer_.Ask<training::v1::Checkpoint>(
      [this, checkpoint] {
        table_.PutCheckpoint(checkpoint);
        return checkpoint;
      },
      callback);
}

void JobManager::ForgetCheckpoint(const std::string& id,
                                  const Callback<training::v1::Checkpoint>& callback) {
  writer_.Ask<training::v1::Checkpoint>([this, id] { return ForgetNow(id); }, callback);
}

absl::StatusOr<training::v1::Checkpoint> JobManager::ForgetNow(const std::string& id) {
  const std::optional<training::v1::Checkpoint> found = table_.FindCheckpoint(id);
  if (!found) return NoSuchCheckpoint(id);
  const training::v1::Checkpoint& checkpoint = *found;
  const std::string needed_by = NeedsCheckpoint(checkpoint);
  if (!needed_by.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", needed_by, "\" has not ended and may need checkpoint ",
                     QuoteValue(id), "; delete it when the job has ended, or cancel the job"));
  }
  table_.RemoveCheckpoint(id);
  const std::string& job_id = checkpoint.job_id();
  const Job* job = job_id.empty() ? nullptr : table_.Find(job_id);
  if (job != nullptr && job->latest_checkpoint().id() == id) {
    Job* edited = table_.Edit(job_id);
    edited->clear_latest_checkpoint();
    const std::vector<training::v1::Checkpoint> of_job = table_.CheckpointsOf(job_id);
    if (!of_job.empty()) *edited->mutable_latest_checkpoint() = of_job.back();
  }
  table_.Count([id] { spdlog::info("checkpoint {} deleted by a user", id); });
  return checkpoint;
}

std::string JobManager::NeedsCheckpoint(const training::v1::Checkpoint& checkpoint) const {
  for (const std::string& id : table_.Ids()) {
    const Job& job = *table_.Find(id);
    // One that a user named is a copy: the job has those that it wrote.
    const bool own = id == checkpoint.job_id() && checkpoint.name().empty();
    if (own || job.spec().start_from_checkpoint() == checkpoint.id()) return id;
  }
  return "";
}

void JobManager::JobThatNeedsDataset(const std::string& name,
                                     const Callback<std::string>& callback) {
  writer_.Ask<std::string>(
      [this, name] {
        std::string needed_by;
        for (const std::string& id : table_.Ids()) {
          if (Names(table_.Find(id)->spec(), name)) needed_by = id;
        }
        return needed_by;
      },
      callback);
}

}  // namespace genesis
