#include "server/rpc/reset_watch.h"

#include <gtest/gtest.h>

namespace genesis {
namespace {

const absl::Time kResetStart = absl::FromUnixSeconds(3'000'000);

TEST(ResetBudgetTest, IsUsedUpByABurstAndToldOnce) {
  ResetBudget budget;
  EXPECT_FALSE(budget.Spend(ResetBudget::kBurst - 1, kResetStart));
  EXPECT_TRUE(budget.Spend(1, kResetStart));
  EXPECT_FALSE(budget.Spend(5000, kResetStart));
}

TEST(ResetBudgetTest, LastsForACallerWhoGivesUpNowAndThen) {
  ResetBudget budget;
  absl::Time now = kResetStart;
  for (int i = 0; i < 3000; ++i) {
    now += absl::Seconds(1 / ResetBudget::kPerSecond);
    EXPECT_FALSE(budget.Spend(1, now));
  }
}

TEST(ResetBudgetTest, IsWholeAgainAfterAWhileAndNoMoreThanThat) {
  ResetBudget budget;
  EXPECT_TRUE(budget.Spend(30'000, kResetStart));
  const absl::Time later = kResetStart + absl::Hours(9);
  EXPECT_FALSE(budget.Spend(ResetBudget::kBurst - 1, later));
  EXPECT_TRUE(budget.Spend(1, later));
}

}  // namespace
}  // namespace genesis
