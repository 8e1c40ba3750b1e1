#include "trainer/guard/non_finite_trace.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <thread>

#include "absl/synchronization/notification.h"

namespace genesis {
namespace {

TEST(NonFiniteTraceTest, NamesTheModuleWhoseOutputWasTheFirst) {
  const torch::Tensor weight = torch::full({2, 2}, 1e30);
  const torch::Tensor other = torch::ones({2, 2});
  const NonFiniteTrace trace({{"decoder.0.weight", other}, {"encoder.0.weight", weight}});
  torch::mm(torch::mm(weight, weight), other);
  EXPECT_EQ(trace.found(), "encoder.0 (aten::mm)");
}

TEST(NonFiniteTraceTest, FollowsTheBackwardPass) {
  const torch::Tensor weight = torch::full({1}, 0.0F, torch::requires_grad());
  const NonFiniteTrace trace({{"head.scale", weight}});
  torch::sqrt(weight).sum().backward();
  EXPECT_TRUE(std::isinf(weight.grad().item<float>()));
  EXPECT_EQ(trace.found(), "head (aten::div)");
}

// Checkpoints and batches are created by other threads while a step is diagnosed.
TEST(NonFiniteTraceTest, LeavesOtherThreadsAlone) {
  absl::Notification begun;
  absl::Notification ended;
  std::thread other([&] {
    begun.WaitForNotification();
    torch::log(torch::zeros({2}));
    ended.Notify();
  });
  {
    const NonFiniteTrace trace({});
    begun.Notify();
    ended.WaitForNotification();
    EXPECT_EQ(trace.found(), "");
  }
  other.join();
}

}  // namespace
}  // namespace genesis
