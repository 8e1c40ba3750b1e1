#include "trainer/run/run_checkpoints.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/timestamp.h"
#include "trainer/checkpoint/checkpoint_reader.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {

using training::v1::CheckpointWritten;

namespace {

void RequireWritten(const absl::Status& status) {
  Require(status, absl::IsOutOfRange(status) ? training::v1::FAILURE_CAUSE_NON_FINITE
                                             : training::v1::FAILURE_CAUSE_CHECKPOINT);
}

}  // namespace

RunCheckpoints::RunCheckpoints(const training::v1::StartJob& start, RunObserver& observer,
                               bool writes)
    : start_(start),
      observer_(observer),
      writes_(writes),
      folder_(start.checkpoint_dir(), start.job_id()),
      writer_(folder_, {.keep_last = start.spec().checkpoint().keep_last(),
                        .keep_best = std::max(0, start.spec().checkpoint().keep_best())}) {}

void RunCheckpoints::Prepare() {
  if (writes_) Require(folder_.Prepare(), training::v1::FAILURE_CAUSE_CHECKPOINT);
}

std::optional<TrainingState> RunCheckpoints::Resume(
    const std::function<absl::Status(const TrainingState&)>& take) {
  std::vector<std::string> paths = {start_.resume_from().begin(), start_.resume_from().end()};
  const size_t known = paths.size();
  missing_ = folder_.Missing(paths);
  if (!missing_.empty()) {
    // All of them are this job's: the first that it wrote removed what an earlier job had left.
    for (const std::string& path : folder_.Paths()) {
      if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
    }
  }
  absl::Status last;
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::string& path = paths[i];
    absl::StatusOr<TrainingState> state = ReadCheckpoint(path);
    last = state.status();
    if (state.ok()) last = take(*state);
    if (last.ok()) {
      observer_.OnLog(absl::StrCat("resumed from ", path, " at step ", state->position.step));
      // One that was never reported is written again before the job ends.
      if (i < known) saved_step_ = state->position.step;
      return *std::move(state);
    }
    observer_.OnLog(absl::StrCat("checkpoint ", path, " cannot be used: ", last.message()));
  }
  if (!last.ok()) {
    throw RunFailure{training::v1::FAILURE_CAUSE_CHECKPOINT,
                     absl::StrCat("none of ", start_.resume_from_size(),
                                  " checkpoints can be used; the last: ", last.message())};
  }
  return std::nullopt;
}

void RunCheckpoints::Save(const TrainingState& state, std::optional<double> held_out_loss,
                          std::chrono::steady_clock::time_point since) {
  const int64_t step = state.position.step;
  saved_step_ = step;
  if (!writes_) return;
  // Waits for the one before; after it nobody else holds what the callback writes to.
  Flush();
  CheckpointWritten written;
  training::v1::Checkpoint& checkpoint = *written.mutable_checkpoint();
  checkpoint.set_job_id(start_.job_id());
  checkpoint.set_step(step);
  checkpoint.set_loss(state.position.loss);
  checkpoint.set_mode(state.position.mode);
  if (held_out_loss) checkpoint.set_held_out_loss(*held_out_loss);
  written.set_stall_seconds(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count());
  const auto tell = [this, written, copy = state.copy](const WrittenCheckpoint& durable) mutable {
    // The update that waited for the copy is over: a copy is made before its file.
    if (copy != nullptr) {
      written.set_stall_seconds(written.stall_seconds() + copy->held_seconds());
    }
    training::v1::Checkpoint& told = *written.mutable_checkpoint();
    told.set_id(durable.id);
    told.set_path(durable.path);
    told.set_size_bytes(durable.size);
    if (const auto manifest = ReadManifest(durable.path); manifest.ok()) {
      told.set_crc32c(manifest->crc32c);
    }
    *told.mutable_create_time() = TimestampNow();
    written.set_seconds(durable.seconds);
    for (const std::string& id : durable.removed_ids) written.add_removed_ids(id);
    for (const std::string& id : std::exchange(missing_, {})) written.add_removed_ids(id);
    written_ = written;
    observer_.OnCheckpoint(written);
  };
  RequireWritten(
      writer_.Submit(state, {.job_id = start_.job_id(), .held_out_loss = held_out_loss}, tell));
}

bool RunCheckpoints::Repeat(int64_t step) {
  Flush();
  if (!written_ || written_->checkpoint().step() != step) return false;
  observer_.OnCheckpoint(*written_);
  return true;
}

void RunCheckpoints::Flush() { RequireWritten(writer_.Flush()); }

}  // namespace genesis
