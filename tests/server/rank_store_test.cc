#include "server/workers/rank_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace genesis {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using training::v1::StoreRequest;

StoreRequest Set(int64_t id, const std::string& key, const std::string& value) {
  StoreRequest request;
  request.set_id(id);
  request.mutable_set()->set_key(key);
  request.mutable_set()->set_value(value);
  return request;
}

StoreRequest Get(int64_t id, const std::vector<std::string>& keys, bool wait = true) {
  StoreRequest request;
  request.set_id(id);
  request.mutable_get()->mutable_keys()->Assign(keys.begin(), keys.end());
  request.mutable_get()->set_wait(wait);
  return request;
}

StoreRequest Add(int64_t id, const std::string& key, int64_t total) {
  StoreRequest request;
  request.set_id(id);
  request.mutable_add()->set_key(key);
  request.mutable_add()->set_total(total);
  return request;
}

TEST(RankStoreTest, AGetWaitsForAllItsKeys) {
  RankStore store;
  EXPECT_THAT(store.Handle(0, Get(1, {"a", "b"})), IsEmpty());
  ASSERT_THAT(store.Handle(1, Set(5, "a", "x")), SizeIs(1)) << "of the set alone";
  const RankStore::Answers answers = store.Handle(1, Set(6, "b", std::string("y\0z", 3)));
  ASSERT_THAT(answers, SizeIs(2));
  EXPECT_EQ(answers[0].rank, 1);
  EXPECT_EQ(answers[0].response.id(), 6);
  EXPECT_EQ(answers[1].rank, 0);
  EXPECT_EQ(answers[1].response.id(), 1);
  ASSERT_EQ(answers[1].response.values_size(), 2);
  EXPECT_EQ(answers[1].response.values(0).value(), "x");
  EXPECT_EQ(answers[1].response.values(1).value(), std::string("y\0z", 3));
}

TEST(RankStoreTest, AGetThatDoesNotWaitSaysWhatIsThere) {
  RankStore store;
  store.Handle(0, Set(1, "a", ""));
  const RankStore::Answers answers = store.Handle(0, Get(2, {"a", "b"}, /*wait=*/false));
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_TRUE(answers[0].response.values(0).found());
  EXPECT_FALSE(answers[0].response.values(1).found());
}

TEST(RankStoreTest, ACountThatIsToldAgainIsCountedOnce) {
  RankStore store;
  EXPECT_EQ(store.Handle(0, Add(1, "n", 2))[0].response.sum(), 2);
  EXPECT_EQ(store.Handle(1, Add(1, "n", 3))[0].response.sum(), 5);
  EXPECT_EQ(store.Handle(1, Add(1, "n", 3))[0].response.sum(), 5);
  EXPECT_EQ(store.Handle(1, Add(2, "n", 4))[0].response.sum(), 6);
  EXPECT_EQ(store.Handle(0, Get(3, {"n"}))[0].response.values(0).value(), "6");
}

TEST(RankStoreTest, WhenTheClaimIsOverAllAreAnsweredWhy) {
  RankStore store;
  store.Handle(0, Get(1, {"a"}));
  store.Handle(2, Get(7, {"b"}));
  store.Forget(2);
  const RankStore::Answers answers = store.Close("rank 1 is gone");
  ASSERT_THAT(answers, SizeIs(1)) << "rank 2 has no stream";
  EXPECT_EQ(answers[0].response.error(), "rank 1 is gone");
  EXPECT_EQ(store.Handle(2, Set(8, "b", "x"))[0].response.error(), "rank 1 is gone");
}

TEST(RankStoreTest, RefusesWhatIsTooLargeByName) {
  RankStore store;
  const auto error = [&store](const StoreRequest& request) {
    const RankStore::Answers answers = store.Handle(0, request);
    return answers.empty() ? "no answer" : answers[0].response.error();
  };
  EXPECT_THAT(error(Set(1, std::string(513, 'k'), "")),
              HasSubstr("has 513 bytes; accepted: 1 to 512"));
  EXPECT_THAT(error(Set(1, "", "x")), HasSubstr("has 0 bytes; accepted: 1 to 512"));
  EXPECT_THAT(error(Add(1, "", 1)), HasSubstr("has 0 bytes"));
  const std::string large(RankStore::kMaxValueBytes, 'v');
  EXPECT_THAT(
      error(Set(1, "a", large + "v")),
      HasSubstr("key \"a\" of the rank store has 1048577 bytes; accepted: at most 1048576"));
  int kept = 0;
  while (error(Set(1, "key" + std::to_string(kept), large)).empty()) ++kept;
  EXPECT_EQ(kept, 63) << "with their keys";
  EXPECT_THAT(error(Set(1, "another", large)),
              HasSubstr("bytes with key \"another\"; accepted: at most 67108864"));
  EXPECT_EQ(error(Set(1, "key1", large)), "") << "takes the place of its older value";
  EXPECT_THAT(error(Get(1, std::vector<std::string>(4097, "a"))),
              HasSubstr("a get of 4097 keys of the rank store; accepted: at most 4096"));
  EXPECT_THAT(error(StoreRequest()), HasSubstr("names no operation"));
  for (int i = 0; i < 4096; ++i) store.Handle(1, Get(i, {"never"}));
  EXPECT_THAT(error(Get(1, {"never"})), HasSubstr("4096 gets wait in the rank store already"));
}

}  // namespace
}  // namespace genesis
