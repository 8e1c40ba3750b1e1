#include "trainer/distributed/weight_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/trainer/threaded_ranks.h"
#include "trainer/distributed/optimizer_shards.h"
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
    // The last bit of one number.
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

// By shared memory and by Gloo, plain and compressed: whatever way the gradients take.
class OptimizerShardsTest : public testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(OptimizerShardsTest, EachParameterHasOneOwnerAndLoadsAreEven) {
  RankOptions options;
  options.shared_memory = std::get<0>(GetParam());
  training::v1::DistributedSpec spec;
  if (std::get<1>(GetParam())) {
    spec.set_gradient_compression(training::v1::GRADIENT_COMPRESSION_BF16);
  }
  WithRanks(3, options, [&](RankGroup& ranks) {
    std::vector<at::Tensor> masters;
    for (const int64_t size : {10, 500, 20, 500, 30, 500, 40, 100}) {
      masters.push_back(torch::full({size}, ranks.rank() + 1.0 / 3));
    }
    GradientReducer reducer(ranks, masters, spec);
    OptimizerShards shards(ranks, masters);
    int64_t load = 0;
    std::string owned;
    for (size_t i = 0; i < masters.size(); ++i) {
      owned += shards.owns(i) ? '1' : '0';
      if (shards.owns(i)) load += masters[i].numel();
    }
    EXPECT_LE(load, 600);
    EXPECT_GE(load, 500);
    const std::vector<std::string> all = ranks.FromAll(owned);
    for (size_t i = 0; i < masters.size(); ++i) {
      EXPECT_EQ((all[0][i] == '1') + (all[1][i] == '1') + (all[2][i] == '1'), 1);
    }
    for (int step = 0; step < 300; ++step) {
      for (size_t i = 0; i < masters.size(); ++i) {
        reducer.memory()[i].fill_(step %
                                  64);  // Gradients, in the memory that weights go through too.
        reducer.MarkReady(i);
      }
      reducer.Finish(torch::zeros({}), torch::ones({static_cast<int64_t>(masters.size())}));
      EXPECT_TRUE(reducer.memory()[3].eq(3 * (step % 64)).all().item<bool>());
      for (size_t i = 0; i < masters.size(); ++i) {
        masters[i].fill_(shards.owns(i) ? ranks.rank() + step / 3.0 : -1);
      }
      shards.ShareWeights(reducer);
      for (size_t i = 0; i < masters.size(); ++i) {
        const int owner = all[0][i] == '1' ? 0 : all[1][i] == '1' ? 1 : 2;
        EXPECT_TRUE(torch::equal(masters[i], torch::full_like(masters[i], owner + step / 3.0)));
      }
    }
    std::vector<Named> entries;
    for (size_t i = 0; i < masters.size(); ++i) {
      entries.push_back({{"state", torch::full({3}, shards.owns(i) ? 7.0 + i : -1.0)}});
    }
    shards.GatherOnFirst(entries);
    if (!ranks.first()) return;
    for (size_t i = 0; i < masters.size(); ++i) {
      EXPECT_TRUE(entries[i][0].second.eq(7.0 + i).all().item<bool>());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, OptimizerShardsTest,
                         testing::Combine(testing::Bool(), testing::Bool()));

}  // namespace
}  // namespace genesis
