#include "base/text/message_text.h"

#include <gtest/gtest.h>

#include <string>

#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {
namespace {

using training::v1::AttachRequest;

bool Reads(const AttachRequest& event) {
  AttachRequest read;
  return read.ParseFromString(event.SerializeAsString());
}

TEST(MessageTextTest, MakesEveryStringReadable) {
  AttachRequest event;
  training::v1::Failure& failure = *event.mutable_finished()->mutable_failure();
  failure.set_message("cut inside \xe2\x82");
  failure.add_log_tail("fine");
  failure.add_log_tail(std::string("raw \xff\0 bytes", 12));
  ASSERT_FALSE(Reads(event));
  BoundTexts(event);
  EXPECT_TRUE(Reads(event));
  EXPECT_EQ(failure.message(), "cut inside \\xe2\\x82");
  EXPECT_EQ(failure.log_tail(0), "fine");
  EXPECT_EQ(failure.log_tail(1), "raw \\xff\\x00 bytes");
}

TEST(MessageTextTest, BoundsOneStringAndAllTogether) {
  AttachRequest event;
  training::v1::Failure& failure = *event.mutable_finished()->mutable_failure();
  failure.set_message(std::string(9'000'000, 'm'));
  for (int i = 0; i < 3000; ++i) failure.add_log_tail(std::string(5000, 'l'));
  BoundTexts(event);
  EXPECT_EQ(failure.message().size(), 4096U);
  EXPECT_LT(event.ByteSizeLong(), size_t{1'100'000});
  EXPECT_GT(failure.log_tail_size(), 100);
  EXPECT_EQ(failure.log_tail(0).size(), 4096U);
}

TEST(MessageTextTest, LeavesNumbersAndFitTextAlone) {
  AttachRequest event;
  event.set_job_id("job-1");
  event.mutable_checkpoint_written()->mutable_checkpoint()->set_path("/dätä/ckpt 1.pt");
  event.mutable_checkpoint_written()->set_seconds(0.5);
  const std::string before = event.SerializeAsString();
  BoundTexts(event);
  EXPECT_EQ(event.SerializeAsString(), before);
}

}  // namespace
}  // namespace genesis
