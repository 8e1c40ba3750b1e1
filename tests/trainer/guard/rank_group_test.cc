#include "trainer/distributed/rank_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "tests/trainer/threaded_ranks.h"
#include "trainer/distributed/missing_ranks.h"
#include "trainer/guard/non_finite_diagnosis.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RankGroupTest, TellsWhatTheFirstAndWhatEachGave) {
  WithRanks(2, [](RankGroup& ranks) {
    const std::string own = ranks.first() ? std::string("a\0b", 3) : "c";
    for (int turn = 0; turn < 2; ++turn) {
      EXPECT_EQ(ranks.FromFirst(own), std::string("a\0b", 3));
      EXPECT_THAT(ranks.FromAll(own), ElementsAre(std::string("a\0b", 3), "c"));
      const at::Tensor part = torch::tensor({1.5, 2.5 + ranks.rank()}, at::kDouble);
      EXPECT_TRUE(torch::equal(ranks.JoinAll(part), torch::tensor({1.5F, 2.5F, 1.5F, 3.5F})));
    }
    EXPECT_EQ(ranks.FromFirst(ranks.first() ? "" : "other"), "");
  });
}

TEST(RankGroupTest, OneThatIsAloneKeepsItsOwnValues) {
  RankGroup alone;
  EXPECT_TRUE(alone.alone() && alone.first());
  EXPECT_EQ(alone.size(), 1);
  EXPECT_EQ(alone.FromFirst("a"), "a");
  EXPECT_THAT(alone.FromAll("a"), ElementsAre("a"));
  EXPECT_EQ(alone.FirstFault("no memory"), "no memory");
  const at::Tensor part = torch::tensor({{1.5, 2.5}}, at::kDouble);
  EXPECT_TRUE(torch::equal(alone.JoinAll(part), torch::tensor({1.5F, 2.5F})));
  alone.Sum(part);
  alone.CopyFromFirst({part});
  EXPECT_TRUE(torch::equal(part, torch::tensor({{1.5, 2.5}}, at::kDouble)));
  training::v1::Incident incident;
  incident.set_module("encoder");
  alone.CopyFromFirst(incident);
  EXPECT_EQ(incident.module(), "encoder");
  alone.Await();
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
    RankGroup ranks(PlaceOf(1, 2), store);
    ranks.Await();
  });
  RankGroup ranks(PlaceOf(0, 2), store);
  ranks.Await();
  other.join();
  EXPECT_THAT(FailureOf([&] { ranks.Await(); }),
              HasSubstr("rank 0 of 2 cannot wait for the others: rank 1 does not answer: killed, "
                        "stopped or cut off; the log there says why ("));
}

TEST(RankGroupTest, ARankThatFailsSaysWhyToTheOthers) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::thread other([&] {
    RankGroup ranks(PlaceOf(1, 2), store);
    ranks.Await();
    ranks.TellFailure("data.npz: row 7\nis NaN");
  });
  RankGroup ranks(PlaceOf(0, 2), store);
  ranks.Await();
  other.join();
  EXPECT_THAT(FailureOf([&] { ranks.Await(); }),
              HasSubstr("cannot wait for the others: rank 1 failed: data.npz: row 7\\nis NaN ("));
}

TEST(RankGroupTest, ARankThatNeverComesIsNamed) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const RankOptions options{.timeout = std::chrono::milliseconds(1500)};
  EXPECT_THAT(FailureOf([&] { RankGroup(PlaceOf(0, 2), store, options); }),
              HasSubstr("rank 0 of 2 cannot join the others: rank 1 never came; start WORLD_SIZE "
                        "ranks ("));
}

TEST(RankGroupTest, WhoIsWaitedForIsTold) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  TellPresence(*store, 0);
  std::vector<std::string> lines;
  const auto tell = [&](const std::string& line) {
    lines.push_back(line);
    TellPresence(*store, static_cast<int>(lines.size()));
  };
  AwaitPresence(*store, 3, std::chrono::minutes(2), std::chrono::milliseconds(100), tell);
  EXPECT_THAT(lines, ElementsAre("waiting for ranks 1, 2 of 3 for 0.1 s; for 120 s at most",
                                 "waiting for rank 2 of 3 for 0.2 s; for 120 s at most"));
  EXPECT_ANY_THROW(AwaitPresence(*store, 4, std::chrono::milliseconds(20),
                                 std::chrono::milliseconds(100), tell));
  EXPECT_EQ(lines.size(), 2U);
}

TEST(RankGroupTest, ASecondProcessOfOneRankIsRefused) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::thread other([&] {
    RankGroup ranks(PlaceOf(1, 2), store);
    ranks.Await();
  });
  RankGroup ranks(PlaceOf(0, 2), store);
  EXPECT_THAT(
      FailureOf([&] { RankGroup(PlaceOf(1, 2), store); }),
      HasSubstr("rank 1 of 2 cannot join the others: another process already has this rank; "
                "use a separate MASTER_PORT for each launch"));
  // The group can still be used.
  ranks.Await();
  other.join();
}

}  // namespace
}  // namespace genesis
