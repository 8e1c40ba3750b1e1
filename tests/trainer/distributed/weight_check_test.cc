#include "trainer/distributed/weight_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/trainer/threaded_ranks.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {
namespace {

using ::testing::HasSubstr;

using Named = std::vector<std::pair<std::string, at::Tensor>>;

Named Weights() {
  torch::manual_seed(1);
  return {{"a.weight", torch::arange(12.0).reshape({3, 4})},
          {"b.weight",
           torch::arange(24.0).reshape({2, 3, 2, 2}).contiguous(torch::MemoryFormat::ChannelsLast)},
          {"b.bias", torch::ones({7})}};
}

std::string Fault(RankGroup& ranks, const Named& weights) {
  try {
    RequireSameWeights(ranks, 200, weights);
  } catch (const RunFailure& failure) {
    EXPECT_EQ(failure.cause, training::v1::FAILURE_CAUSE_DEVICE);
    return failure.message;
  }
  return "";
}

TEST(WeightCheckTest, TheSameWeightsPass) {
  WithRanks(3, [](RankGroup& ranks) { EXPECT_EQ(Fault(ranks, Weights()), ""); });
}

TEST(WeightCheckTest, TheRankThatDiffersFromMostIsNamedToAll) {
  WithRanks(3, [](RankGroup& ranks) {
    Named weights = Weights();
    // Change one element by one unit in the last place.
    if (ranks.rank() == 0) weights[1].second[1][2][0][1] += 2e-6;
    EXPECT_THAT(Fault(ranks, weights),
                HasSubstr("after step 200 the weights of rank 0 differ from those of the other "
                          "ranks, first in b.weight (distributed.weight_check_every_steps)"));
  });
}

TEST(WeightCheckTest, OfTwoItCannotBeKnownWhichIsRight) {
  WithRanks(2, [](RankGroup& ranks) {
    Named weights = Weights();
    if (ranks.rank() == 1) weights[2].second[6] = -1;
    EXPECT_THAT(Fault(ranks, weights),
                HasSubstr("the weights of rank 0 and rank 1 differ, first in b.bias"));
  });
}

}  // namespace
}  // namespace genesis
