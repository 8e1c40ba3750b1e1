#include "trainer/checkpoint/checkpoint_writer.h"

#include <chrono>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace genesis {
namespace {

constexpr std::chrono::seconds kLastWait{5};
constexpr absl::Duration kLookAround = absl::Milliseconds(5);

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointFolder folder, Retention retention)
    : folder_(std::move(folder)), retention_(std::move(retention)), thread_([this] { Serve(); }) {}

CheckpointWriter::~CheckpointWriter() {
  {
    const absl::MutexLock lock(&mutex_);
    ending_ = true;
    const auto due = std::chrono::steady_clock::now() + kLastWait;
    if (!shards_due_ || *shards_due_ > due) shards_due_ = due;
  }
  thread_.join();
}

absl::Status CheckpointWriter::TakeError() { return std::exchange(error_, absl::OkStatus()); }

absl::Status CheckpointWriter::Submit(TrainingState state, CheckpointMeta meta, Callback callback) {
  const auto begin = std::chrono::steady_clock::now();
  const absl::MutexLock lock(&mutex_);
  const bool waits = busy_;
  mutex_.Await(absl::Condition(this, &CheckpointWriter::Idle));
  if (waits) stalled_seconds_ += Seconds(begin);
  if (absl::Status error = TakeError(); !error.ok()) return error;
  job_.emplace(Job{std::move(state), std::move(meta), std::move(callback)});
  busy_ = true;
  shard_done_ = false;
  shards_due_.reset();
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Flush() {
  const absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &CheckpointWriter::Idle));
  return TakeError();
}

absl::Status CheckpointWriter::FlushShard() {
  const absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &CheckpointWriter::ShardIsDone));
  return error_;
}

void CheckpointWriter::ExpectShardsWithin(std::chrono::milliseconds limit) {
  const absl::MutexLock lock(&mutex_);
  shards_due_ = std::chrono::steady_clock::now() + limit;
}

double CheckpointWriter::stalled_seconds() const {
  const absl::MutexLock lock(&mutex_);
  return stalled_seconds_;
}

void CheckpointWriter::Serve() {
  while (true) {
    std::optional<Job> job;
    {
      const absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &CheckpointWriter::HasWork));
      if (!job_) return;
      job = std::exchange(job_, std::nullopt);
    }
    absl::Status status;
    try {
      status = Write(*job);
    } catch (const std::exception& error) {
      // An exception that leaves this thread would end the process.
      status = absl::InternalError(absl::StrCat(folder_.Path(job->state.position.progress.step()),
                                                ": cannot be written: ", error.what()));
    }
    // Free the job's memory before the next state arrives.
    job.reset();
    const absl::MutexLock lock(&mutex_);
    error_.Update(status);
    busy_ = false;
  }
}

absl::StatusOr<int64_t> CheckpointWriter::WriteFiles(const Job& job, const std::string& path) {
  if (!job.meta.shard) return WriteCheckpoint(job.state, path, job.meta);
  absl::StatusOr<int64_t> own = WriteShard(job.state, path, job.meta);
  if (!own.ok() || job.meta.shard->rank > 0) return own;
  {
    const absl::MutexLock lock(&mutex_);
    shard_done_ = true;
  }
  const absl::StatusOr<std::vector<ShardFile>> shards = AwaitShards(job, path);
  if (!shards.ok()) return shards.status();
  return WriteIndex(job.state, path, job.meta, *shards);
}

// Polls for the files, because a shard gets its name only when it is durable.
absl::StatusOr<std::vector<ShardFile>> CheckpointWriter::AwaitShards(const Job& job,
                                                                     const std::string& path) {
  while (true) {
    bool last = false;
    {
      const absl::MutexLock lock(&mutex_);
      last = shards_due_ && std::chrono::steady_clock::now() >= *shards_due_;
    }
    auto found = FindShards(path, job.state.position.progress.step(), job.meta);
    if (!found.ok()) return found.status();
    if (*found) return **std::move(found);
    if (last) {
      return absl::UnavailableError(
          absl::StrCat(path, ": its ", job.meta.shard->ranks,
                       " shards are not all there; a rank ended before its own was durable, or "
                       "writes to another folder: all ranks need the same"));
    }
    absl::SleepFor(kLookAround);
  }
}

absl::Status CheckpointWriter::Write(const Job& job) {
  const auto begin = std::chrono::steady_clock::now();
  WrittenCheckpoint written;
  written.step = job.state.position.progress.step();
  written.id = folder_.Id(written.step);
  written.path = folder_.Path(written.step);
  if (const std::string name = FirstNonFinite(job.state); !name.empty()) {
    return absl::OutOfRangeError(absl::StrCat(name, " is not finite after step ", written.step,
                                              "; lower optimizer.learning_rate"));
  }
  const absl::StatusOr<int64_t> size = WriteFiles(job, written.path);
  if (!size.ok()) return size.status();
  // Only rank 0 reports the checkpoint.
  if (job.meta.shard && job.meta.shard->rank > 0) return absl::OkStatus();
  written.size = *size;
  written.shards = job.meta.shard ? job.meta.shard->ranks : 0;
  written.removed_ids = folder_.Retain(retention_.keep_last, written.step, retention_.keep_best,
                                       written.step, retention_.badness);
  written.seconds = Seconds(begin);
  if (job.callback) job.callback(written);
  return absl::OkStatus();
}

}  // namespace genesis
