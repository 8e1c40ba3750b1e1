#include "trainer/worker/event_sender.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "base/message_text.h"

namespace genesis {
namespace {

using training::v1::AttachRequest;
using training::v1::Steps;

// Log lines wait in the queue only up to here.
constexpr size_t kMaxQueued = 256;
// Step times that a merged report carries; a daemon silent for longer loses the oldest.
constexpr int kMaxStepTimes = 65536;

// Whether the daemon must hear of it, however long it is away.
bool IsKept(const AttachRequest& event) {
  return !event.has_steps() && !event.has_log_line() && !event.has_section_entered();
}

constexpr char kUnreadable[] = "the worker's report could not be read; see the worker's log";

bool IsReduced(const training::v1::Finished& finished) {
  return finished.failure().message() == kUnreadable;
}

// The most important of an end, in words and numbers of our own.
void Reduce(training::v1::Finished& finished) {
  training::v1::Finished reduced;
  reduced.set_outcome(finished.outcome());
  if (finished.has_progress()) *reduced.mutable_progress() = finished.progress();
  reduced.mutable_failure()->set_cause(finished.failure().cause());
  reduced.mutable_failure()->set_message(kUnreadable);
  finished = std::move(reduced);
}

}  // namespace

void MergeSteps(const Steps& newer, Steps& steps) {
  Steps older = std::exchange(steps, newer);
  // By reflection, so that a counter that is added to the message is not lost here.
  const google::protobuf::Reflection& fields = *steps.GetReflection();
  for (int i = 0; i < steps.GetDescriptor()->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = steps.GetDescriptor()->field(i);
    if (!absl::StartsWith(field->name(), "new_")) continue;
    fields.SetInt64(&steps, field, fields.GetInt64(older, field) + fields.GetInt64(newer, field));
  }
  older.mutable_step_seconds()->MergeFrom(newer.step_seconds());
  steps.mutable_step_seconds()->Swap(older.mutable_step_seconds());
  if (const int over = steps.step_seconds_size() - kMaxStepTimes; over > 0) {
    steps.mutable_step_seconds()->ExtractSubrange(0, over, nullptr);
  }
}

EventSender::EventSender() : thread_([this] { Loop(); }) {}

EventSender::~EventSender() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EventSender::Enqueue(AttachRequest event) {
  BoundTexts(event);
  {
    const std::lock_guard lock(mutex_);
    if (IsKept(event)) event.set_sequence(++last_sequence_);
    const bool merges = event.has_steps() && !waiting_.empty() && waiting_.back().has_steps();
    if (merges) {
      MergeSteps(event.steps(), *waiting_.back().mutable_steps());
    } else if (!event.has_log_line() || waiting_.size() < kMaxQueued) {
      waiting_.push_back(std::move(event));
    }
  }
  changed_.notify_all();
}

void EventSender::Attach(Write write) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.insert(waiting_.begin(), unacknowledged_.begin(), unacknowledged_.end());
    unacknowledged_.clear();
    write_ = std::move(write);
  }
  changed_.notify_all();
}

void EventSender::Detach() {
  std::unique_lock lock(mutex_);
  write_ = nullptr;
  changed_.wait(lock, [this] { return !writing_; });
}

void EventSender::Refused() {
  const std::lock_guard lock(mutex_);
  if (one_at_a_time_ && !unacknowledged_.empty()) {
    AttachRequest& refused = unacknowledged_.front();
    std::cerr << "the daemon cannot read the report with number " << refused.sequence()
              << std::endl;
    if (refused.has_finished() && !IsReduced(refused.finished())) {
      Reduce(*refused.mutable_finished());
    } else {
      unacknowledged_.pop_front();
    }
  }
  one_at_a_time_ = true;
}

void EventSender::Acknowledge(int64_t sequence) {
  {
    const std::lock_guard lock(mutex_);
    // It may come before the write has returned.
    acknowledged_ = std::max(acknowledged_, sequence);
    const auto known = [this](const AttachRequest& event) {
      return event.sequence() != 0 && event.sequence() <= acknowledged_;
    };
    std::erase_if(unacknowledged_, known);
    std::erase_if(waiting_, known);
  }
  changed_.notify_all();
}

bool EventSender::Drain() {
  std::unique_lock lock(mutex_);
  const auto told = [this] { return waiting_.empty() && unacknowledged_.empty() && !writing_; };
  changed_.wait(lock, [&] { return given_up_ || told(); });
  return told();
}

void EventSender::GiveUp() {
  {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
  }
  changed_.notify_all();
}

void EventSender::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] {
      const bool may_send = !one_at_a_time_ || unacknowledged_.empty();
      return ending_ || (write_ && !waiting_.empty() && may_send);
    });
    if (ending_) return;
    AttachRequest event = std::move(waiting_.front());
    waiting_.pop_front();
    writing_ = true;
    const Write write = write_;
    lock.unlock();
    const bool sent = write(event);
    lock.lock();
    writing_ = false;
    if (!sent) {
      write_ = nullptr;
      waiting_.push_front(std::move(event));
    } else if (event.sequence() > acknowledged_) {
      unacknowledged_.push_back(std::move(event));
    }
    changed_.notify_all();
  }
}

}  // namespace genesis
