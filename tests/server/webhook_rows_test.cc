// Tests of the webhook tables: which deliveries are due in which order, and what stays of them.
#include "server/store/webhook_rows.h"

#include <gtest/gtest.h>

#include "server/store/job_store.h"
#include "tests/server/jobs_for_test.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

const absl::Time kDeliveryTime = absl::FromUnixSeconds(1'700'000'000);

class WebhookRowsTest : public testing::Test {
 protected:
  static WebhookChanges::Addition Event(int64_t sequence, const std::string& job_id,
                                        const std::string& endpoint = "chat") {
    training::v1::JobEvent event = TextEvent(job_id, "changed");
    event.set_sequence(sequence);
    return {endpoint, event};
  }
  void Write(std::vector<WebhookChanges::Addition> added,
             std::vector<WebhookAttempt> attempts = {}) {
    Write({.cursors = {{"chat", 9}, {"pager", 9}},
           .added = std::move(added),
           .attempts = std::move(attempts),
           .now = kDeliveryTime});
  }
  void Write(const WebhookChanges& changes) {
    ASSERT_TRUE(store_->Begin().ok());
    const absl::Status status = WriteWebhooks(database_, changes);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(store_->Commit().ok());
  }
  std::vector<StoredDelivery> Due(absl::Duration later = absl::ZeroDuration()) {
    return *ReadDueDeliveries(database_, "chat", kDeliveryTime + later, 100);
  }
  std::vector<std::string> DueIds(absl::Duration later = absl::ZeroDuration()) {
    std::vector<std::string> ids;
    for (const StoredDelivery& each : Due(later)) ids.push_back(WebhookId(each.event));
    return ids;
  }

  using Ids = std::vector<std::string>;
  TempDir temp_;
  std::unique_ptr<JobStore> store_ = *JobStore::Open(temp_.path());
  Database& database_ = store_->database();
};

TEST_F(WebhookRowsTest, TheEventsOfAJobAreDueOneAfterTheOther) {
  Write({Event(1, "a"), Event(2, "b"), Event(3, "a"), Event(4, "b"), Event(5, "a", "pager")});
  EXPECT_EQ(DueIds(), (Ids{"evt_1", "evt_2"}));
  const std::vector<StoredDelivery> due = Due();
  EXPECT_EQ(due[0].event.updated(), "changed");
  EXPECT_EQ(due[0].event.job_id(), "a");
  // The failed event of one job delays only that job.
  Write({}, {{.number = due[0].number,
              .next_attempt = kDeliveryTime + absl::Seconds(5),
              .error = "HTTP 503"},
             {.number = due[1].number, .delivered = true}});
  EXPECT_EQ(DueIds(), (Ids{"evt_4"}));
  EXPECT_EQ(DueIds(absl::Seconds(5)), (Ids{"evt_1", "evt_4"}));
  EXPECT_EQ(Due(absl::Seconds(5))[0].attempts, 1);
  const auto waiting = *CountWaitingDeliveries(database_);
  EXPECT_EQ(waiting.at("chat").count, 3);
  EXPECT_EQ(waiting.at("chat").oldest, kDeliveryTime);
}

TEST_F(WebhookRowsTest, ADeadDeliveryIsListedAndDelaysNothing) {
  Write({Event(1, "a"), Event(2, "a")});
  Write({}, {{.number = Due()[0].number, .error = "HTTP 410"}});
  EXPECT_EQ(DueIds(), (Ids{"evt_2"}));
  const std::vector<StoredDelivery> listed = *ReadWebhookDeliveries(database_, 0, 10);
  ASSERT_EQ(listed.size(), 2U);
  EXPECT_EQ(WebhookId(listed[0].event), "evt_2");
  EXPECT_EQ(listed[1].error, "HTTP 410");
  EXPECT_FALSE(listed[1].next_attempt);
  EXPECT_EQ(ReadWebhookDeliveries(database_, listed[0].number, 10)->size(), 1U);
}

TEST_F(WebhookRowsTest, TheNewest1000DeadDeliveriesAreKept) {
  std::vector<WebhookChanges::Addition> added;
  for (int i = 1; i <= 1005; ++i) added.push_back(Event(i, absl::StrCat("job-", i)));
  Write(added);
  std::vector<WebhookAttempt> attempts;
  const std::vector<StoredDelivery> due =
      *ReadDueDeliveries(database_, "chat", kDeliveryTime, 2000);
  for (const StoredDelivery& each : due) {
    attempts.push_back({.number = each.number, .error = "HTTP 410"});
  }
  Write({}, attempts);
  const std::vector<StoredDelivery> listed = *ReadWebhookDeliveries(database_, 0, 2000);
  ASSERT_EQ(listed.size(), 1000U);
  EXPECT_EQ(listed.back().event.sequence(), 6);
}

TEST_F(WebhookRowsTest, AnEventIsAddedOnceAndAForgottenEndpointLeavesNothing) {
  Write({Event(1, "a"), Event(1, "a", "pager")});
  Write({Event(1, "a")});
  EXPECT_EQ(CountWaitingDeliveries(database_)->at("chat").count, 1);
  Write({.cursors = {{"pager", 12}}, .added = {Event(2, "a")}});
  EXPECT_EQ(CountWaitingDeliveries(database_)->count("chat"), 0U);
  EXPECT_EQ(CountWaitingDeliveries(database_)->at("pager").count, 1);
  EXPECT_EQ(*ReadWebhookCursors(database_), (std::map<std::string, int64_t>{{"pager", 12}}));
}

TEST_F(WebhookRowsTest, NumbersAreNotGivenTwice) {
  Write({Event(1, "a")});
  const int64_t first = Due()[0].number;
  Write({}, {{.number = first, .delivered = true}});
  Write({Event(2, "a")});
  EXPECT_GT(Due()[0].number, first);
}

}  // namespace
}  // namespace genesis
