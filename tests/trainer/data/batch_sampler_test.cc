#include "trainer/data/batch_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace genesis {
namespace {

TEST(BatchSamplerTest, VisitsEveryTransitionOncePerEpoch) {
  const BatchSampler sampler(1000, 10, 7);
  std::vector<int64_t> order = sampler.order();
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(BatchSamplerTest, RepeatsTheOrderThatItsHeaderDocuments) {
  // Expected values are from the Python code in batch_sampler.h: permutation(8, seed, epoch).
  EXPECT_THAT(BatchSampler(8, 2, 0).order(), testing::ElementsAre(2, 5, 0, 3, 4, 6, 1, 7));
  BatchSampler later(8, 2, 42);
  later.Seek({.epoch = 3, .batch = 0});
  EXPECT_THAT(later.order(), testing::ElementsAre(3, 4, 6, 1, 0, 7, 5, 2));
}

TEST(BatchSamplerTest, DropsTheTailAndShufflesAnew) {
  BatchSampler sampler(10, 4, 1);
  const std::vector<int64_t> first = sampler.order();
  EXPECT_EQ(sampler.batches_per_epoch(), 2);
  sampler.Advance();
  EXPECT_EQ(sampler.offset(), 4);
  sampler.Advance();
  EXPECT_EQ(sampler.position().epoch, 1);
  EXPECT_EQ(sampler.offset(), 0);
  EXPECT_NE(sampler.order(), first);
}

TEST(BatchSamplerTest, ContinuesFromAPosition) {
  BatchSampler walked(100, 7, 5);
  for (int i = 0; i < 31; ++i) walked.Advance();
  BatchSampler sought(100, 7, 5);
  sought.Seek(walked.position());
  EXPECT_EQ(sought.order(), walked.order());
  EXPECT_EQ(sought.offset(), walked.offset());
}

}  // namespace
}  // namespace genesis
