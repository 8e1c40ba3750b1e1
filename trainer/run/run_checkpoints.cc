#include "trainer/run/run_checkpoints.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files/durable_file.h"
#include "base/random_bytes.h"
#include "base/timestamp.h"
#include "trainer/checkpoint/checkpoint_reader.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {

using training::v1::CheckpointWritten;

namespace {

// Network file systems may cache for some time that a file did not exist.
constexpr std::chrono::minutes kLatest{2};

// Returns the order of checkpoints by evaluation.metric; null if the job follows none.
CheckpointFolder::Badness ReportedBadness(const training::v1::EvaluationSpec& spec,
                                          const RunControl& control) {
  if (spec.metric().empty()) return nullptr;
  const double sign = spec.mode() == training::v1::METRIC_MODE_MAX ? -1 : 1;
  return [&control, sign](int64_t step) -> std::optional<double> {
    const std::optional<double> value = control.MetricValue(step);
    return value ? std::optional(sign * *value) : std::nullopt;
  };
}

void RequireWritten(const absl::Status& status) {
  Require(status, absl::IsOutOfRange(status) ? training::v1::FAILURE_CAUSE_NON_FINITE
                                             : training::v1::FAILURE_CAUSE_CHECKPOINT);
}

}  // namespace

RunCheckpoints::RunCheckpoints(const training::v1::StartJob& start, const RunControl& control,
                               RunObserver& observer, RankGroup& ranks)
    : start_(start),
      observer_(observer),
      ranks_(ranks),
      writes_(ranks.first()),
      sharded_(!ranks.alone() && start.spec().checkpoint().sharded()),
      folder_(start.checkpoint_dir(), start.job_id()),
      writer_(folder_, {.keep_last = start.spec().checkpoint().keep_last(),
                        .keep_best = std::max(0, start.spec().checkpoint().keep_best()),
                        .badness = ReportedBadness(start.spec().evaluation(), control)}) {}

void RunCheckpoints::Prepare() {
  if (writes_) Require(folder_.Prepare(), training::v1::FAILURE_CAUSE_CHECKPOINT);
  if (!sharded_) return;
  token_ = ranks_.FromFirst(ranks_.first() ? absl::StrFormat("%016x", RandomNumber()) : "");
  RequireSharedFolder();
}

// Call before the first step: rank 0 writes a file that every rank must see.
void RunCheckpoints::RequireSharedFolder() {
  const std::filesystem::path folder =
      std::filesystem::absolute(start_.checkpoint_dir()).lexically_normal();
  // If this process is killed, the file is removed with other temporary files.
  const std::string probe =
      (folder / absl::StrCat(".", start_.job_id(), "-step-.tmp-", token_)).string();
  absl::Status left;
  if (ranks_.first()) left = WriteDurably(probe, token_);
  const std::string fault = ranks_.FromFirst(std::string(left.message()));
  std::error_code error;
  const bool seen = fault.empty() && std::filesystem::exists(probe, error);
  const std::vector<std::string> all = ranks_.FromAll(seen ? "" : folder.string());
  if (ranks_.first()) std::filesystem::remove(probe, error);
  Require(fault.empty() ? absl::OkStatus() : absl::UnknownError(fault),
          training::v1::FAILURE_CAUSE_CHECKPOINT);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    throw RunFailure{
        training::v1::FAILURE_CAUSE_CONFIG,
        absl::StrCat("checkpoint.sharded is true, and rank ", rank, " does not see in ", all[rank],
                     " what rank 0 writes; accepted: one folder of checkpoints for all ranks, on "
                     "one host or on a file system that all hosts mount; or leave it out")};
  }
}

std::optional<TrainingState> RunCheckpoints::Resume(
    const std::function<absl::Status(const TrainingState&)>& take) {
  std::vector<std::string> paths = {start_.resume_from().begin(), start_.resume_from().end()};
  const size_t known = paths.size();
  missing_ = folder_.Missing(paths);
  if (!missing_.empty()) {
    // All of them belong to this job, because its first checkpoint removed an earlier job's.
    for (const std::string& path : folder_.Paths()) {
      if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
    }
  }
  if (paths.empty()) ContinueFrom(take);
  absl::Status last;
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::string& path = paths[i];
    absl::StatusOr<TrainingState> state = ReadCheckpoint(path);
    last = state.status();
    if (state.ok()) last = take(*state);
    if (last.ok()) {
      observer_.OnLog(
          absl::StrCat("resumed from ", path, " at step ", state->position.progress.step()));
      // If the daemon does not know the checkpoint, it is written again before the job ends.
      if (i < known) saved_step_ = state->position.progress.step();
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

void RunCheckpoints::ContinueFrom(const std::function<absl::Status(const TrainingState&)>& take) {
  if (start_.continue_from().empty()) return;
  const std::string& id = start_.spec().continue_from_checkpoint();
  absl::StatusOr<TrainingState> state = ReadCheckpoint(start_.continue_from());
  if (!state.ok()) {
    throw RunFailure{training::v1::FAILURE_CAUSE_CHECKPOINT,
                     absl::StrCat("continue_from_checkpoint ", id, ": ", state.status().message())};
  }
  const int64_t step = state->position.progress.step();
  RunPosition beginning;
  beginning.applied_steps =
      start_.spec().optimizer().schedule().goes_on() ? state->position.applied_steps : 0;
  state->position = beginning;
  state->priorities = at::Tensor();
  state->evaluation = {};
  state->policy = {};
  if (const absl::Status taken = take(*state); !taken.ok()) {
    throw RunFailure{
        training::v1::FAILURE_CAUSE_CONFIG,
        absl::StrCat("continue_from_checkpoint ", id, " does not fit the job: ", taken.message())};
  }
  observer_.OnLog(absl::StrCat("goes on from ", start_.continue_from(), ", step ", step));
}

void RunCheckpoints::Save(const TrainingState& state, std::optional<double> held_out_loss,
                          std::chrono::steady_clock::time_point since) {
  const int64_t step = state.position.progress.step();
  saved_step_ = step;
  // Wait for the previous write, whose callback sets members of this object.
  if (writes_ || sharded_) Flush();
  own_step_ = step;
  if (!writes_ && !sharded_) return;
  CheckpointWritten written;
  training::v1::Checkpoint& checkpoint = *written.mutable_checkpoint();
  checkpoint.set_job_id(start_.job_id());
  checkpoint.set_step(step);
  checkpoint.set_loss(state.position.progress.loss());
  checkpoint.set_mode(state.position.progress.mode());
  if (held_out_loss) checkpoint.set_held_out_loss(*held_out_loss);
  written.set_stall_seconds(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count());
  const auto tell = [this, written, copy = state.copy](const WrittenCheckpoint& durable) mutable {
    // The copy completes before its file does, so held_seconds() is final here.
    if (copy != nullptr) {
      written.set_stall_seconds(written.stall_seconds() + copy->held_seconds());
    }
    training::v1::Checkpoint& told = *written.mutable_checkpoint();
    told.set_id(durable.id);
    told.set_path(durable.path);
    told.set_size_bytes(durable.size);
    told.set_shard_count(durable.shards);
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
  CheckpointMeta meta{.job_id = start_.job_id(), .held_out_loss = held_out_loss};
  if (sharded_) {
    place_ = {.rank = ranks_.rank(),
              .ranks = ranks_.size(),
              .token = absl::StrCat(token_, "-", ++begun_)};
    meta.shard = place_;
  }
  RequireWritten(writer_.Submit(state, std::move(meta), tell));
}

bool RunCheckpoints::Repeat(int64_t step) {
  Flush();
  // A rank that does not write uses its record of what rank 0 wrote, so that all return the same.
  if (!writes_) return own_step_ == step;
  if (!written_ || written_->checkpoint().step() != step) return false;
  observer_.OnCheckpoint(*written_);
  return true;
}

void RunCheckpoints::Flush() {
  if (sharded_ && begun_ > 0) return FlushShards();
  RequireWritten(writer_.Flush());
}

// Exchanges whether each rank wrote its shard, so that no rank waits for a missing one. A rank that
// failed reports why; the other ranks report that it failed.
void RunCheckpoints::FlushShards() {
  RequireShards(writer_.FlushShard());
  // All shards are durable, but another host may see them later.
  writer_.ExpectShardsWithin(kLatest);
  // Only rank 0 still has to write something: the list of the shards.
  RequireShards(writer_.Flush());
}

void RunCheckpoints::RequireShards(const absl::Status& own) {
  const std::vector<std::string> told = ranks_.FromAll(std::string(own.message()));
  const auto failed =
      std::find_if(told.begin(), told.end(), [](const std::string& why) { return !why.empty(); });
  if (failed == told.end()) return;
  writer_.ExpectShardsWithin(std::chrono::milliseconds(0));
  // Without the list, the shard belongs to no checkpoint.
  folder_.RemoveShard(own_step_, place_);
  RequireWritten(own);
  throw RunFailure{training::v1::FAILURE_CAUSE_WORKER_EXIT,
                   absl::StrCat("rank ", failed - told.begin(), " failed: ", *failed)};
}

}  // namespace genesis
