#include "trainer/worker/rank_store_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

namespace genesis {
namespace {

using ::testing::HasSubstr;
using training::v1::StoreRequest;
using training::v1::StoreResponse;

// A daemon that responds immediately while it is up.
class Daemon {
 public:
  Daemon() : client_([this](const StoreRequest& request) { Handle(request); }) {}

  RankStoreClient& client() { return client_; }
  void Leave() {
    const absl::MutexLock lock(&mutex_);
    away_ = true;
  }
  // Restarts the daemon with an empty store.
  void Return() {
    {
      const absl::MutexLock lock(&mutex_);
      away_ = false;
      values_.clear();
    }
    client_.Resend();
  }
  bool Has(const std::string& key) {
    const absl::MutexLock lock(&mutex_);
    return values_.contains(key);
  }

 private:
  void Handle(const StoreRequest& request) {
    StoreResponse response;
    response.set_id(request.id());
    {
      const absl::MutexLock lock(&mutex_);
      if (away_) return;
      if (request.has_set()) values_[request.set().key()] = request.set().value();
      if (request.has_add()) {
        values_[request.add().key()] = std::to_string(request.add().total());
        response.set_sum(request.add().total());
      }
      for (const std::string& key : request.get().keys()) {
        const auto found = values_.find(key);
        if (found == values_.end() && request.get().wait()) return;
        training::v1::StoreValue& value = *response.add_values();
        value.set_found(found != values_.end());
        if (value.found()) value.set_value(found->second);
      }
    }
    client_.OnResponse(response);
    client_.OnResponse(response);  // Responses may be repeated.
  }

  absl::Mutex mutex_;
  bool away_ = false;
  std::map<std::string, std::string> values_;
  RankStoreClient client_;
};

TEST(RankStoreClientTest, PutsReadsAndCounts) {
  Daemon daemon;
  RankStoreClient& store = daemon.client();
  EXPECT_TRUE(store.Set("a", std::string("x\0y", 3)).ok());
  EXPECT_EQ(*store.Get("a", absl::Minutes(1)), std::string("x\0y", 3));
  EXPECT_TRUE(store.Wait({"a"}, absl::Minutes(1)).ok());
  EXPECT_TRUE(*store.HasAll({"a"}));
  EXPECT_FALSE(*store.HasAll({"a", "b"}));
  EXPECT_EQ(*store.Add("n", 2), 2);
  EXPECT_EQ(*store.Add("n", 3), 5);
}

TEST(RankStoreClientTest, NamesAKeyThatDoesNotCome) {
  Daemon daemon;
  const absl::StatusOr<std::string> value = daemon.client().Get("never", absl::Milliseconds(20));
  EXPECT_EQ(value.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(value.status().message(), HasSubstr("for \"never\""));
}

TEST(RankStoreClientTest, ADaemonThatWasRestartedIsToldAllAgain) {
  Daemon daemon;
  RankStoreClient& store = daemon.client();
  ASSERT_TRUE(store.Set("mine", "x").ok());
  ASSERT_TRUE(store.Add("n", 4).ok());
  daemon.Leave();
  absl::Status later;
  std::thread waiting([&] { later = store.Set("later", "y"); });
  absl::StatusOr<std::string> read;
  std::thread reading([&] { read = store.Get("mine", absl::Minutes(1)); });
  // Both threads get a response, even if they send their requests after the restart.
  daemon.Return();
  waiting.join();
  reading.join();
  EXPECT_TRUE(later.ok()) << later;
  EXPECT_EQ(*read, "x");
  EXPECT_TRUE(daemon.Has("n"));
}

TEST(RankStoreClientTest, WhenNoAnswerCanComeAllWaitsEnd) {
  Daemon daemon;
  absl::StatusOr<std::string> read;
  std::thread reading([&] { read = daemon.client().Get("never", absl::Hours(1)); });
  daemon.client().Close("another rank is gone");
  reading.join();
  EXPECT_EQ(read.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(read.status().message(), "another rank is gone");
  EXPECT_EQ(daemon.client().Set("a", "x").message(), "another rank is gone");
}

}  // namespace
}  // namespace genesis
