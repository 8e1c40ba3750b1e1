#include "server/jobs/failure_watch.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace genesis {
namespace {

TEST(FailureWatch, FiresOnceMoreThanHalfOfAtLeastFourFailed) {
  FailureWatch watch(FailureWatchAction::kEnforce);
  EXPECT_FALSE(watch.Add(true));
  EXPECT_FALSE(watch.Add(true));
  EXPECT_FALSE(watch.Add(false));
  EXPECT_FALSE(watch.closes_gate());
  EXPECT_TRUE(watch.Add(true));
  EXPECT_TRUE(watch.closes_gate());
  EXPECT_EQ(watch.reason(),
            "3 of the last 4 jobs in reduced precision failed; accepted: at most half");
  EXPECT_FALSE(watch.Add(true));
}

TEST(FailureWatch, CountsTheNewestTenAndAcceptsHalf) {
  FailureWatch watch(FailureWatchAction::kEnforce);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(watch.Add(i % 2 == 1)) << i;
  for (int i = 0; i < 10; ++i) watch.Add(false);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(watch.Add(true)) << i;
  EXPECT_TRUE(watch.Add(true));
}

TEST(FailureWatch, OnlyTellsOrKeepsQuietWhereThatIsAskedFor) {
  FailureWatch advise(FailureWatchAction::kAdvise);
  FailureWatch off(FailureWatchAction::kOff);
  for (int i = 0; i < 3; ++i) advise.Add(true);
  EXPECT_TRUE(advise.Add(true));
  EXPECT_FALSE(advise.closes_gate());
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(off.Add(true));
}

TEST(FailureWatchTest, AnActionThatIsChangedHoldsFromThenOn) {
  FailureWatch watch(FailureWatchAction::kAdvise);
  for (int i = 0; i < 4; ++i) watch.Add(true);
  EXPECT_FALSE(watch.closes_gate());
  watch.SetAction(FailureWatchAction::kEnforce);
  EXPECT_TRUE(watch.closes_gate());
  watch.SetAction(FailureWatchAction::kOff);
  EXPECT_FALSE(watch.closes_gate());
}

}  // namespace
}  // namespace genesis
