// Tests the sweep tables of jobs.db.
#include "server/store/sweep_rows.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/timestamp.h"
#include "server/store/job_store.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

class SweepRows : public testing::Test {
 protected:
  Database& database() { return store_->database(); }

  StoredSweep Insert(const std::string& id, const std::string& owner, int trials) {
    StoredSweep stored;
    stored.sweep.set_id(id);
    stored.sweep.set_owner(owner);
    stored.cursor = 7;
    for (int i = 0; i < trials; ++i) stored.sweep.add_trials()->set_number(i);
    const absl::StatusOr<int64_t> ordinal = InsertSweep(database(), stored);
    EXPECT_TRUE(ordinal.ok()) << ordinal.status();
    stored.ordinal = ordinal.value_or(0);
    return stored;
  }

  void End(StoredSweep& stored) {
    *stored.sweep.mutable_end_time() = TimestampNow();
    ASSERT_TRUE(WriteSweep(database(), stored, {}).ok());
  }

  TempDir temp_;
  std::unique_ptr<JobStore> store_ = *JobStore::Open(temp_.path());
};

TEST_F(SweepRows, KeepASweepWithItsTrials) {
  StoredSweep stored = Insert("lr", "ann", 3);
  stored.sweep.mutable_trials(1)->set_best_value(0.5);
  stored.sweep.mutable_trials(2)->set_reason("not written");
  stored.cursor = 9;
  ASSERT_TRUE(WriteSweep(database(), stored, {1}).ok());
  const std::vector<StoredSweep> open = *ReadOpenSweeps(database());
  ASSERT_EQ(open.size(), 1U);
  EXPECT_EQ(open[0].cursor, 9);
  EXPECT_EQ(open[0].ordinal, stored.ordinal);
  ASSERT_EQ(open[0].sweep.trials_size(), 3);
  EXPECT_EQ(open[0].sweep.trials(1).best_value(), 0.5);
  EXPECT_EQ(open[0].sweep.trials(2).reason(), "") << "only the named trials are written";
  End(stored);
  EXPECT_TRUE(ReadOpenSweeps(database())->empty());
  EXPECT_EQ((*ReadSweep(database(), "lr"))->sweep.trials_size(), 3);
  EXPECT_FALSE(*ReadSweep(database(), "none"));
}

TEST_F(SweepRows, AreListedByPagesAndOwner) {
  for (int i = 0; i < 5; ++i) Insert(absl::StrCat("s", i), i % 2 == 0 ? "ann" : "bob", 1);
  const std::vector<StoredSweep> newest = *ReadSweeps(database(), "", 0, 2);
  ASSERT_EQ(newest.size(), 2U);
  EXPECT_EQ(newest[0].sweep.id(), "s4");
  EXPECT_EQ(newest[0].sweep.trials_size(), 0) << "lists are short";
  const std::vector<StoredSweep> next = *ReadSweeps(database(), "", newest[1].ordinal, 2);
  EXPECT_EQ(next[0].sweep.id(), "s2");
  const std::vector<StoredSweep> of_bob = *ReadSweeps(database(), "bob", 0, 10);
  ASSERT_EQ(of_bob.size(), 2U);
  EXPECT_EQ(of_bob[1].sweep.id(), "s1");
}

TEST_F(SweepRows, KeepTheNewestThousandThatHaveEnded) {
  StoredSweep open = Insert("open", "ann", 1);
  ASSERT_TRUE(store_->Begin().ok());
  for (int i = 0; i < 1002; ++i) {
    StoredSweep stored = Insert(absl::StrCat("s", i), "ann", 1);
    End(stored);
  }
  ASSERT_TRUE(store_->Commit().ok());
  Insert("last", "ann", 1);
  EXPECT_FALSE(*ReadSweep(database(), "s1"));
  EXPECT_TRUE(*ReadSweep(database(), "s2"));
  EXPECT_TRUE(*ReadSweep(database(), "open")) << "an open sweep is kept";
}

}  // namespace
}  // namespace genesis
