#include "trainer/run/event_sender.h"

#include <utility>

namespace genesis {
namespace {

using training::v1::AttachRequest;
using training::v1::Steps;

// Log lines wait in the queue only up to here.
constexpr size_t kMaxQueued = 256;
// Step times that a merged report carries; a daemon silent for longer loses the oldest.
constexpr int kMaxStepTimes = 65536;

}  // namespace

void MergeSteps(const Steps& newer, Steps& steps) {
  *steps.mutable_progress() = newer.progress();
  steps.set_new_steps(steps.new_steps() + newer.new_steps());
  steps.set_new_samples(steps.new_samples() + newer.new_samples());
  steps.set_new_reduced_precision_steps(steps.new_reduced_precision_steps() +
                                        newer.new_reduced_precision_steps());
  steps.set_new_skipped_steps(steps.new_skipped_steps() + newer.new_skipped_steps());
  steps.set_new_scale_growths(steps.new_scale_growths() + newer.new_scale_growths());
  steps.mutable_step_seconds()->MergeFrom(newer.step_seconds());
  if (const int over = steps.step_seconds_size() - kMaxStepTimes; over > 0) {
    steps.mutable_step_seconds()->ExtractSubrange(0, over, nullptr);
  }
  if (newer.has_cuda_memory_allocated_bytes()) {
    steps.set_cuda_memory_allocated_bytes(newer.cuda_memory_allocated_bytes());
  }
}

EventSender::EventSender(Write write, std::function<void()> on_broken)
    : write_(std::move(write)), on_broken_(std::move(on_broken)), thread_([this] { Loop(); }) {}

EventSender::~EventSender() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EventSender::Enqueue(AttachRequest event) {
  {
    const std::lock_guard lock(mutex_);
    if (broken_) return;
    const bool merges = event.has_steps() && !queue_.empty() && queue_.back().has_steps();
    if (merges) {
      MergeSteps(event.steps(), *queue_.back().mutable_steps());
    } else if (!event.has_log_line() || queue_.size() < kMaxQueued) {
      queue_.push_back(std::move(event));
    }
  }
  changed_.notify_all();
}

bool EventSender::Drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return broken_ || (queue_.empty() && !writing_); });
  return !broken_;
}

void EventSender::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !queue_.empty(); });
    if (ending_) return;
    const AttachRequest event = std::move(queue_.front());
    queue_.pop_front();
    writing_ = true;
    lock.unlock();
    const bool sent = write_(event);
    if (!sent) on_broken_();
    lock.lock();
    writing_ = false;
    changed_.notify_all();
    if (sent) continue;
    broken_ = true;
    queue_.clear();
    return;
  }
}

}  // namespace genesis
