#include "trainer/distributed/optimizer_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/trainer/threaded_ranks.h"
#include "trainer/optim/part_of.h"

namespace genesis {
namespace {

using Named = std::vector<std::pair<std::string, at::Tensor>>;

std::vector<at::Tensor> Masters(double value) {
  std::vector<at::Tensor> masters;
  for (const int64_t size : {10, 500, 20, 500, 30, 500, 40, 100}) {
    masters.push_back(torch::full({size}, value));
  }
  return masters;
}

// Sums the gradients of all ranks through shared memory or Gloo. Each rank gets at least its own
// part of the means.
void AddUpGradients(GradientReducer& reducer, float value, const RankGroup& ranks) {
  const size_t count = reducer.memory().size();
  for (size_t i = 0; i < count; ++i) {
    reducer.Put(i, torch::full_like(reducer.memory()[i], value));
  }
  reducer.Finish(torch::zeros({}), torch::ones({static_cast<int64_t>(count)}));
  const at::Tensor& mean = reducer.memory()[3];
  const IndexRange part = PartOf(mean.numel(), ranks.rank(), ranks.size());
  const at::Tensor own = mean.slice(0, part.begin, part.end);
  EXPECT_TRUE(torch::allclose(own, torch::full_like(own, value)));
}

// Parameters: whether gradients pass through shared memory or Gloo, and whether compressed.
class OptimizerShardsTest : public testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  OptimizerShardsTest() {
    if (std::get<1>(GetParam())) {
      spec_.set_gradient_compression(training::v1::GRADIENT_COMPRESSION_BF16);
    }
    options_.shared_memory = std::get<0>(GetParam());
  }

  training::v1::DistributedSpec spec_;
  RankOptions options_;
};

TEST_P(OptimizerShardsTest, WithoutCommonMemoryEachParameterHasOneOwnerAndLoadsAreEven) {
  WithRanks(3, options_, [&](RankGroup& ranks) {
    const std::vector<at::Tensor> masters = Masters(ranks.rank() + 1.0 / 3);
    GradientReducer reducer(ranks, masters, spec_);
    OptimizerShards shards(ranks, reducer, masters);
    EXPECT_FALSE(shards.together());
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
    for (int step = 0; step < 100; ++step) {
      AddUpGradients(reducer, static_cast<float>(step % 64), ranks);
      for (size_t i = 0; i < masters.size(); ++i) {
        masters[i].fill_(shards.owns(i) ? ranks.rank() + step / 3.0 : -1);
      }
      shards.ShareWeights();
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

TEST_P(OptimizerShardsTest, InCommonMemoryThereIsOneCopy) {
  WithRanks(3, options_, [&](RankGroup& ranks) {
    std::vector<at::Tensor> masters = Masters(ranks.rank() + 1.0 / 3);
    // An alias of a master weight, as models have.
    const at::Tensor alias = masters[1].view({50, 10});
    GradientReducer reducer(ranks, masters, spec_, OptimizerShards::CommonBytes(masters));
    OptimizerShards shards(ranks, reducer, masters);
    ASSERT_EQ(shards.together(), options_.shared_memory);
    if (!shards.together()) return;
    EXPECT_TRUE(torch::equal(masters[1], torch::full({500}, 1.0 / 3)));
    EXPECT_EQ(alias.data_ptr(), masters[1].data_ptr());
    const at::Tensor state = shards.Zeros(masters[1]);
    EXPECT_TRUE(state.eq(0).all().item<bool>());
    ranks.Await();
    for (int step = 0; step < 100; ++step) {
      AddUpGradients(reducer, static_cast<float>(step % 64), ranks);
      for (at::Tensor written : {masters[1], state}) {
        written.narrow(0, 100 * ranks.rank(), 100).fill_(step + ranks.rank());
      }
      shards.ShareWeights();
      for (const int rank : {0, 1, 2}) {
        EXPECT_EQ(alias[10 * rank][0].item<double>(), step + rank);
        EXPECT_EQ(state[100 * rank + 99].item<double>(), step + rank);
      }
      shards.AwaitReaders();
    }
    EXPECT_TRUE(masters[1].narrow(0, 300, 200).eq(1.0 / 3).all().item<bool>());
  });
}

TEST_P(OptimizerShardsTest, CommonMemoryOutlivesItsOwner) {
  WithRanks(2, options_, [&](RankGroup& ranks) {
    const std::vector<at::Tensor> masters = Masters(ranks.rank() + 1.0);
    {
      GradientReducer reducer(ranks, masters, spec_, OptimizerShards::CommonBytes(masters));
      const OptimizerShards shards(ranks, reducer, masters);
    }
    EXPECT_TRUE(
        masters[1].eq(options_.shared_memory ? 1.0 : ranks.rank() + 1.0).all().item<bool>());
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, OptimizerShardsTest,
                         testing::Combine(testing::Bool(), testing::Bool()));

TEST(OptimizerShardsBytesTest, WeightsThatShareAStorageWithOthersStayWhereTheyAre) {
  const at::Tensor whole = torch::ones({100});
  EXPECT_EQ(OptimizerShards::CommonBytes({whole.narrow(0, 0, 50), whole.narrow(0, 50, 50)}),
            448U + 2 * (256U + 256U));
  EXPECT_EQ(OptimizerShards::CommonBytes({whole.narrow(0, 0, 50)}), 0U);
}

}  // namespace
}  // namespace genesis
