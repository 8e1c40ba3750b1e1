// Tests of the rules of workers, with a clock controlled by the test: nothing waits.
#include "tests/server/worker_table_fixture.h"

#include <gmock/gmock.h>

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using training::v1::AttachRequest;
using training::v1::Finished;

// Triggers each legal move as in production: by a request of the daemon, an action of a worker or
// the passage of time.
TEST_F(WorkerTableTest, EveryMoveOfTheTableIsMade) {
  Adopt("w8-5", "adopted");
  ASSERT_TRUE(Attach("w8-5", "adopted", 1).ok());
  ASSERT_TRUE(Finish("w8-5", "adopted"));
  Detach("w8-5");
  Exit("w8-5", 0);
  Pass(absl::Milliseconds(1));
  EXPECT_TRUE(Gone().clean);

  const std::string released = Warm();
  ASSERT_EQ(Reserved(), released);
  Release(released);
  ASSERT_EQ(Reserved(), released);
  Detach(released);
  Release(released);
  EXPECT_EQ(Phase(released), WorkerPhase::kLeaving);

  const std::string late = Warm();
  ASSERT_EQ(Reserved(), late);
  Detach(late);
  Begin(late, "late");
  EXPECT_THAT(done_, IsEmpty()) << "there is no stream to send StartJob by";
  EXPECT_EQ(Phase(late), WorkerPhase::kAbsent);

  const std::string busy = Busy("steady");
  Detach(busy);
  ASSERT_TRUE(Attach(busy, "steady", 1).ok());
  const std::shared_ptr<UnusedLink> older = links_[busy];
  ASSERT_TRUE(Attach(busy, "steady", 1).ok());
  ASSERT_EQ(Done<CloseStream>().size(), 1U);
  EXPECT_EQ(Done<CloseStream>()[0].link, older);
  Detach(busy);
  ASSERT_TRUE(Finish(busy, "steady")) << "by the older stream, which is read to its end";

  ASSERT_TRUE(Retire(Warm()).ok());
  const std::string retired = Starting();
  ASSERT_TRUE(Retire(retired).ok());
  ASSERT_TRUE(Attach(retired).ok());

  for (const WorkerMove& move : WorkerMoves()) {
    EXPECT_TRUE(moves_.contains({move.from, move.to}))
        << WorkerPhaseName(move.from) << " to " << WorkerPhaseName(move.to) << ": " << move.when;
  }
  EXPECT_EQ(moves_.size(), WorkerMoves().size()) << "and no other";
}

TEST_F(WorkerTableTest, AMoveThatNoRuleAllowsEndsTheDaemon) {
  const std::string id = Warm();
  EXPECT_DEATH(Begin(id, "nobody-reserved-it-for"), "");
}

TEST_F(WorkerTableTest, KeepsASpareForEachFreeSlot) {
  Warm();
  EXPECT_EQ(table_->NextSpawn(), std::nullopt);
  Begin(Reserved(), "first");
  const std::string second = Starting();
  EXPECT_EQ(second, "w9-2");
  EXPECT_EQ(table_->NextSpawn(), std::nullopt) << "it is on its way";
  ASSERT_TRUE(Attach(second).ok());
  Begin(Reserved(), "second");
  EXPECT_EQ(Starting(), "w9-3") << "a spare waits even where no slot is free";
  ASSERT_TRUE(Attach("w9-3").ok());
  EXPECT_EQ(Reserved(), "none was free");
  WorkerTable::Options options = TableOptions();
  options.workers.spares = 0;
  options.workers.slots = 1;
  Open(std::move(options));
  Busy("alone");
  EXPECT_EQ(table_->NextSpawn(), std::nullopt);
}

TEST_F(WorkerTableTest, ALeaseNamesTheProcessAndTheDevice) {
  Warm();
  const std::vector<WorkerLease> leases = table_->ReserveGang(1, 8000);
  ASSERT_EQ(leases.size(), 1U);
  const WorkerLease* const lease = &leases.front();
  EXPECT_EQ(lease->worker.worker_id(), "w9-1");
  EXPECT_EQ(lease->worker.pid(), 401);
  EXPECT_EQ(lease->worker.start_ticks(), 1101);
  EXPECT_EQ(lease->worker.device(), "cuda:0");
  EXPECT_EQ(lease->device.memory_bytes(), 8000);
  Warm();
  EXPECT_EQ(Reserved(1), "none was free") << "all memory is promised";
  Release("w9-1");
  EXPECT_EQ(Reserved(1), "w9-1");
}

TEST_F(WorkerTableTest, AWorkerThatDialsBeforeItsProcessIsKnownWaits) {
  const std::optional<SpawnWorker> spawn = table_->NextSpawn();
  ASSERT_TRUE(spawn.has_value());
  ASSERT_TRUE(Attach(spawn->worker_id).ok());
  EXPECT_EQ(Reserved(), "none was free") << "the store could not name its process";
  Note(table_->OnSpawned(spawn->worker_id, 77, 88));
  EXPECT_EQ(Done<TellCapacity>().size(), 1U);
  EXPECT_EQ(Reserved(), spawn->worker_id);
}

TEST_F(WorkerTableTest, AStartThatFailsIsTriedAgainAfterGrowingPauses) {
  for (const int pause : {1, 2, 4, 8, 16, 30, 30}) {
    const std::optional<SpawnWorker> spawn = table_->NextSpawn();
    ASSERT_TRUE(spawn.has_value()) << pause;
    Note(table_->OnSpawnFailed(spawn->worker_id, "no such program"));
    EXPECT_EQ(Done<WriteLog>().at(0).text,
              "no such program; next try in " + absl::FormatDuration(absl::Seconds(pause)));
    EXPECT_EQ(table_->PhaseOf(spawn->worker_id), std::nullopt);
    EXPECT_EQ(table_->problem(), "no such program");
    Pass(absl::Seconds(pause) - absl::Milliseconds(1));
    EXPECT_EQ(table_->NextSpawn(), std::nullopt);
    Pass(absl::Milliseconds(1));
  }
  Warm();
  EXPECT_EQ(table_->problem(), "");
}

TEST_F(WorkerTableTest, AWorkerThatDoesNotAttachInTimeIsKilled) {
  const std::string id = Starting();
  Pass(absl::Milliseconds(39'999));
  EXPECT_THAT(Signals(), IsEmpty());
  Pass(absl::Milliseconds(1));
  EXPECT_THAT(Signals(), ElementsAre("w9-1:9"));
  EXPECT_EQ(Done<WriteLog>().at(0).text, "worker w9-1: it did not attach within 40s; killed");
  Pass(absl::Hours(1));
  EXPECT_THAT(done_, IsEmpty()) << "nothing is stronger than SIGKILL";
  Exit(id);
  Pass(absl::ZeroDuration());
  EXPECT_TRUE(Gone().failed_to_start);
  EXPECT_FALSE(Gone().unexpected);
}

TEST_F(WorkerTableTest, AWorkerWhoseStreamBreaksHasTimeToComeBack) {
  const std::string id = Busy("job");
  Detach(id);
  Pass(absl::Seconds(25));
  EXPECT_THAT(Signals(), IsEmpty());
  Note(table_->Acknowledge("job", 14));
  EXPECT_THAT(done_, IsEmpty());
  EXPECT_FALSE(Attach(id, "job", 2).ok()) << "another claim";
  EXPECT_FALSE(Attach(id).ok()) << "no job";
  ASSERT_TRUE(Attach(id, "job", 1).ok());
  EXPECT_EQ(Done<SendCommand>().at(0).command.acknowledged().sequence(), 14);
  EXPECT_EQ(Done<TellBack>().at(0).job_id, "job");
  Detach(id);
  Pass(absl::Seconds(26));
  EXPECT_THAT(Signals(), ElementsAre("w9-1:15"));
  Pass(absl::Milliseconds(9'999));
  EXPECT_THAT(Signals(), IsEmpty());
  Pass(absl::Milliseconds(1));
  EXPECT_THAT(Signals(), ElementsAre("w9-1:9"));
  Exit(id);
  Pass(absl::ZeroDuration());
  EXPECT_EQ(Gone().exit.job_id, "job");
  EXPECT_EQ(Gone().exit.claim, 1);
  EXPECT_EQ(Gone().exit.forced, "its stream broke and it did not attach again");
  EXPECT_FALSE(Gone().exit.never_back);
  EXPECT_TRUE(Gone().unexpected);
  EXPECT_EQ(table_->counts().busy, 0);
}

TEST_F(WorkerTableTest, AWorkerWithoutAJobThatClosedItsStreamIsToExit) {
  const std::string id = Warm();
  Detach(id);
  EXPECT_FALSE(Attach(id).ok());
  EXPECT_EQ(table_->NextSpawn()->worker_id, "w9-2") << "it is a spare no longer";
  Pass(absl::Milliseconds(29'999));
  EXPECT_THAT(Signals(), IsEmpty());
  Pass(absl::Milliseconds(1));
  EXPECT_THAT(Signals(), ElementsAre("w9-1:15"));
  Exit(id, 0);
  Pass(absl::ZeroDuration());
  EXPECT_EQ(Gone().exit.forced, "it closed its stream and did not exit");
  EXPECT_TRUE(Gone().clean);
}

TEST_F(WorkerTableTest, AWorkerThatSaidTheEndOfItsJobIsToExit) {
  const std::string id = Busy("job");
  ASSERT_TRUE(Finish(id, "job"));
  EXPECT_EQ(table_->counts().busy, 1) << "its memory is in use until it is gone";
  Note();
  table_->ExpectExit("job", absl::Seconds(12), "it reported the end and stays");
  Pass(absl::Seconds(11));
  EXPECT_THAT(Signals(), IsEmpty());
  Pass(absl::Seconds(1));
  EXPECT_THAT(Signals(), ElementsAre("w9-1:15"));
  Detach(id);
  EXPECT_FALSE(Attach(id, "job", 1).ok());
  Exit(id, 0);
  Pass(absl::ZeroDuration());
  EXPECT_EQ(Gone().exit.forced, "it reported the end and stays");
}

TEST_F(WorkerTableTest, AWorkerThatIsToEndAtOnceIsKilled) {
  Busy("job");
  table_->ExpectExit("job", absl::Minutes(1), "later");
  table_->ExpectExit("job", absl::ZeroDuration(), "at once");
  table_->ExpectExit("job", absl::Minutes(2), "much later");
  Pass(absl::ZeroDuration());
  EXPECT_THAT(Signals(), ElementsAre("w9-1:9"));
  EXPECT_EQ(Done<WriteLog>().at(0).text, "worker w9-1: at once; killed");
}

TEST_F(WorkerTableTest, AnAdoptedWorkerMayNeverComeBack) {
  Adopt("w8-3", "old");
  EXPECT_EQ(table_->counts().busy, 1);
  Pass(absl::Seconds(26));
  EXPECT_THAT(Signals(), ElementsAre("w8-3:15"));
  Exit("w8-3");
  Pass(absl::ZeroDuration());
  EXPECT_TRUE(Gone().exit.never_back);
  EXPECT_EQ(Gone().exit.forced, "it did not attach again after the daemon was restarted");
  EXPECT_EQ(table_->devices()[0].busy(), 0);

  Adopt("w8-4", "older");
  ASSERT_TRUE(Attach("w8-4", "older", 1).ok());
  EXPECT_EQ(Done<SendCommand>().at(0).command.acknowledged().sequence(), 6);
  Detach("w8-4");
  Exit("w8-4");
  Pass(absl::ZeroDuration());
  EXPECT_FALSE(Gone().exit.never_back) << "it was back";
}

TEST_F(WorkerTableTest, ADrainSendsHomeWhoeverHasNoJob) {
  const std::string busy = Busy("busy");
  const std::string absent = Busy("absent");
  Detach(absent);
  const std::string starting = Starting();
  Note(table_->Drain());
  EXPECT_EQ(table_->NextSpawn(), std::nullopt);
  ASSERT_TRUE(Attach(starting).ok());
  ASSERT_EQ(Done<CloseStream>().size(), 1U);
  EXPECT_EQ(Done<CloseStream>()[0].link, links_[starting]);
  EXPECT_EQ(Phase(starting), WorkerPhase::kLeaving);
  EXPECT_EQ(Reserved(), "none was free");
  EXPECT_EQ(Phase(busy), WorkerPhase::kBusy);
  Pass(absl::Seconds(5));
  EXPECT_THAT(Signals(), ElementsAre(absent + ":15"));
  EXPECT_THAT(Done<WriteLog>().at(0).text,
              HasSubstr("the daemon drains, and it did not attach again"));
}

TEST_F(WorkerTableTest, ADrainClosesTheStreamOfAWarmWorker) {
  const std::string id = Warm();
  Note(table_->Drain());
  ASSERT_EQ(Done<CloseStream>().size(), 1U);
  EXPECT_EQ(Done<CloseStream>()[0].link, links_[id]);
  EXPECT_EQ(Phase(id), WorkerPhase::kLeaving);
}

TEST_F(WorkerTableTest, AWarmWorkerThatIsRetiredGoesHome) {
  const std::string id = Warm();
  EXPECT_EQ(*Retire(id), "");
  ASSERT_EQ(Done<CloseStream>().size(), 1U);
  EXPECT_EQ(Reserved(), "none was free");
  EXPECT_TRUE(IsDraining(id));
  EXPECT_TRUE(table_->NextSpawn().has_value()) << "another takes its place";
  EXPECT_EQ(Retire("w9-99").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(WorkerTableTest, AStartingWorkerThatIsRetiredGoesHomeOnceItAttaches) {
  const std::string id = Starting();
  EXPECT_EQ(*Retire(id), "");
  EXPECT_THAT(done_, IsEmpty()) << "it has no stream yet";
  EXPECT_EQ(Phase(id), WorkerPhase::kStarting);
  EXPECT_TRUE(table_->NextSpawn().has_value()) << "another takes its place";
  ASSERT_TRUE(Attach(id).ok());
  EXPECT_EQ(Done<CloseStream>().size(), 1U);
  EXPECT_EQ(Phase(id), WorkerPhase::kLeaving);
}

TEST_F(WorkerTableTest, ABusyWorkerThatIsRetiredKeepsItsJob) {
  const std::string id = Busy("job");
  EXPECT_EQ(*Retire(id), "job");
  EXPECT_THAT(done_, IsEmpty()) << "the job is stopped first";
  EXPECT_EQ(Phase(id), WorkerPhase::kBusy);
  EXPECT_TRUE(IsDraining(id));
}

TEST_F(WorkerTableTest, AReservedWorkerThatIsRetiredGoesHomeWhenItIsReleased) {
  const std::string id = Warm();
  ASSERT_EQ(Reserved(), id);
  EXPECT_EQ(*Retire(id), "");
  EXPECT_THAT(done_, IsEmpty());
  Release(id);
  ASSERT_EQ(Done<CloseStream>().size(), 1U);
  EXPECT_EQ(Phase(id), WorkerPhase::kLeaving);
}

TEST_F(WorkerTableTest, AReservedWorkerThatExitsWaitsForItsJob) {
  const std::string id = Warm();
  ASSERT_EQ(Reserved(), id);
  Detach(id);
  Exit(id);
  Pass(absl::Minutes(1));
  EXPECT_THAT(done_, IsEmpty());
  Begin(id, "job");
  Pass(absl::ZeroDuration());
  EXPECT_EQ(Gone().exit.job_id, "job") << "the job hears of it";
}

TEST_F(WorkerTableTest, AReservedWorkerThatExitsWaitsForItsRelease) {
  const std::string id = Warm();
  ASSERT_EQ(Reserved(), id);
  Exit(id);
  Detach(id);
  Pass(absl::Minutes(1));
  EXPECT_THAT(done_, IsEmpty());
  EXPECT_EQ(table_->counts().busy, 1);
  Release(id);
  EXPECT_EQ(table_->counts().busy, 0);
  Pass(absl::ZeroDuration());
  EXPECT_EQ(Gone().exit.job_id, "");
}

TEST_F(WorkerTableTest, AWorkerIsGoneOnceItsStreamIsDrainedToo) {
  const std::string id = Busy("job");
  Exit(id);
  Pass(absl::Seconds(3));
  EXPECT_THAT(done_, IsEmpty());
  EXPECT_EQ(table_->counts().busy, 1) << "what it said last is still to be read";
  ASSERT_TRUE(Finish(id, "job"));
  Detach(id);
  Pass(absl::ZeroDuration());
  EXPECT_EQ(Gone().exit.exit.exit_code, 3);
}

TEST_F(WorkerTableTest, AReportOnAnotherJobIsRefused) {
  const std::string id = Busy("job");
  EXPECT_FALSE(Finish(id, "another"));
  EXPECT_THAT(Done<WriteLog>().at(0).text, HasSubstr("reports on job another claim 1, but holds"));
  EXPECT_EQ(Phase(id), WorkerPhase::kBusy);
  const std::string warm = Warm();
  AttachRequest finished;
  finished.mutable_finished()->set_outcome(Finished::OUTCOME_COMPLETED);
  Report(warm, finished, "", 0);
  EXPECT_EQ(Phase(warm), WorkerPhase::kWarm) << "the end of no job";
}

TEST_F(WorkerTableTest, AWorkerOfAnotherHostIsGoneWhenItDoesNotAttachAgain) {
  ASSERT_TRUE(Attach("far-7", "", 0, "far").ok());
  EXPECT_EQ(table_->slots(), 3) << "each of its workers is a slot";
  ASSERT_EQ(Reserved(), "far-7");
  Begin("far-7", "job");
  EXPECT_EQ(Done<SendCommand>().at(0).command.start_job().patience_seconds(), 6);
  Detach("far-7");
  EXPECT_FALSE(Attach("far-7", "job", 1).ok()) << "from this machine";
  ASSERT_TRUE(Attach("far-7", "job", 1, "far").ok());
  Detach("far-7");
  Pass(absl::Seconds(26));
  EXPECT_THAT(Signals(), IsEmpty()) << "its host ends it";
  EXPECT_TRUE(Gone().remote);
  EXPECT_EQ(Gone().exit.job_id, "job");
  EXPECT_FALSE(Gone().exit.exit.known);
  EXPECT_TRUE(Gone().unexpected);
  EXPECT_EQ(table_->slots(), 2);
}

TEST_F(WorkerTableTest, AWorkerOfAnotherHostIsAskedToStopAndThenCutOff) {
  ASSERT_TRUE(Attach("far-7", "", 0, "far").ok());
  Begin(Reserved(), "job");
  table_->ExpectExit("job", absl::Seconds(1), "it is to stop");
  Pass(absl::Seconds(1));
  EXPECT_TRUE(Done<SendCommand>().at(0).command.stop_job().checkpoint());
  Pass(absl::Seconds(10));
  EXPECT_EQ(Done<CloseStream>().at(0).link, links_["far-7"]);
  EXPECT_EQ(table_->counts().busy, 1) << "until its stream is drained";
  Detach("far-7");
  Pass(absl::ZeroDuration());
  EXPECT_EQ(Gone().exit.forced, "it is to stop");
}

TEST_F(WorkerTableTest, AWarmWorkerOfAnotherHostGoesWithItsStream) {
  ASSERT_TRUE(Attach("far-7", "", 0, "far").ok());
  EXPECT_FALSE(Attach("near-1", "", 0).ok()) << "this daemon has not started it";
  Detach("far-7");
  Pass(absl::ZeroDuration());
  EXPECT_FALSE(Gone().unexpected);
  EXPECT_FALSE(Gone().failed_to_start);
  WorkerTable::Options options = TableOptions();
  options.remote.reset();
  Open(std::move(options));
  const absl::Status refused = Attach("far-8", "", 0, "far");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("set workers.remote: true"));
  EXPECT_THAT(Done<WriteLog>().at(0).text, HasSubstr("a worker of another host is refused: "));
}

TEST_F(WorkerTableTest, ADeviceThatFailsTooOftenGetsNoJobsForAWhile) {
  const std::string first = Busy("first");
  const std::string second = Busy("second");
  ASSERT_TRUE(Finish(first, "first", /*by_device=*/true));
  EXPECT_FALSE(table_->devices()[0].quarantined());
  ASSERT_TRUE(Finish(second, "second", /*by_device=*/true));
  EXPECT_THAT(Done<WriteLog>().at(0).text,
              HasSubstr("device cuda:0 is quarantined: 2 device errors in a row; the newest: the "
                        "bus fell silent"));
  ASSERT_TRUE(Finish(second, "second", /*by_device=*/true));
  EXPECT_THAT(done_, IsEmpty()) << "the end of a job counts once";
  for (const std::string& id : {first, second}) {
    Exit(id, 0);
    Detach(id);
  }
  Pass(absl::ZeroDuration());
  EXPECT_THAT(table_->problem(), HasSubstr("every device is quarantined; cuda:0: 2 device errors"));
  EXPECT_EQ(table_->NextSpawn(), std::nullopt);
  Pass(absl::Minutes(7));
  EXPECT_EQ(table_->problem(), "");
  Warm();
  EXPECT_EQ(Reserved(), "w9-3");
}

TEST_F(WorkerTableTest, AStopEndsEveryWorker) {
  const std::string busy = Busy("job");
  Warm();
  ASSERT_EQ(Reserved(), "w9-2");
  ASSERT_TRUE(Attach("far-7", "", 0, "far").ok());
  const std::optional<SpawnWorker> spawn = table_->NextSpawn();
  ASSERT_TRUE(spawn.has_value());
  Note(table_->Stop(absl::Seconds(2)));
  EXPECT_THAT(Signals(), ElementsAre("w9-1:15", "w9-2:15", "w9-3:15"));
  EXPECT_EQ(Done<CloseStream>().at(0).link, links_["far-7"]);
  Note(table_->OnSpawned(spawn->worker_id, 55, 66));
  EXPECT_THAT(Signals(), ElementsAre("w9-3:15")) << "it was started meanwhile";
  EXPECT_EQ(table_->NextSpawn(), std::nullopt);
  Pass(absl::Seconds(2));
  EXPECT_THAT(Signals(), ElementsAre("w9-1:9", "w9-2:9", "w9-3:9"));
  EXPECT_THAT(Done<WriteLog>(), IsEmpty());
  for (const std::string& id : {busy, std::string("w9-2"), spawn->worker_id}) Exit(id);
  for (const char* id : {"w9-1", "w9-2", "far-7"}) Detach(id);
  EXPECT_FALSE(table_->ended());
  Pass(absl::ZeroDuration());
  EXPECT_EQ(Done<TellGone>().size(), 4U);
  for (const TellGone& gone : Done<TellGone>()) {
    EXPECT_FALSE(gone.failed_to_start || gone.unexpected) << gone.exit.worker_id;
  }
  EXPECT_TRUE(table_->ended());
}

}  // namespace
}  // namespace genesis
