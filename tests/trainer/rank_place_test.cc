#include "trainer/distributed/rank_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

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

// As torchrun --nnodes=2 --nproc_per_node=2 gives the last of four.
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

}  // namespace
}  // namespace genesis
