// Tests of the pool with workers of another host, which need no processes here.
#include "server/workers/worker_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "base/version.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::NiceMock;
using training::v1::AttachRequest;
using training::v1::AttachResponse;

class MockEvents : public WorkerEvents {
 public:
  MOCK_METHOD(void, OnCapacity, (), (override));
  MOCK_METHOD(void, OnWorkerEvent, (const AttachRequest&, int), (override));
  MOCK_METHOD(void, OnWorkerBack, (const std::string&, int64_t), (override));
  MOCK_METHOD(void, OnWorkerHung, (const std::string&, int64_t, int, const std::string&),
              (override));
  MOCK_METHOD(void, OnWorkerGone, (const WorkerExit&), (override));
};

class MockLink : public WorkerLink {
 public:
  MOCK_METHOD(void, Send, (const AttachResponse&), (override));
  MOCK_METHOD(void, Close, (), (override));
};

// A restarted daemon opens the workers' socket before the pool's thread runs.
TEST(WorkerPoolTest, AWorkerThatIsBackBeforeThePoolStartsIsToldOf) {
  const TempDir temp;
  WorkerPool::Options options;
  options.workers.devices = {};
  options.remote.emplace();
  options.log_dir = temp.path();
  NiceMock<MockEvents> events;
  WorkerPool pool(std::move(options));
  training::v1::WorkerProcessRef ref;
  ref.set_worker_id("far-7");
  ref.set_device("far/cpu");
  ASSERT_TRUE(pool.Adopt(ref, "lives-on", /*rank=*/0, /*claim=*/2, /*acknowledged=*/0,
                         /*memory_bytes=*/0));
  pool.SetEvents(&events);

  AttachRequest hello;
  hello.mutable_hello()->set_worker_id("far-7");
  hello.mutable_hello()->set_version(kVersion);
  hello.mutable_hello()->mutable_device()->set_name("cpu");
  hello.set_job_id("lives-on");
  hello.set_claim(2);
  EXPECT_CALL(events, OnWorkerBack("lives-on", 2));
  const auto link = std::make_shared<NiceMock<MockLink>>();
  EXPECT_TRUE(pool.Attach(hello, /*remote=*/true, link).ok());

  AttachRequest finished;
  finished.set_job_id("lives-on");
  finished.set_claim(2);
  finished.mutable_finished()->set_outcome(training::v1::Finished::OUTCOME_COMPLETED);
  EXPECT_CALL(events, OnWorkerEvent);
  pool.OnMessage("far-7", finished);
  pool.OnDetached("far-7", link.get());
  EXPECT_CALL(events, OnWorkerGone);
  pool.Start();
  pool.Stop(absl::ZeroDuration());
}

}  // namespace
}  // namespace genesis
