#include "trainer/run/event_sender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
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

// A stream whose first write waits until it is let go.
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
  EventSender sender([&](const AttachRequest& event) { return stream.Write(event); }, [] {});
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

TEST(EventSenderTest, DropsLogLinesBeyondTheBoundButNeverACheckpoint) {
  SlowStream stream;
  EventSender sender([&](const AttachRequest& event) { return stream.Write(event); }, [] {});
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

TEST(EventSenderTest, SaysOnceThatTheStreamBroke) {
  int broken = 0;
  EventSender sender([](const AttachRequest&) { return false; }, [&] { ++broken; });
  sender.Enqueue(StepsEvent(1));
  EXPECT_FALSE(sender.Drain());
  sender.Enqueue(StepsEvent(2));
  EXPECT_FALSE(sender.Drain());
  EXPECT_EQ(broken, 1);
}

}  // namespace
}  // namespace genesis
