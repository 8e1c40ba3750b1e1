#include "server/jobs/scheduler.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

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

// One slot, jobs of a minute, 100 owners that never have an empty queue, and one that submits a job
// every two hours: its job is the next to start.
TEST(Scheduler, AModestOwnerWaitsForAtMostOneJobOfAHundredGreedyOnes) {
  constexpr int kGreedy = 100;
  constexpr int kMinutes = 3000;
  OwnerUsage usage;
  std::vector<WaitingJob> waiting;
  int64_t ordinal = 0;
  const auto submit = [&](const std::string& owner) {
    waiting.push_back({absl::StrCat(owner, "/", ordinal), 0, owner, ordinal});
    ++ordinal;
  };
  for (int i = 0; i < kGreedy; ++i) submit(absl::StrCat("greedy-", i));
  int waited = 0;
  int modest_jobs = 0;
  for (int minute = 0; minute < kMinutes; ++minute) {
    const absl::Time now = kNow + absl::Minutes(minute);
    // Every greedy owner has had its turn by then.
    if (minute >= 2 * kGreedy && minute % 120 == 0) submit("modest");
    const std::string next = QueueOrder(waiting, {}, usage, now).front();
    const auto job = std::find_if(waiting.begin(), waiting.end(),
                                  [&](const WaitingJob& each) { return each.id == next; });
    const std::string owner = job->owner;
    waiting.erase(job);
    usage.Add(owner, 60, now + absl::Minutes(1));
    if (owner == "modest") {
      ++modest_jobs;
    } else {
      submit(owner);
    }
    waited += std::any_of(waiting.begin(), waiting.end(),
                          [](const WaitingJob& each) { return each.owner == "modest"; });
  }
  EXPECT_GT(modest_jobs, 20);
  EXPECT_EQ(waited, 0) << "it started as soon as the slot was free";
}

TEST(Scheduler, TheVictimIsTheLowestAndOfTheseTheYoungest) {
  const std::vector<HoldingJob> holding = {Holding("mid", 1, "a", 1), Holding("old", 0, "a", 50),
                                           Holding("young", 0, "a", 5)};
  EXPECT_THAT(ChooseVictims(5, 1, holding), ElementsAre("young"));
  EXPECT_THAT(ChooseVictims(0, 1, holding), IsEmpty());
  EXPECT_THAT(ChooseVictims(1, 1, holding), ElementsAre("young"));
}

TEST(Scheduler, AGangTakesTheSlotsOfAsManyAsItNeedsOrOfNone) {
  std::vector<HoldingJob> holding = {Holding("one", 1, "a", 1), Holding("gang", 0, "a", 50),
                                     Holding("high", 7, "a", 5)};
  holding[1].slots = 3;
  EXPECT_THAT(ChooseVictims(5, 3, holding), ElementsAre("gang"));
  EXPECT_THAT(ChooseVictims(5, 4, holding), ElementsAre("gang", "one"));
  EXPECT_THAT(ChooseVictims(5, 5, holding), IsEmpty()) << "it would be in vain";
}

TEST(Scheduler, AGangCountsAllItsSlotsForItsOwner) {
  OwnerUsage usage;
  HoldingJob gang = Holding("held", 0, "a", 1);
  gang.slots = 2;
  const std::vector<WaitingJob> waiting = {
      {"a1", 0, "a", 1}, {"b1", 0, "b", 2}, {"b2", 0, "b", 3}, {"b3", 0, "b", 4}};
  EXPECT_THAT(QueueOrder(waiting, {gang}, usage, kNow), ElementsAre("b1", "b2", "a1", "b3"));
  const std::vector<WaitingJob> gangs = {
      {"b1", 0, "b", 1, 3}, {"b2", 0, "b", 2}, {"a1", 0, "a", 3}};
  EXPECT_THAT(QueueOrder(gangs, {gang}, usage, kNow), ElementsAre("b1", "a1", "b2"));
}

TEST(Scheduler, AGangStartsWhenTheLastOfItsSlotsIsFree) {
  HoldingJob first = Holding("x", 0, "a", 5);
  first.remaining = absl::Seconds(10);
  HoldingJob gang = Holding("y", 0, "a", 5);
  gang.remaining = absl::Seconds(30);
  gang.slots = 2;
  EXPECT_THAT(
      EstimateStarts({1, 2, 1}, 3, {first, gang}, absl::Seconds(100), kNow),
      ElementsAre(kNow + absl::Seconds(10), kNow + absl::Seconds(30), kNow + absl::Seconds(110)));
  EXPECT_THAT(EstimateStarts({4, 1}, 3, {first, gang}, absl::Seconds(100), kNow), IsEmpty());
}

TEST(Scheduler, EstimatesFollowTheSlotsThatBecomeFree) {
  HoldingJob first = Holding("x", 0, "a", 5);
  first.remaining = absl::Seconds(10);
  HoldingJob second = Holding("y", 0, "a", 5);
  second.remaining = absl::Seconds(30);
  EXPECT_THAT(
      EstimateStarts({1, 1, 1}, 2, {first, second}, absl::Seconds(100), kNow),
      ElementsAre(kNow + absl::Seconds(10), kNow + absl::Seconds(30), kNow + absl::Seconds(110)));
  // The start of a job after one of unknown length is unknown.
  EXPECT_THAT(EstimateStarts({1, 1, 1}, 2, {first, second}, std::nullopt, kNow),
              ElementsAre(kNow + absl::Seconds(10), kNow + absl::Seconds(30)));
  second.remaining.reset();
  EXPECT_THAT(EstimateStarts({1, 1, 1}, 2, {first, second}, absl::Seconds(100), kNow),
              ElementsAre());
}

TEST(Scheduler, TheFirstRestartWaitsForNothingAndLaterOnesForLonger) {
  EXPECT_EQ(RestartBackoff(1), absl::ZeroDuration());
  EXPECT_EQ(RestartBackoff(2), absl::Seconds(1));
  EXPECT_EQ(RestartBackoff(4), absl::Seconds(4));
  EXPECT_EQ(RestartBackoff(100), absl::Seconds(60));
}

}  // namespace
}  // namespace genesis
