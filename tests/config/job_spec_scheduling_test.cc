#include <gmock/gmock.h>

#include "base/text/enum_names.h"
#include "config/job/job_file.h"
#include "config/job/job_spec.h"
#include "config/job/workload.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using training::v1::JobSpec;

JobSpec Small() {
  JobSpec spec;
  spec.mutable_model()->mutable_world_model();
  spec.mutable_dataset()->mutable_trajectories()->set_path("a.npz");
  spec.mutable_training()->set_max_steps(10);
  return spec;
}

std::vector<std::string> Faults(const JobSpec& spec) {
  std::vector<std::string> texts;
  for (const FieldError& error : ValidateJobSpec(spec)) texts.push_back(error.ToString());
  return texts;
}

TEST(SchedulingSpecTest, IsFineWithoutAnythingAndGetsAGrace) {
  EXPECT_THAT(Faults(Small()), ElementsAre());
  EXPECT_EQ(WithDefaults(Small(), {}).scheduling().stop_grace_seconds(), 60);
}

TEST(SchedulingSpecTest, NamesEveryFault) {
  JobSpec spec = Small();
  spec.mutable_training()->set_batch_size(33);
  training::v1::SchedulingSpec& scheduling = *spec.mutable_scheduling();
  scheduling.set_priority(101);
  scheduling.set_owner("two\nlines");
  (*scheduling.mutable_labels())["a b"] = "x";
  (*scheduling.mutable_labels())["long"] = std::string(256, 'x');
  scheduling.set_deadline_seconds(-1);
  scheduling.set_memory_bytes(-1);
  scheduling.set_stop_grace_seconds(0.5);
  scheduling.set_shrink_on_out_of_memory(true);
  spec.mutable_model()->set_initial_weights("w.pt");
  spec.set_start_from_checkpoint("c-step-1");
  const std::vector<std::string> faults = Faults(spec);
  EXPECT_EQ(faults.size(), 9U) << testing::PrintToString(faults);
  EXPECT_EQ(faults[0], "scheduling.priority is 101; accepted: -100 to 100");
  EXPECT_EQ(
      faults[4],
      "scheduling.owner is \"two\\nlines\"; accepted: the name of a caller, at most 259 bytes "
      "without control characters");
  scheduling.set_owner("jwt:system:serviceaccount:ml:trainer");
  EXPECT_EQ(Faults(spec).size(), 8U);
  EXPECT_EQ(faults.back(),
            "start_from_checkpoint: \"c-step-1\" conflicts with model.initial_weights \"w.pt\"; "
            "give one of the two");
}

TEST(TheBeginningOfAJobTest, HasOneSource) {
  JobSpec spec = Small();
  spec.set_continue_from_checkpoint("c-step-1");
  spec.mutable_optimizer()->mutable_schedule()->set_goes_on(true);
  EXPECT_THAT(Faults(spec), ElementsAre());
  // The warm-up may have begun before the checkpoint.
  spec.mutable_training()->clear_epochs();
  spec.mutable_training()->set_max_steps(100);
  spec.mutable_optimizer()->mutable_schedule()->set_warmup_steps(101);
  EXPECT_THAT(Faults(spec), ElementsAre());
  spec.set_start_from_checkpoint("c-step-2");
  EXPECT_THAT(Faults(spec),
              ElementsAre("start_from_checkpoint: \"c-step-2\" conflicts with "
                          "continue_from_checkpoint \"c-step-1\"; give one of the two"));
  spec.clear_continue_from_checkpoint();
  EXPECT_THAT(
      Faults(spec),
      ElementsAre("optimizer.schedule.goes_on is true; accepted: false, because there is no "
                  "continue_from_checkpoint"));
}

TEST(RanksOfAJobTest, AreCheckedWithTheirMinimum) {
  JobSpec spec = Small();
  spec.mutable_distributed()->set_ranks(1025);
  EXPECT_THAT(Faults(spec), ElementsAre("distributed.ranks is 1025; accepted: 1 to 1024"));
  spec.mutable_distributed()->set_ranks(2);
  EXPECT_THAT(Faults(spec), ElementsAre());
  spec.mutable_distributed()->set_min_ranks(3);
  EXPECT_THAT(Faults(spec), ElementsAre("distributed.min_ranks is 3; accepted: at most "
                                        "distributed.ranks, 2"));
  spec.mutable_distributed()->clear_ranks();
  EXPECT_THAT(
      Faults(spec),
      ElementsAre("distributed.min_ranks: 3 needs several ranks; give distributed.ranks, or "
                  "remove distributed.min_ranks"));
  spec.mutable_training()->set_use_ddp(true);
  EXPECT_THAT(Faults(spec), ElementsAre());
}

TEST(RanksOfAJobTest, SayHowManyADaemonStarts) {
  JobSpec spec = Small();
  EXPECT_EQ(RanksOf(spec, 4), 1);
  spec.mutable_training()->set_use_ddp(true);
  EXPECT_EQ(RanksOf(spec, 4), 4);
  EXPECT_EQ(RanksOf(spec, 0), 1);
  spec.mutable_distributed()->set_ranks(8);
  EXPECT_EQ(RanksOf(spec, 4), 8);
  EXPECT_EQ(FewestRanksOf(spec, 4), 8);
  spec.mutable_distributed()->set_min_ranks(2);
  EXPECT_EQ(FewestRanksOf(spec, 4), 2);
}

TEST(WorkloadKeyTest, IsThatOfJobsOfOtherOwnersAndPriorities) {
  JobSpec spec = Small();
  const std::string workload = WorkloadKey(spec);
  spec.mutable_scheduling()->set_priority(4);
  (*spec.mutable_scheduling()->mutable_labels())["team"] = "a";
  spec.mutable_trace()->set_at_step(3);
  EXPECT_EQ(WorkloadKey(spec), workload);
  spec.mutable_training()->set_seed(9);
  EXPECT_NE(WorkloadKey(spec), workload);
}

TEST(RanksOfAJobTest, OfAClusterAreCountedByTheJob) {
  JobSpec spec = Small();
  EXPECT_FALSE(IsSubmitted(spec));
  spec.mutable_distributed()->set_launcher(training::v1::LAUNCHER_KIND_LOCAL);
  EXPECT_FALSE(IsSubmitted(spec));
  const std::string workload = WorkloadKey(spec);
  spec.mutable_distributed()->set_launcher(training::v1::LAUNCHER_KIND_SLURM);
  EXPECT_TRUE(IsSubmitted(spec));
  EXPECT_EQ(WorkloadKey(spec), workload) << "whoever starts it, it trains alike";
  EXPECT_THAT(Faults(spec), ElementsAre()) << "one rank is enough";
  EXPECT_EQ(ShortEnumName(LauncherOf(spec)), "SLURM");
  spec.mutable_training()->set_use_ddp(true);
  EXPECT_THAT(Faults(spec),
              ElementsAre("distributed.ranks: required with training.use_ddp and "
                          "distributed.launcher SLURM, for a cluster has no slots to count; give "
                          "how many workers it is asked for"));
  spec.mutable_distributed()->set_ranks(4);
  spec.mutable_distributed()->set_min_ranks(2);
  EXPECT_THAT(Faults(spec),
              ElementsAre("distributed.min_ranks: 2 with distributed.launcher SLURM: a cluster "
                          "gives all ranks or none; remove one of them"));
}

TEST(SchedulingSpecTest, IsReadFromAJobFile) {
  const absl::StatusOr<JobSpec> spec = ParseJobFile(
      "model: {world_model: {}}\n"
      "dataset: {trajectories: {path: a.npz}}\n"
      "training: {max_steps: 10}\n"
      "scheduling: {priority: 5, owner: ann@lab, labels: {team: robots, run: '7'}}\n",
      "job.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->scheduling().priority(), 5);
  EXPECT_EQ(spec->scheduling().labels().at("team"), "robots");
  EXPECT_EQ(spec->scheduling().labels().at("run"), "7");
}

TEST(SchedulingSpecTest, FaultsOfLabelsNameTheirPlace) {
  const std::string head =
      "model: {world_model: {}}\ndataset: {trajectories: {path: a.npz}}\ntraining: {max_steps: "
      "10}\n";
  const auto fault = [&](const std::string& labels) {
    return std::string(ParseJobFile(head + "scheduling:\n  labels: " + labels + "\n", "job.yaml")
                           .status()
                           .message());
  };
  EXPECT_EQ(fault("robots"),
            "job.yaml:5:11: scheduling.labels is \"robots\"; accepted: names with texts, such as "
            "{team: robots}");
  EXPECT_EQ(fault("{a: 1, a: 2}"), "job.yaml:5:18: scheduling.labels.a: given twice; keep one");
  EXPECT_EQ(
      fault("{a: [1]}"),
      "job.yaml:5:12: scheduling.labels: has a value that is not text; accepted: names with texts");
}

}  // namespace
}  // namespace genesis
