#include "trainer/distributed/rank_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "trainer/distributed/slurm_lists.h"

namespace genesis {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

absl::StatusOr<RankPlace> Read(const Variables& variables) {
  return ReadRankPlace([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

// Variables that torchrun --nnodes=2 --nproc_per_node=2 sets for the last of four ranks.
const Variables kFourth = {{"RANK", "3"},
                           {"WORLD_SIZE", "4"},
                           {"LOCAL_RANK", "1"},
                           {"LOCAL_WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "node1"},
                           {"MASTER_PORT", "29400"},
                           {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                           {"TORCHELASTIC_RUN_ID", "run7"},
                           {"TORCHELASTIC_RESTART_COUNT", "2"}};

Variables With(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

Variables Without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(RankPlaceTest, IsAloneWithoutALauncher) {
  EXPECT_EQ(Read({})->size, 1);
  EXPECT_EQ(Read({{"RANK", "5"}})->size, 1);
  EXPECT_EQ(Read({{"WORLD_SIZE", "1"}, {"RANK", "0"}})->size, 1);
}

TEST(RankPlaceTest, ReadsWhatTorchrunGives) {
  const absl::StatusOr<RankPlace> place = Read(kFourth);
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->rank, 3);
  EXPECT_EQ(place->size, 4);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->local_size, 2);
  EXPECT_EQ(place->address, "node1");
  EXPECT_EQ(place->port, 29400);
  EXPECT_TRUE(place->agent_store);
  EXPECT_EQ(place->attempt, "run7/2");
}

TEST(RankPlaceTest, AnotherAttemptHasAnotherStore) {
  EXPECT_NE(Read(With(kFourth, "TORCHELASTIC_RESTART_COUNT", "3"))->attempt,
            Read(kFourth)->attempt);
}

TEST(RankPlaceTest, TakesAGpuOfItsOwn) {
  EXPECT_EQ(Read(kFourth)->gpu, "1");
  EXPECT_EQ(Read(With(kFourth, "CUDA_VISIBLE_DEVICES", "4,6"))->gpu, "6");
  EXPECT_EQ(Read(With(kFourth, "CUDA_VISIBLE_DEVICES", "GPU-8932f937"))->gpu, "GPU-8932f937");
}

TEST(RankPlaceTest, NamesEveryVariableThatCannotBe) {
  const auto fault = [](const Variables& variables) {
    return std::string(Read(variables).status().message());
  };
  EXPECT_EQ(fault({{"WORLD_SIZE", "two"}}),
            "WORLD_SIZE is \"two\"; accepted: 1 to 65536, or not set to train alone");
  EXPECT_EQ(
      fault({{"WORLD_SIZE", "2"}, {"RANK", "2"}}),
      "WORLD_SIZE is 2, so this is one of several ranks, but RANK is \"2\"; accepted: 0 to 1; "
      "MASTER_ADDR is not set; accepted: the host where rank 0 runs; MASTER_PORT is not set; "
      "accepted: 1 to 65535. torchrun sets them all; to train alone, unset WORLD_SIZE");
  EXPECT_THAT(fault(Without(kFourth, "RANK")), HasSubstr("RANK is not set; accepted: 0 to 3"));
  EXPECT_THAT(fault(With(kFourth, "MASTER_PORT", "70000")),
              HasSubstr("MASTER_PORT is \"70000\"; accepted: 1 to 65535"));
  EXPECT_THAT(fault(With(kFourth, "LOCAL_RANK", "-1")),
              HasSubstr("LOCAL_RANK is \"-1\"; accepted: 0 to 3"));
  EXPECT_THAT(
      fault(With(With(kFourth, "LOCAL_RANK", "2"), "CUDA_VISIBLE_DEVICES", "0,1")),
      HasSubstr("CUDA_VISIBLE_DEVICES is \"0,1\" and LOCAL_RANK is 2; accepted: a GPU for each "
                "rank of the host"));
}

// Variables that srun sets for the last of three tasks on two hosts.
const Variables kSlurm = {{"SLURM_STEP_NUM_TASKS", "3"},
                          {"SLURM_PROCID", "2"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                          {"SLURM_STEP_NODELIST", "node[3-4]"},
                          {"SLURM_JOB_ID", "40017"},
                          {"SLURM_STEP_ID", "0"}};

TEST(RankPlaceTest, ReadsWhatSrunGives) {
  const absl::StatusOr<RankPlace> place = Read(kSlurm);
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->rank, 2);
  EXPECT_EQ(place->size, 3);
  EXPECT_EQ(place->local_rank, 0);
  EXPECT_EQ(place->local_size, 1);
  EXPECT_EQ(place->address, "node3");
  EXPECT_EQ(place->port, 20017);
  EXPECT_FALSE(place->agent_store);
  EXPECT_EQ(place->attempt, "slurm-40017-0/0");
  EXPECT_EQ(place->size_variable, "SLURM_STEP_NUM_TASKS");
  EXPECT_NE(Read(With(kSlurm, "SLURM_RESTART_COUNT", "1"))->attempt, place->attempt);
  EXPECT_NE(Read(With(kSlurm, "SLURM_STEP_ID", "1"))->attempt, place->attempt);
  EXPECT_EQ(Read(With(kSlurm, "MASTER_ADDR", "10.0.0.9"))->address, "10.0.0.9");
  EXPECT_EQ(Read(With(kSlurm, "MASTER_PORT", "4711"))->port, 4711);
}

TEST(RankPlaceTest, ABatchScriptOfSlurmIsNoRank) {
  EXPECT_EQ(Read({{"SLURM_JOB_ID", "2"}, {"SLURM_NTASKS", "2"}, {"SLURM_PROCID", "0"}})->size, 1);
}

TEST(RankPlaceTest, ReadsWhatMpirunGives) {
  const Variables mpirun = {{"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_RANK", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"MASTER_ADDR", "node1"},
                            {"MASTER_PORT", "29500"}};
  const absl::StatusOr<RankPlace> place = Read(mpirun);
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->rank, 2);
  EXPECT_EQ(place->size, 4);
  EXPECT_EQ(place->local_size, 2);
  EXPECT_EQ(std::string(Read(Without(mpirun, "MASTER_ADDR")).status().message()),
            "OMPI_COMM_WORLD_SIZE is 4, so this is one of several ranks, but MASTER_ADDR is not "
            "set; accepted: the host where rank 0 runs. mpirun hands on what -x "
            "MASTER_ADDR=<host> names; to train alone, unset OMPI_COMM_WORLD_SIZE");
  const absl::StatusOr<RankPlace> hydra = Read({{"PMI_SIZE", "2"},
                                                {"PMI_RANK", "1"},
                                                {"MPI_LOCALRANKID", "1"},
                                                {"MPI_LOCALNRANKS", "2"},
                                                {"MASTER_ADDR", "node1"},
                                                {"MASTER_PORT", "29500"}});
  ASSERT_TRUE(hydra.ok()) << hydra.status();
  EXPECT_EQ(hydra->rank, 1);
  EXPECT_EQ(hydra->local_size, 2);
}

TEST(RankPlaceTest, TheInnermostLauncherCounts) {
  Variables both = kFourth;
  both.insert(kSlurm.begin(), kSlurm.end());
  EXPECT_EQ(Read(both)->size, 4);
  EXPECT_EQ(Read(both)->rank, 3);
}

TEST(SlurmListsTest, NameTheFirstHost) {
  EXPECT_EQ(FirstHost("node3"), "node3");
  EXPECT_EQ(FirstHost("gpu1,node[3-5,9]"), "gpu1");
  EXPECT_EQ(FirstHost("node[003-005,9],gpu1"), "node003");
  EXPECT_EQ(FirstHost("cn[1-2]-ib,cn5"), "cn1-ib");
  EXPECT_EQ(FirstHost(""), "");
  EXPECT_EQ(FirstHost("node[3-"), "");
}

TEST(SlurmListsTest, SayTheTasksOfAHost) {
  EXPECT_EQ(TasksOfNode("2(x3),1", 0), 2);
  EXPECT_EQ(TasksOfNode("2(x3),1", 2), 2);
  EXPECT_EQ(TasksOfNode("2(x3),1", 3), 1);
  for (const char* list : {"", "x", "2(xx)", "2(x0)", "-1", "2(x3)"}) {
    EXPECT_EQ(TasksOfNode(list, 7), 1) << list;
  }
}

}  // namespace
}  // namespace genesis
