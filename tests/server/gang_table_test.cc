// Tests of the workers of multi-rank jobs, in a table without processes and streams.
#include <gmock/gmock.h>

#include "tests/server/worker_table_fixture.h"

namespace genesis {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAre;

class GangTableTest : public WorkerTableTest {
 protected:
  GangTableTest() {
    WorkerTable::Options options = TableOptions();
    options.workers.slots = 3;
    Open(std::move(options));
  }

  std::vector<WorkerLease> ReserveGang(int ranks, int64_t memory_bytes = 100) {
    std::vector<WorkerLease> leases = table_->ReserveGang(ranks, memory_bytes);
    Note();
    return leases;
  }
  void BeginGang(const std::vector<WorkerLease>& leases, const std::string& job,
                 int64_t claim = 1) {
    for (size_t i = 0; i < leases.size(); ++i) {
      training::v1::StartJob start;
      start.set_job_id(job);
      start.set_claim(claim);
      start.mutable_rank()->set_rank(static_cast<int>(i));
      start.mutable_rank()->set_size(static_cast<int>(leases.size()));
      Note(table_->Begin(leases[i].worker.worker_id(), start));
    }
  }
  // Reserves three workers of this machine for the job.
  std::vector<std::string> Gang(const std::string& job) {
    EXPECT_THAT(ReserveGang(3), IsEmpty());
    while (Starting() != "none was missing") {
    }
    for (const training::v1::WorkerInfo& info : table_->workers()) {
      if (info.state() != training::v1::WORKER_STATE_STARTING) continue;
      EXPECT_TRUE(Attach(info.id()).ok());
    }
    const std::vector<WorkerLease> leases = ReserveGang(3);
    EXPECT_THAT(leases, SizeIs(3));
    BeginGang(leases, job);
    std::vector<std::string> ids;
    for (const WorkerLease& lease : leases) ids.push_back(lease.worker.worker_id());
    return ids;
  }
  std::vector<training::v1::AttachResponse> Sent() const {
    std::vector<training::v1::AttachResponse> sent;
    for (const SendCommand& each : Done<SendCommand>()) sent.push_back(each.command);
    return sent;
  }
  bool Ask(const std::string& id, const std::string& job, const std::string& key, bool set,
           int64_t claim = 1) {
    training::v1::AttachRequest message;
    message.mutable_store_request()->set_id(1);
    if (set) {
      message.mutable_store_request()->mutable_set()->set_key(key);
    } else {
      message.mutable_store_request()->mutable_get()->add_keys(key);
      message.mutable_store_request()->mutable_get()->set_wait(true);
    }
    return Report(id, message, job, claim);
  }
};

TEST_F(GangTableTest, AllAreReservedOrNone) {
  Warm();
  EXPECT_THAT(ReserveGang(2), IsEmpty());
  EXPECT_EQ(table_->counts().warm, 1) << "and the one is free for others";
  EXPECT_NE(Starting(), "none was missing") << "another is started for it";
  EXPECT_EQ(Starting(), "none was missing") << "and no more than it needs";
  ASSERT_TRUE(Attach("w9-2").ok());
  EXPECT_THAT(ReserveGang(2), SizeIs(2));
  EXPECT_THAT(ReserveGang(2), IsEmpty());
}

TEST_F(GangTableTest, WorkersAreKeptForAGangThatAsksForHalfAMinute) {
  EXPECT_THAT(ReserveGang(3), IsEmpty());
  Warm();
  Pass(absl::Seconds(31));
  EXPECT_EQ(Starting(), "none was missing") << "its job may have been cancelled";
}

TEST_F(GangTableTest, EachRankIsPromisedItsMemory) {
  Gang("first");
  WorkerTable::Options options = TableOptions();
  Open(std::move(options));
  EXPECT_THAT(ReserveGang(2, 5000), IsEmpty());
  Warm();
  Warm();
  EXPECT_THAT(ReserveGang(2, 5000), IsEmpty()) << "the device has 8000";
  EXPECT_THAT(ReserveGang(2, 4000), SizeIs(2));
}

TEST_F(GangTableTest, FewHostsTakePart) {
  for (const char* id : {"a-1", "a-2", "b-1", "b-2", "b-3"}) {
    ASSERT_TRUE(Attach(id, "", 0, std::string("host-") + id[0]).ok());
  }
  const std::vector<WorkerLease> two = ReserveGang(2);
  ASSERT_THAT(two, SizeIs(2));
  EXPECT_EQ(two[0].host, "host-a") << "the smallest that has enough";
  EXPECT_EQ(two[1].host, "host-a");
  for (const WorkerLease& lease : two) Release(lease.worker.worker_id());
  const std::vector<WorkerLease> four = ReserveGang(4);
  ASSERT_THAT(four, SizeIs(4));
  EXPECT_EQ(four[0].host, "host-b");
  EXPECT_EQ(four[2].host, "host-b");
  EXPECT_EQ(four[3].host, "host-a");
}

TEST_F(GangTableTest, RanksFindEachOtherByTheStoreOfTheirClaim) {
  const std::vector<std::string> ids = Gang("job");
  EXPECT_FALSE(Ask(ids[0], "job", "address/1", /*set=*/false)) << "the job need not hear of it";
  EXPECT_THAT(Sent(), IsEmpty());
  Ask(ids[1], "job", "address/1", /*set=*/true);
  ASSERT_THAT(Sent(), SizeIs(2));
  EXPECT_TRUE(Sent()[0].has_store_response());
  EXPECT_EQ(Sent()[1].store_response().values(0).found(), true);
  // Each claim and each job has its own store.
  EXPECT_FALSE(Ask(ids[1], "job", "x", /*set=*/true, /*claim=*/2));
  EXPECT_FALSE(Ask(ids[1], "other", "x", /*set=*/true));
}

TEST_F(GangTableTest, OneThatIsGoneEndsTheOthers) {
  const std::vector<std::string> ids = Gang("job");
  Ask(ids[2], "job", "never", /*set=*/false);
  Exit(ids[1], 9);
  Detach(ids[1]);
  Pass(absl::ZeroDuration());
  EXPECT_EQ(Gone().exit.rank, 1);
  Note(table_->Abandon("job", "rank 1 is gone"));
  int told = 0;
  for (const training::v1::AttachResponse& command : Sent()) {
    told += command.stop_job().abandon() ? 1 : 0;
    if (command.has_store_response()) {
      EXPECT_EQ(command.store_response().error(), "rank 1 is gone");
    }
  }
  EXPECT_EQ(told, 2);
  EXPECT_THAT(Sent(), SizeIs(3)) << "and the get is answered";
  Pass(absl::Seconds(16));
  EXPECT_THAT(Signals(), UnorderedElementsAre(ids[0] + ":15", ids[2] + ":15"));
  Pass(absl::Seconds(11));
  EXPECT_THAT(Signals(), UnorderedElementsAre(ids[0] + ":9", ids[2] + ":9"));
  Exit(ids[0], 0);
  Detach(ids[0]);
  Pass(absl::ZeroDuration());
  EXPECT_EQ(Gone().exit.forced, "rank 1 is gone");
}

TEST_F(GangTableTest, OneThatComesBackHearsThatItsAttemptIsOver) {
  const std::vector<std::string> ids = Gang("job");
  Detach(ids[2]);
  Note(table_->Abandon("job", "rank 1 is gone"));
  EXPECT_THAT(Sent(), SizeIs(2));
  ASSERT_TRUE(Attach(ids[2], "job", 1).ok());
  ASSERT_THAT(Sent(), SizeIs(2));
  EXPECT_TRUE(Sent()[1].stop_job().abandon());
  EXPECT_THAT(Done<TellBack>(), IsEmpty()) << "requests are for rank 0";
}

TEST_F(GangTableTest, WhatOtherRanksTellNeedNotBeDurable) {
  const std::vector<std::string> ids = Gang("job");
  training::v1::AttachRequest message;
  message.set_sequence(4);
  message.mutable_started();
  EXPECT_TRUE(Report(ids[1], message, "job"));
  ASSERT_THAT(Sent(), SizeIs(1));
  EXPECT_EQ(Sent()[0].acknowledged().sequence(), 4);
  EXPECT_TRUE(Report(ids[0], message, "job"));
  EXPECT_THAT(Sent(), IsEmpty()) << "what rank 0 tells is acknowledged once it is stored";
}

TEST_F(GangTableTest, AllItsWorkersAreEndedWithTheJob) {
  const std::vector<std::string> ids = Gang("job");
  table_->ExpectExit("job", absl::ZeroDuration(), "a user cancelled the job at once");
  Pass(absl::ZeroDuration());
  EXPECT_THAT(Signals(), SizeIs(3));
  training::v1::AttachResponse take;
  take.mutable_take_checkpoint();
  Note(table_->Send("job", take));
  EXPECT_THAT(Sent(), SizeIs(1)) << "rank 0 asks the others";
}

class ReservationTest : public GangTableTest {
 protected:
  void Close(const std::string& name) { Note(table_->CloseReservation(name)); }
  std::vector<WorkerLease> ReserveSubmitted(const std::string& name, int ranks) {
    std::vector<WorkerLease> leases = table_->ReserveSubmitted(name, ranks);
    Note();
    return leases;
  }
};

TEST_F(ReservationTest, ItsWorkersServeOneJobAndTakeNoSlot) {
  table_->OpenReservation("genesis-1-x");
  ASSERT_TRUE(Attach("n1-1", "", 0, "n1", "genesis-1-x").ok());
  ASSERT_TRUE(Attach("n2-1", "", 0, "n2").ok());
  EXPECT_EQ(table_->slots(), 4) << "three of this machine and n2";
  EXPECT_EQ(table_->counts().warm, 1);
  EXPECT_EQ(table_->WarmOf("genesis-1-x"), 1);
  EXPECT_THAT(ReserveSubmitted("genesis-1-x", 2), IsEmpty());
  EXPECT_THAT(ReserveSubmitted("", 1), IsEmpty());
  EXPECT_THAT(ReserveSubmitted("genesis-1-y", 1), IsEmpty());
  ASSERT_TRUE(Attach("n1-2", "", 0, "n1", "genesis-1-x").ok());
  const std::vector<WorkerLease> others = ReserveGang(1);
  ASSERT_THAT(others, SizeIs(1));
  EXPECT_EQ(others[0].worker.worker_id(), "n2-1") << "no other job gets them";
  EXPECT_THAT(ReserveGang(1), IsEmpty());
  // The cluster may place both workers on one device, whatever memory the job needs.
  const std::vector<WorkerLease> leases = ReserveSubmitted("genesis-1-x", 2);
  ASSERT_THAT(leases, SizeIs(2));
  EXPECT_EQ(leases[1].worker.reservation(), "genesis-1-x");
  EXPECT_EQ(leases[1].worker.device(), "n1/cuda:0");
  BeginGang(leases, "x");
  EXPECT_EQ(table_->counts().reserved_busy, 2);
  EXPECT_EQ(table_->counts().busy, 1) << "that of n2 is reserved";
  // The daemon does not quarantine devices of a cluster, even if they fail.
  for (const char* id : {"n1-1", "n1-2"}) EXPECT_TRUE(Finish(id, "x", /*by_device=*/true));
  EXPECT_EQ(table_->problem(), "");
  for (const char* id : {"n1-1", "n1-2"}) Detach(id);
  Pass(absl::Seconds(1));
  EXPECT_EQ(table_->counts().reserved_busy, 0);
  EXPECT_EQ(table_->slots(), 4);
}

TEST_F(ReservationTest, OneThatIsOverSendsItsWorkersHomeAndTakesNoMore) {
  EXPECT_EQ(Attach("n1-1", "", 0, "n1", "genesis-1-x").code(), absl::StatusCode::kPermissionDenied);
  table_->OpenReservation("genesis-1-x");
  ASSERT_TRUE(Attach("n1-2", "", 0, "n1", "genesis-1-x").ok());
  ASSERT_TRUE(Attach("n1-3", "", 0, "n1", "genesis-1-x").ok());
  const std::vector<WorkerLease> leases = ReserveSubmitted("genesis-1-x", 1);
  ASSERT_THAT(leases, SizeIs(1));
  Close("genesis-1-x");
  EXPECT_THAT(Done<CloseStream>(), SizeIs(1)) << "of the one that has no job";
  Release(leases[0].worker.worker_id());
  EXPECT_THAT(Done<CloseStream>(), SizeIs(1)) << "and of the one whose job was not stored";
  const absl::Status late = Attach("n1-4", "", 0, "n1", "genesis-1-x");
  EXPECT_EQ(late.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(late.message(), HasSubstr("reservation \"genesis-1-x\" is over"));
}

TEST_F(ReservationTest, OneThatOutlivedTheDaemonIsAdoptedBesideTheSlots) {
  training::v1::WorkerProcessRef ref;
  ref.set_worker_id("n1-1");
  ref.set_pid(12);
  ref.set_device("n1/cuda:0");
  ref.set_reservation("genesis-1-x");
  table_->Adopt(ref, "x", /*rank=*/0, /*claim=*/1, /*acknowledged=*/6, /*memory_bytes=*/100);
  Note();
  EXPECT_EQ(table_->slots(), 3);
  EXPECT_EQ(table_->counts().reserved_busy, 1);
  EXPECT_TRUE(Attach("n1-1", "x", 1, "n1", "genesis-1-x").ok()) << "it needs no open reservation";
}

}  // namespace
}  // namespace genesis
