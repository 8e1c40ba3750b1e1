#include "server/rpc/reset_budget.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace genesis {
namespace {

const absl::Time kResetStart = absl::FromUnixSeconds(3'000'000);
constexpr int kResetBurst = static_cast<int>(ResetBudget::kBurst);

// How many of so many abandoned calls, all at one time, used up the budget.
int Spend(ResetBudget& budget, int calls, absl::Time now,
          const std::string& peer = "ipv4:10.0.0.1:7") {
  int floods = 0;
  for (int i = 0; i < calls; ++i) floods += budget.Spend(peer, now) ? 1 : 0;
  return floods;
}

TEST(ResetBudgetTest, IsUsedUpByABurstAndToldOnce) {
  ResetBudget budget;
  EXPECT_EQ(Spend(budget, kResetBurst - 1, kResetStart), 0);
  EXPECT_EQ(Spend(budget, 1, kResetStart), 1);
  EXPECT_EQ(Spend(budget, 5000, kResetStart), 0);
}

TEST(ResetBudgetTest, LastsForACallerWhoGivesUpNowAndThen) {
  ResetBudget budget;
  absl::Time now = kResetStart;
  for (int i = 0; i < 3000; ++i) {
    now += absl::Seconds(1 / ResetBudget::kPerSecond);
    EXPECT_FALSE(budget.Spend("ipv4:10.0.0.1:7", now));
  }
}

TEST(ResetBudgetTest, IsWholeAgainAfterAWhileAndNoMoreThanThat) {
  ResetBudget budget;
  EXPECT_EQ(Spend(budget, kResetBurst, kResetStart), 1);
  const absl::Time later = kResetStart + absl::Hours(9);
  EXPECT_EQ(Spend(budget, kResetBurst - 1, later), 0);
  EXPECT_EQ(Spend(budget, 1, later), 1);
}

TEST(ResetBudgetTest, IsThatOfOneConnection) {
  ResetBudget budget;
  EXPECT_EQ(Spend(budget, kResetBurst, kResetStart), 1);
  EXPECT_EQ(Spend(budget, kResetBurst - 1, kResetStart, "ipv4:10.0.0.1:8"), 0);
}

TEST(ResetBudgetTest, ForgetsOnlyThoseThatHaveTheirWholeBudget) {
  ResetBudget budget;
  EXPECT_EQ(Spend(budget, kResetBurst - 1, kResetStart, "busy"), 0);
  for (int i = 0; i < 20'000; ++i) budget.Spend(absl::StrCat("ipv6:", i), kResetStart);
  EXPECT_TRUE(budget.Spend("busy", kResetStart));
}

}  // namespace
}  // namespace genesis
