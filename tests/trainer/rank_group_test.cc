#include "trainer/distributed/rank_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "trainer/guard/non_finite_diagnosis.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

RankPlace Place(int rank, int size) {
  RankPlace place;
  place.rank = rank;
  place.size = size;
  return place;
}

// Each rank is a thread here; the store is theirs alone.
void WithRanks(int size, const std::function<void(RankGroup&)>& work) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      RankGroup ranks(Place(rank, size), store);
      work(ranks);
      ranks.Await();  // Nobody leaves while another is at it.
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RankGroupTest, MakesMeansOfGradientsAndLoss) {
  WithRanks(3, [](RankGroup& ranks) {
    const float own = static_cast<float>(ranks.rank());
    // Any layout, as those of convolutions in channels_last.
    std::vector<torch::Tensor> gradients = {
        torch::full({2, 3, 4, 5}, own).contiguous(torch::MemoryFormat::ChannelsLast),
        torch::full({7}, 3 * own), torch::full({}, 6 * own)};
    for (int step = 0; step < 2; ++step) {
      const torch::Tensor loss = ranks.Average(gradients, torch::full({}, own + 1));
      EXPECT_EQ(loss.item<float>(), 2);
      EXPECT_EQ(loss.dim(), 0);
      EXPECT_TRUE(gradients[0].eq(1).all().item<bool>());
      EXPECT_TRUE(gradients[1].eq(3).all().item<bool>());
      EXPECT_EQ(gradients[2].item<float>(), 6);
      EXPECT_TRUE(gradients[0].is_contiguous(torch::MemoryFormat::ChannelsLast));
    }
  });
}

TEST(RankGroupTest, AnInfinityOfOneRankIsEverybodys) {
  WithRanks(2, [](RankGroup& ranks) {
    const std::vector<torch::Tensor> gradients = {torch::ones({3})};
    if (ranks.rank() == 1) gradients[0][2] = INFINITY;
    const torch::Tensor loss = ranks.Average(gradients, torch::ones({}));
    EXPECT_EQ(loss.item<float>(), 1);
    EXPECT_EQ(gradients[0][1].item<float>(), 1);
    EXPECT_TRUE(std::isinf(gradients[0][2].item<float>()));
  });
}

TEST(RankGroupTest, AFlagOfOneRankIsSeenByAll) {
  WithRanks(2, [](RankGroup& ranks) {
    ranks.SetFlags({.stop = ranks.rank() == 1, .seconds = ranks.rank() + 1.0});
    EXPECT_FALSE(ranks.agreed().stop);
    ranks.Average({torch::ones({2})}, torch::ones({}));
    EXPECT_TRUE(ranks.agreed().stop);
    EXPECT_FALSE(ranks.agreed().checkpoint);
    EXPECT_FALSE(ranks.agreed().time_is_up);
    EXPECT_EQ(ranks.agreed().seconds, 1.5);
    ranks.SetFlags({.checkpoint = ranks.rank() == 0});
    ranks.Average({torch::ones({2})}, torch::ones({}));
    EXPECT_FALSE(ranks.agreed().stop);
    EXPECT_TRUE(ranks.agreed().checkpoint);
  });
}

TEST(RankGroupTest, TellsWhatTheFirstAndWhatEachGave) {
  WithRanks(2, [](RankGroup& ranks) {
    const std::string own = ranks.first() ? std::string("a\0b", 3) : "c";
    for (int turn = 0; turn < 2; ++turn) {
      EXPECT_EQ(ranks.FromFirst(own), std::string("a\0b", 3));
      EXPECT_THAT(ranks.FromAll(own), ElementsAre(std::string("a\0b", 3), "c"));
    }
    EXPECT_EQ(ranks.FromFirst(ranks.first() ? "" : "other"), "");
  });
}

TEST(RankGroupTest, CopiesTensorsOfAnyType) {
  WithRanks(2, [](RankGroup& ranks) {
    const double own = ranks.rank() + 1;
    const std::vector<torch::Tensor> tensors = {
        torch::full({2, 3}, own), torch::full({4}, own, torch::kLong), torch::zeros({0}),
        torch::full({2, 2}, own, torch::kBFloat16).t(), torch::full({}, own > 1, torch::kBool)};
    ranks.CopyFromFirst(tensors);
    EXPECT_TRUE(tensors[0].eq(1).all().item<bool>());
    EXPECT_TRUE(tensors[1].eq(1).all().item<bool>());
    EXPECT_TRUE(tensors[3].eq(1).all().item<bool>());
    EXPECT_FALSE(tensors[4].item<bool>());
  });
}

TEST(RankGroupTest, WhatOneRankFoundIsWhatAllGoBy) {
  WithRanks(3, [](RankGroup& ranks) {
    NonFiniteDiagnosis own;
    own.parameters = {"encoder.0.weight"};
    EXPECT_EQ(FirstDiagnosis(ranks, own).verdict, Verdict::kPassed);
    if (!ranks.first()) {
      own.verdict = ranks.rank() == 1 ? Verdict::kPrecision : Verdict::kData;
      own.micro_batch = ranks.rank();
      own.module = "encoder.0 (aten::linear)";
      own.examples = {7, 9};
    }
    const NonFiniteDiagnosis found = FirstDiagnosis(ranks, own);
    EXPECT_EQ(found.verdict, Verdict::kPrecision);
    EXPECT_EQ(found.micro_batch, 1);
    EXPECT_EQ(found.module, "encoder.0 (aten::linear)");
    EXPECT_THAT(found.parameters, ElementsAre("encoder.0.weight"));
    EXPECT_THAT(found.examples, ElementsAre(7, 9));
  });
}

TEST(RankGroupTest, ARankThatEndsIsAFailureOfTheOthers) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::thread other([&] {
    RankGroup ranks(Place(1, 2), store);
    ranks.Average({torch::ones({2})}, torch::ones({}));
  });
  RankGroup ranks(Place(0, 2), store);
  ranks.Average({torch::ones({2})}, torch::ones({}));
  other.join();
  try {
    ranks.Average({torch::ones({2})}, torch::ones({}));
    FAIL() << "a sum of one rank";
  } catch (const RunFailure& failure) {
    EXPECT_EQ(failure.cause, training::v1::FAILURE_CAUSE_WORKER_EXIT);
    EXPECT_THAT(
        failure.message,
        HasSubstr("rank 0 of 2 cannot add up gradients: another rank has ended or cannot be "
                  "reached; the log of the rank that ended first says why ("));
  }
}

}  // namespace
}  // namespace genesis
