#include "trainer/checkpoint/checkpoint_writer.h"

#include <chrono>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointFolder folder, Retention retention)
    : folder_(std::move(folder)), retention_(retention), thread_([this] { Serve(); }) {}

CheckpointWriter::~CheckpointWriter() {
  {
    const absl::MutexLock lock(&mutex_);
    ending_ = true;
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
  return absl::OkStatus();
}

absl::Status CheckpointWriter::Flush() {
  const absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &CheckpointWriter::Idle));
  return TakeError();
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
      // Nobody above catches on this thread.
      status = absl::InternalError(absl::StrCat(folder_.Path(job->state.position.step),
                                                ": cannot be written: ", error.what()));
    }
    // Its memory is free before the next state comes.
    job.reset();
    const absl::MutexLock lock(&mutex_);
    error_.Update(status);
    busy_ = false;
  }
}

absl::Status CheckpointWriter::Write(const Job& job) {
  const auto begin = std::chrono::steady_clock::now();
  WrittenCheckpoint written;
  written.step = job.state.position.step;
  written.id = folder_.Id(written.step);
  written.path = folder_.Path(written.step);
  if (const std::string name = FirstNonFinite(job.state); !name.empty()) {
    return absl::OutOfRangeError(absl::StrCat(name, " is not finite after step ", written.step,
                                              "; lower optimizer.learning_rate"));
  }
  const absl::StatusOr<int64_t> size = WriteCheckpoint(job.state, written.path, job.meta);
  if (!size.ok()) return size.status();
  written.size = *size;
  written.removed_ids =
      folder_.Retain(retention_.keep_last, written.step, retention_.keep_best, written.step);
  written.seconds = Seconds(begin);
  if (job.callback) job.callback(written);
  return absl::OkStatus();
}

}  // namespace genesis
