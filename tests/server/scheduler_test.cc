#include "server/jobs/scheduler.h"

#include <gmock/gmock.h>

namespace genesis {
namespace {

using testing::ElementsAre;

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

HoldingJob Holding(const char* id, int priority, const char* owner, int age_seconds) {
  return {id, priority, owner, kNow - absl::Seconds(age_seconds), std::nullopt};
}

TEST(Scheduler, OrdersByPriorityThenByAge) {
  const std::vector<WaitingJob> waiting = {
      {"old", 0, "a", 1}, {"urgent", 9, "a", 3}, {"new", 0, "a", 2}, {"idle", -9, "a", 0}};
  EXPECT_THAT(QueueOrder(waiting, {}, {}, kNow), ElementsAre("urgent", "old", "new", "idle"));
}

TEST(Scheduler, GivesOwnersOneSlotEachBeforeASecond) {
  const std::vector<WaitingJob> waiting = {{"a1", 0, "a", 1},
                                           {"a2", 0, "a", 2},
                                           {"b1", 0, "b", 3},
                                           {"c1", 0, "c", 4},
                                           {"b2", 0, "b", 5}};
  EXPECT_THAT(QueueOrder(waiting, {}, {}, kNow), ElementsAre("a1", "b1", "c1", "a2", "b2"));
}

TEST(Scheduler, CountsTheSlotsThatAnOwnerHolds) {
  const std::vector<WaitingJob> waiting = {{"a1", 0, "a", 1}, {"b1", 0, "b", 2}, {"b2", 0, "b", 3}};
  EXPECT_THAT(QueueOrder(waiting, {Holding("x", 0, "a", 5)}, {}, kNow),
              ElementsAre("b1", "a1", "b2"));
}

TEST(Scheduler, CountsWhatAHigherPriorityTakes) {
  const std::vector<WaitingJob> waiting = {{"a9", 9, "a", 1}, {"a1", 0, "a", 2}, {"b1", 0, "b", 3}};
  EXPECT_THAT(QueueOrder(waiting, {}, {}, kNow), ElementsAre("a9", "b1", "a1"));
}

TEST(Scheduler, PrefersWhoUsedLessLatelyAndForgets) {
  OwnerUsage usage;
  usage.Add("a", 100, kNow - absl::Hours(1));
  usage.Add("b", 60, kNow);
  EXPECT_NEAR(usage.Of("a", kNow), 50, 1e-9);
  const std::vector<WaitingJob> waiting = {{"b1", 0, "b", 1}, {"a1", 0, "a", 2}};
  EXPECT_THAT(QueueOrder(waiting, {}, usage, kNow), ElementsAre("a1", "b1"));
}

TEST(Scheduler, TheVictimIsTheLowestAndOfTheseTheYoungest) {
  const std::vector<HoldingJob> holding = {Holding("mid", 1, "a", 1), Holding("old", 0, "a", 50),
                                           Holding("young", 0, "a", 5)};
  EXPECT_EQ(ChooseVictim(5, holding), "young");
  EXPECT_EQ(ChooseVictim(0, holding), std::nullopt);
  EXPECT_EQ(ChooseVictim(1, holding), "young");
}

TEST(Scheduler, EstimatesFollowTheSlotsThatBecomeFree) {
  HoldingJob first = Holding("x", 0, "a", 5);
  first.remaining = absl::Seconds(10);
  HoldingJob second = Holding("y", 0, "a", 5);
  second.remaining = absl::Seconds(30);
  EXPECT_THAT(
      EstimateStarts(3, 2, {first, second}, absl::Seconds(100), kNow),
      ElementsAre(kNow + absl::Seconds(10), kNow + absl::Seconds(30), kNow + absl::Seconds(110)));
  // The start after a job of unknown length is unknown.
  EXPECT_THAT(EstimateStarts(3, 2, {first, second}, std::nullopt, kNow),
              ElementsAre(kNow + absl::Seconds(10), kNow + absl::Seconds(30)));
  second.remaining.reset();
  EXPECT_THAT(EstimateStarts(3, 2, {first, second}, absl::Seconds(100), kNow), ElementsAre());
}

TEST(Scheduler, TheFirstRestartWaitsForNothingAndLaterOnesForLonger) {
  EXPECT_EQ(RestartBackoff(1), absl::ZeroDuration());
  EXPECT_EQ(RestartBackoff(2), absl::Seconds(1));
  EXPECT_EQ(RestartBackoff(4), absl::Seconds(4));
  EXPECT_EQ(RestartBackoff(100), absl::Seconds(60));
}

}  // namespace
}  // namespace genesis
