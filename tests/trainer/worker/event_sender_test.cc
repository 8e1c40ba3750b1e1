#include "trainer/worker/event_sender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <string>
#include <vector>

namespace genesis {
namespace {

using training::v1::AttachRequest;

AttachRequest StepsEvent(int64_t step) {
  AttachRequest event;
  event.mutable_steps()->set_new_steps(1);
  event.mutable_steps()->add_step_seconds(0.5f);
  event.mutable_steps()->mutable_progress()->set_step(step);
  return event;
}

AttachRequest CheckpointEvent() {
  AttachRequest event;
  event.mutable_checkpoint_written();
  return event;
}

// A stream whose first write blocks until it is released.
class SlowStream {
 public:
  bool Write(const AttachRequest& event) {
    if (events_.empty()) {
      entered_.set_value();
      gate_.get_future().wait();
    }
    events_.push_back(event);
    return true;
  }
  void AwaitFirstWrite() { entered_.get_future().wait(); }
  void LetGo() { gate_.set_value(); }
  const std::vector<AttachRequest>& events() const { return events_; }

 private:
  std::promise<void> entered_;
  std::promise<void> gate_;
  std::vector<AttachRequest> events_;
};

TEST(EventSenderTest, MergesStepsWhileTheDaemonIsSlowAndKeepsTheOrder) {
  SlowStream stream;
  EventSender sender;
  sender.Attach([&](const AttachRequest& event) {
    const bool sent = stream.Write(event);
    // Acknowledge it, as a daemon does once the event is durable.
    if (event.sequence() > 0) sender.Acknowledge(event.sequence());
    return sent;
  });
  sender.Enqueue(StepsEvent(1));
  stream.AwaitFirstWrite();
  for (int64_t step = 2; step <= 5; ++step) sender.Enqueue(StepsEvent(step));
  sender.Enqueue(CheckpointEvent());
  sender.Enqueue(StepsEvent(6));
  stream.LetGo();
  EXPECT_TRUE(sender.Drain());
  ASSERT_EQ(stream.events().size(), 4u);
  EXPECT_EQ(stream.events()[1].steps().new_steps(), 4);
  EXPECT_EQ(stream.events()[1].steps().step_seconds_size(), 4);
  EXPECT_EQ(stream.events()[1].steps().progress().step(), 5);
  EXPECT_TRUE(stream.events()[2].has_checkpoint_written());
  EXPECT_EQ(stream.events()[3].steps().progress().step(), 6);
}

// Covers every counter of a report, including fields added later.
TEST(MergeStepsTest, AddsEveryCounter) {
  training::v1::Steps older;
  const google::protobuf::Reflection* reflection = older.GetReflection();
  int counters = 0;
  training::v1::Steps newer;
  for (int i = 0; i < older.GetDescriptor()->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* field = older.GetDescriptor()->field(i);
    if (!field->name().starts_with("new_")) continue;
    reflection->SetInt64(&older, field, 40 + i);
    reflection->SetInt64(&newer, field, 2);
    ++counters;
  }
  EXPECT_GE(counters, 6);
  MergeSteps(newer, older);
  for (int i = 0; i < older.GetDescriptor()->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* field = older.GetDescriptor()->field(i);
    if (!field->name().starts_with("new_")) continue;
    EXPECT_EQ(reflection->GetInt64(older, field), 42 + i) << field->name();
  }
}

TEST(EventSenderTest, DropsLogLinesBeyondTheBoundButNeverACheckpoint) {
  SlowStream stream;
  EventSender sender;
  sender.Attach([&](const AttachRequest& event) {
    const bool sent = stream.Write(event);
    // Acknowledge it, as a daemon does once the event is durable.
    if (event.sequence() > 0) sender.Acknowledge(event.sequence());
    return sent;
  });
  sender.Enqueue(StepsEvent(1));
  stream.AwaitFirstWrite();
  AttachRequest line;
  line.mutable_log_line()->set_text("x");
  for (int i = 0; i < 1000; ++i) sender.Enqueue(line);
  sender.Enqueue(CheckpointEvent());
  stream.LetGo();
  EXPECT_TRUE(sender.Drain());
  EXPECT_EQ(stream.events().size(), 258u);
  EXPECT_TRUE(stream.events().back().has_checkpoint_written());
}

TEST(EventSenderTest, SendsAgainOnTheNextStreamWhatWasNotAcknowledged) {
  std::vector<AttachRequest> first;
  std::vector<AttachRequest> second;
  std::promise<void> sent;
  EventSender sender;
  sender.Attach([&](const AttachRequest& event) {
    first.push_back(event);
    if (first.size() == 3) sent.set_value();
    return true;
  });
  sender.Enqueue(CheckpointEvent());
  sender.Enqueue(StepsEvent(1));
  sender.Enqueue(CheckpointEvent());
  sent.get_future().wait();
  sender.Acknowledge(1);
  sender.Detach();
  sender.Enqueue(StepsEvent(2));
  sender.Enqueue(StepsEvent(3));
  sender.Attach([&](const AttachRequest& event) {
    second.push_back(event);
    if (event.sequence() > 0) sender.Acknowledge(event.sequence());
    return true;
  });
  EXPECT_TRUE(sender.Drain());
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0].sequence(), 2);
  EXPECT_TRUE(second[0].has_checkpoint_written());
  EXPECT_EQ(second[1].steps().new_steps(), 2);
}

TEST(EventSenderTest, KeepsAnEventWhoseWriteFailed) {
  std::vector<AttachRequest> sent;
  std::promise<void> failed;
  EventSender sender;
  sender.Attach([&](const AttachRequest&) {
    failed.set_value();
    return false;
  });
  sender.Enqueue(StepsEvent(1));
  failed.get_future().wait();
  sender.Detach();
  sender.Attach([&](const AttachRequest& event) {
    sent.push_back(event);
    return true;
  });
  EXPECT_TRUE(sender.Drain());
  EXPECT_EQ(sent.size(), 1u);
}

TEST(EventSenderTest, MakesTextsFitForTheWire) {
  AttachRequest sent;
  std::promise<void> arrived;
  EventSender sender;
  sender.Attach([&](const AttachRequest& event) {
    sent = event;
    arrived.set_value();
    return true;
  });
  AttachRequest event;
  event.mutable_finished()->mutable_failure()->set_message("half \xe2\x82" +
                                                           std::string(5'000'000, 'x'));
  sender.Enqueue(event);
  arrived.get_future().wait();
  EXPECT_TRUE(AttachRequest().ParseFromString(sent.SerializeAsString()));
  EXPECT_LE(sent.ByteSizeLong(), 5000U);
}

// A report that the daemon cannot read must be found, truncated and sent. It must not block the
// reports before or after it.
TEST(EventSenderTest, CutsDownTheReportThatTheDaemonCannotRead) {
  EventSender sender;
  std::vector<AttachRequest> read;
  std::mutex mutex;
  std::condition_variable broke;
  bool broken = false;
  // A daemon that cannot read checkpoint reports of 7 seconds, nor failures with a log.
  const auto write = [&](const AttachRequest& event) {
    const std::lock_guard lock(mutex);
    if (broken) return false;
    if (event.checkpoint_written().seconds() == 7 ||
        event.finished().failure().log_tail_size() > 0) {
      broken = true;
      broke.notify_all();
      return true;
    }
    read.push_back(event);
    sender.Acknowledge(event.sequence());
    return true;
  };
  AttachRequest bad = CheckpointEvent();
  bad.mutable_checkpoint_written()->set_seconds(7);
  AttachRequest end;
  end.mutable_finished()->set_outcome(training::v1::Finished::OUTCOME_FAILED);
  end.mutable_finished()->mutable_failure()->set_cause(training::v1::FAILURE_CAUSE_DATA);
  end.mutable_finished()->mutable_failure()->add_log_tail("line");
  for (const AttachRequest& event : {CheckpointEvent(), bad, CheckpointEvent(), end}) {
    sender.Enqueue(event);
  }
  sender.Attach(write);
  for (int streams = 0; streams < 4; ++streams) {
    {
      std::unique_lock lock(mutex);
      if (!broke.wait_for(lock, std::chrono::seconds(5),
                          [&] { return broken || read.size() == 3; })) {
        break;
      }
      if (!broken) break;
    }
    sender.Detach();
    sender.Refused();
    {
      const std::lock_guard lock(mutex);
      broken = false;
    }
    sender.Attach(write);
  }
  EXPECT_TRUE(sender.Drain());
  ASSERT_EQ(read.size(), 3U);
  EXPECT_EQ(read[0].sequence(), 1);
  EXPECT_EQ(read[1].sequence(), 3);
  EXPECT_EQ(read[2].finished().failure().cause(), training::v1::FAILURE_CAUSE_DATA);
}

TEST(EventSenderTest, DrainEndsWhenNoStreamWillCome) {
  EventSender sender;
  sender.Enqueue(CheckpointEvent());
  sender.GiveUp();
  EXPECT_FALSE(sender.Drain());
}

}  // namespace
}  // namespace genesis
