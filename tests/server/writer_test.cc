#include "server/ledger/writer.h"

#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>

#include "server/ledger/event_hub.h"
#include "tests/server/jobs_for_test.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using training::v1::Job;

class WriterTest : public testing::Test {
 protected:
  WriterTest()
      : store_(*JobStore::Open(temp_.path())),
        table_(store_.get(), &hub_),
        writer_(&table_, [] {}) {
    EXPECT_TRUE(table_.Load().ok());
  }

  // Inserts a job and then throws if `fault` is set.
  void Insert(const std::string& id, std::optional<absl::Status>* answer,
              const char* fault = nullptr) {
    writer_.Ask<Job>(
        [this, id, fault]() -> absl::StatusOr<Job> {
          table_.Insert(MakeJob(id));
          if (fault != nullptr) throw std::out_of_range(fault);
          return MakeJob(id);
        },
        [answer](const absl::StatusOr<Job>& job) { *answer = job.status(); });
  }
  bool IsShown(const std::string& id) const { return *table_.view().Snapshot(id) != nullptr; }

  TempDir temp_;
  std::unique_ptr<JobStore> store_;
  EventHub hub_;
  JobTable table_;
  Writer writer_;
};

TEST_F(WriterTest, NothingStaysOfAChangeThatThrows) {
  std::optional<absl::Status> before, broken, after;
  // All three are in one batch, because the thread has not started.
  Insert("before", &before);
  Insert("broken", &broken, "vector::_M_range_check");
  Insert("after", &after);
  writer_.Start();
  writer_.Stop();
  EXPECT_EQ(before, absl::OkStatus());
  EXPECT_EQ(after, absl::OkStatus());
  ASSERT_TRUE(broken.has_value());
  EXPECT_EQ(broken->code(), absl::StatusCode::kInternal) << *broken;
  EXPECT_TRUE(IsShown("before"));
  EXPECT_TRUE(IsShown("after"));
  EXPECT_FALSE(IsShown("broken"));
  EXPECT_EQ(table_.view().CountsByState()[training::v1::JOB_STATE_QUEUED], 2);
  // The store contains the same as the view.
  JobTable again(store_.get(), &hub_);
  ASSERT_TRUE(again.Load().ok());
  EXPECT_NE(again.Find("before"), nullptr);
  EXPECT_EQ(again.Find("broken"), nullptr);
}

}  // namespace
}  // namespace genesis
