#include "trainer/worker/event_sender.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "base/text/message_text.h"
#include "trainer/worker/error_line.h"

namespace genesis {
namespace {

using training::v1::AttachRequest;
using training::v1::Steps;

// Maximum queue length at which optional events are still queued.
constexpr size_t kMaxQueued = 256;
// Maximum number of step times in a merged report. If the daemon is away for longer, the oldest are
// lost.
constexpr int kMaxStepTimes = 65536;

// Returns whether the event is kept until the daemon has it, however long that takes.
bool IsKept(const AttachRequest& event) {
  return !event.has_steps() && !event.has_log_line() && !event.has_section_entered() &&
         !event.has_store_request() && !event.has_waiting_for_data();
}

// Returns whether the event is dropped if too many are queued.
bool IsOptional(const AttachRequest& event) {
  return event.has_log_line() || event.has_waiting_for_data();
}

constexpr char kUnreadable[] = "the worker's report could not be read; see the worker's log";

bool IsReduced(const training::v1::Finished& finished) {
  return finished.failure().message() == kUnreadable;
}

// Reduces the report of a job's end to its essentials, without texts and numbers from outside.
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
  // Uses reflection, so that counters added to the message later are included.
  const google::protobuf::Reflection& fields = *steps.GetReflection();
  for (int i = 0; i < steps.GetDescriptor()->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* const field = steps.GetDescriptor()->field(i);
    if (!absl::StartsWith(field->name(), "new_")) continue;
    fields.SetInt64(&steps, field, fields.GetInt64(older, field) + fields.GetInt64(newer, field));
  }
  steps.set_wait_seconds(older.wait_seconds() + newer.wait_seconds());
  older.mutable_step_seconds()->MergeFrom(newer.step_seconds());
  steps.mutable_step_seconds()->Swap(older.mutable_step_seconds());
  if (const int over = steps.step_seconds_size() - kMaxStepTimes; over > 0) {
    steps.mutable_step_seconds()->ExtractSubrange(0, over, nullptr);
  }
}

EventSender::EventSender() : thread_([this] { Loop(); }) {}

EventSender::~EventSender() {
  {
    const absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  thread_.join();
}

void EventSender::Enqueue(AttachRequest event) {
  BoundTexts(event);
  {
    const absl::MutexLock lock(&mutex_);
    if (IsKept(event)) event.set_sequence(++last_sequence_);
    const bool merges = event.has_steps() && !waiting_.empty() && waiting_.back().has_steps();
    if (merges) {
      MergeSteps(event.steps(), *waiting_.back().mutable_steps());
    } else if (!IsOptional(event) || waiting_.size() < kMaxQueued) {
      waiting_.push_back(std::move(event));
    }
  }
}

void EventSender::Attach(Write write) {
  {
    const absl::MutexLock lock(&mutex_);
    waiting_.insert(waiting_.begin(), unacknowledged_.begin(), unacknowledged_.end());
    unacknowledged_.clear();
    write_ = std::move(write);
  }
}

void EventSender::Detach() {
  const absl::MutexLock lock(&mutex_);
  write_ = nullptr;
  mutex_.Await(absl::Condition(this, &EventSender::Idle));
}

void EventSender::Refused() {
  const absl::MutexLock lock(&mutex_);
  if (one_at_a_time_ && !unacknowledged_.empty()) {
    AttachRequest& refused = unacknowledged_.front();
    PrintErrorLine("the daemon cannot read the report with number ", refused.sequence());
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
    const absl::MutexLock lock(&mutex_);
    // The acknowledgement may arrive before the write has returned.
    acknowledged_ = std::max(acknowledged_, sequence);
    const auto known = [acknowledged = acknowledged_](const AttachRequest& event) {
      return event.sequence() != 0 && event.sequence() <= acknowledged;
    };
    std::erase_if(unacknowledged_, known);
    std::erase_if(waiting_, known);
  }
}

bool EventSender::Drained() const {
  return waiting_.empty() && unacknowledged_.empty() && !writing_;
}

bool EventSender::DrainedOrGivenUp() const { return given_up_ || Drained(); }

bool EventSender::Drain() {
  const absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &EventSender::DrainedOrGivenUp));
  return Drained();
}

void EventSender::GiveUp() {
  {
    const absl::MutexLock lock(&mutex_);
    given_up_ = true;
  }
}

bool EventSender::HasWork() const {
  const bool may_send = !one_at_a_time_ || unacknowledged_.empty();
  return ending_ || (write_ && !waiting_.empty() && may_send);
}

void EventSender::Loop() {
  while (true) {
    AttachRequest event;
    Write write;
    {
      const absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &EventSender::HasWork));
      if (ending_) return;
      event = std::move(waiting_.front());
      waiting_.pop_front();
      writing_ = true;
      write = write_;
    }
    const bool sent = write(event);
    const absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (!sent) {
      write_ = nullptr;
      waiting_.push_front(std::move(event));
    } else if (event.sequence() > acknowledged_) {
      unacknowledged_.push_back(std::move(event));
    }
  }
}

}  // namespace genesis
