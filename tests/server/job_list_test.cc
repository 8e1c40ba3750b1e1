// Tests of ListJobs over ten thousand jobs: filters, orders, pages, and the rows that are read.
#include <gtest/gtest.h>

#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/api/page.h"
#include "server/store/store_reads.h"
#include "tests/server/jobs_for_test.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using training::v1::Job;
using training::v1::ListJobsRequest;

constexpr int kJobs = 10000;

class JobListTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    temp_ = new TempDir;
    FillWithEnded(temp_->path(), kJobs);
    store_ = JobStore::Open(temp_->path())->release();
  }
  static void TearDownTestSuite() {
    delete store_;
    delete temp_;
  }

  static std::vector<StoredJob> List(const JobQuery& query) {
    auto jobs = ReadJobs(store_->database(), query);
    EXPECT_TRUE(jobs.ok()) << jobs.status();
    return *std::move(jobs);
  }
  // Returns all jobs of the query, read page by page. `between` runs before each further page.
  template <typename Between>
  static std::vector<int> ListAll(JobQuery query, Between between) {
    std::vector<int> numbers;
    for (;;) {
      const std::vector<StoredJob> page = List(query);
      for (const StoredJob& each : page) {
        numbers.push_back(std::stoi(each.job.id().substr(5)));
        query.after = JobQuery::Place{each.job.priority(), each.ordinal};
      }
      if (page.size() < static_cast<size_t>(query.limit)) return numbers;
      between();
    }
  }
  static std::vector<int> ListAll(const JobQuery& query) {
    return ListAll(query, [] {});
  }

  static TempDir* temp_;
  static JobStore* store_;
};
TempDir* JobListTest::temp_ = nullptr;
JobStore* JobListTest::store_ = nullptr;

TEST_F(JobListTest, PagesHoldEveryJobOnceInEachOrder) {
  JobQuery query;
  query.limit = 999;
  const std::vector<int> newest = ListAll(query);
  ASSERT_EQ(newest.size(), static_cast<size_t>(kJobs));
  EXPECT_TRUE(std::is_sorted(newest.rbegin(), newest.rend()));
  query.order = training::v1::JOB_ORDER_OLDEST_FIRST;
  std::vector<int> oldest = ListAll(query);
  ASSERT_EQ(oldest.size(), static_cast<size_t>(kJobs));
  EXPECT_TRUE(std::is_sorted(oldest.begin(), oldest.end()));
  query.order = training::v1::JOB_ORDER_PRIORITY;
  const std::vector<int> by_priority = ListAll(query);
  const auto comes_before = [](int a, int b) {
    return std::make_pair(-(a % 7), a) < std::make_pair(-(b % 7), b);
  };
  std::sort(oldest.begin(), oldest.end(), comes_before);
  EXPECT_EQ(by_priority, oldest);
}

TEST_F(JobListTest, FiltersAreAllMet) {
  JobQuery query;
  query.limit = 1000;
  query.owner = "rare";
  EXPECT_EQ(ListAll(query).size(), 100U);
  query.labels["team"] = "red";
  EXPECT_EQ(ListAll(query).size(), 100U) << "every 100th is a 50th";
  query.owner.clear();
  EXPECT_EQ(ListAll(query).size(), 200U);
  query.labels["team"] = "";
  EXPECT_EQ(ListAll(query).size(), static_cast<size_t>(kJobs)) << "the key alone";
  query.labels["absent"] = "";
  EXPECT_TRUE(ListAll(query).empty());
  query.labels.clear();
  query.id_prefix = "done-99";
  EXPECT_EQ(ListAll(query).size(), 111U) << "99, 990 to 999, 9900 to 9999";
  query.states = {training::v1::JOB_STATE_RUNNING};
  EXPECT_TRUE(ListAll(query).empty());
  query.states.push_back(training::v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(ListAll(query).size(), 111U);
}

TEST_F(JobListTest, AFilterIsText) {
  JobQuery query;
  for (const char* hostile : {"' OR 1=1 --", "%", "_", "done-1'; DROP TABLE jobs; --"}) {
    query.owner = hostile;
    query.id_prefix.clear();
    EXPECT_TRUE(List(query).empty()) << hostile;
    query.owner.clear();
    query.id_prefix = hostile;
    EXPECT_TRUE(List(query).empty()) << hostile;
  }
}

TEST_F(JobListTest, JobsThatComeAndGoShiftNothing) {
  JobQuery query;
  query.limit = 1000;
  int next = kJobs;
  ASSERT_TRUE(store_->Begin().ok());
  const std::vector<int> listed = ListAll(query, [&] {
    ++next;
    ASSERT_TRUE(store_->PutJob(next, LargeJob(next)).ok());
    ASSERT_TRUE(store_->RemoveJob(absl::StrCat("done-", next - kJobs), false).ok());
  });
  store_->Rollback();
  ASSERT_EQ(listed.size(), static_cast<size_t>(kJobs) - 9) << "9 were removed before their page";
  EXPECT_EQ(listed.front(), kJobs);
  EXPECT_EQ(listed.back(), 10);
}

// For a page within 10 ms, the rows that a filter reads must be small and already sorted.
TEST_F(JobListTest, APageSortsNothingAndReadsNoRecordThatItDoesNotReturn) {
  for (const auto order : {"j.ordinal DESC", "j.ordinal", "j.priority DESC, j.ordinal"}) {
    absl::StatusOr<Statement> plan = store_->database().Prepare(absl::StrCat(
        "EXPLAIN QUERY PLAN SELECT r.job FROM jobs j CROSS JOIN job_records r ON r.ordinal = "
        "j.ordinal WHERE j.owner = 'ann' ORDER BY ",
        order, " LIMIT 100"));
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::string text;
    while (*plan->Step()) absl::StrAppend(&text, plan->Text(3), "\n");
    EXPECT_EQ(text.find("TEMP B-TREE"), std::string::npos) << text;
    EXPECT_NE(text.find("SEARCH r USING INTEGER PRIMARY KEY"), std::string::npos) << text;
  }
  absl::StatusOr<Statement> pages =
      store_->database().Prepare("SELECT count(*) FROM dbstat WHERE name = 'jobs'");
  if (!pages.ok()) GTEST_FAIL() << pages.status();
  ASSERT_TRUE(*pages->Step());
  EXPECT_LT(pages->Int(0) * 4096, 400 * kJobs) << "bytes that a scan of all jobs reads";
}

TEST(PageToken, IsReadBackForItsQueryAlone) {
  ListJobsRequest request;
  request.set_owner("ann");
  (*request.mutable_labels())["a"] = "1";
  (*request.mutable_labels())["b"] = "2";
  const std::string token = MakePageToken(request, PlaceOf({-7, 123456789012}));
  request.set_page_token(token);
  request.set_page_size(5);  // The page size is not part of the query.
  const auto keys = ReadPageKeys<2>(request);
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(*keys, (std::array<int64_t, 2>{-7, 123456789012}));
  request.set_owner("bob");
  EXPECT_EQ(ReadPageToken(request).status().code(), absl::StatusCode::kInvalidArgument);
  training::v1::ListCheckpointsRequest other;
  other.set_page_token(token);
  EXPECT_EQ(ReadPageToken(other).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PageToken, ThatIsNotOursIsRefused) {
  ListJobsRequest request;
  const std::string good = MakePageToken(request, PlaceOf({1, 2}));
  for (std::string bad : {std::string("done-3"), std::string("AAAA"), std::string("\0\xff", 2),
                          good + "A", good.substr(1), std::string(5000, 'A')}) {
    request.set_page_token(bad);
    const auto place = ReadPageToken(request);
    EXPECT_EQ(place.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_LT(place.status().message().size(), 700U) << "the message stays short";
  }
}

// An attacker knows the format of page tokens, but not the key.
TEST(PageToken, ThatIsForgedIsRefused) {
  ListJobsRequest request;
  const std::string good = MakePageToken(request, PlaceOf({1, 2}));
  std::string bytes;
  ASSERT_TRUE(absl::WebSafeBase64Unescape(good, &bytes));
  for (size_t at : {size_t{0}, size_t{31}, bytes.size() - 1}) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    request.set_page_token(absl::WebSafeBase64Escape(changed));
    EXPECT_EQ(ReadPageKeys<2>(request).status().code(), absl::StatusCode::kInvalidArgument) << at;
  }
  for (const std::string& place : {std::string(), std::string("7"), std::string("1,2,3"),
                                   std::string("x,y"), std::string("9999999999999999999,1")}) {
    request.set_page_token(absl::WebSafeBase64Escape(std::string(32, '\0') + place));
    EXPECT_EQ(ReadPageKeys<2>(request).status().code(), absl::StatusCode::kInvalidArgument);
    // An authentic token of another method's form is an error, but not a crash.
    request.set_page_token(MakePageToken(request, place));
    EXPECT_EQ(ReadPageKeys<2>(request).status().code(), absl::StatusCode::kInternal) << place;
  }
}

TEST(PageToken, ANameMayBeAPlace) {
  training::v1::ListDatasetsRequest request;
  request.set_page_token(MakePageToken(request, "maps.v1/a.npz"));
  EXPECT_EQ(*ReadPageToken(request), "maps.v1/a.npz");
}

TEST(PageSize, IsBounded) {
  EXPECT_EQ(*PageSize(0), 100);
  EXPECT_EQ(*PageSize(1000), 1000);
  EXPECT_FALSE(PageSize(-1).ok());
  EXPECT_EQ(PageSize(1001).status().message(), "page_size is 1001; accepted: 1 to 1000");
}

}  // namespace
}  // namespace genesis
