#include <gmock/gmock.h>

#include "config/job/job_file.h"
#include "config/job/job_spec.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using training::v1::DistributedSpec;
using training::v1::JobSpec;

JobSpec Distributed() {
  JobSpec spec;
  spec.mutable_model()->mutable_world_model();
  spec.mutable_dataset()->mutable_trajectories()->set_path("a.npz");
  spec.mutable_training()->set_max_steps(10);
  spec.mutable_training()->set_use_ddp(true);
  return spec;
}

std::vector<std::string> FaultTexts(const JobSpec& spec) {
  std::vector<std::string> texts;
  for (const FieldError& error : ValidateJobSpec(spec)) texts.push_back(error.ToString());
  return texts;
}

TEST(DistributedSpecTest, HasDefaultsWhereSeveralRanksTrain) {
  const DistributedSpec filled = WithDefaults(Distributed(), {}).distributed();
  EXPECT_EQ(filled.timeout_seconds(), 1800);
  EXPECT_EQ(filled.gradient_compression(), training::v1::GRADIENT_COMPRESSION_NONE);
  EXPECT_EQ(filled.weight_check_every_steps(), 0);
  // Unset, because its default depends on the hosts of the ranks.
  EXPECT_FALSE(filled.has_shard_optimizer_state());
  JobSpec alone = Distributed();
  alone.mutable_training()->set_use_ddp(false);
  EXPECT_FALSE(WithDefaults(alone, {}).has_distributed());
}

TEST(DistributedSpecTest, NamesEveryFault) {
  JobSpec spec = Distributed();
  DistributedSpec& distributed = *spec.mutable_distributed();
  distributed.set_ranks(1'000'000'000);
  distributed.set_timeout_seconds(0.5);
  distributed.set_weight_check_every_steps(-1);
  distributed.set_use_error_feedback(true);
  EXPECT_THAT(FaultTexts(spec),
              ElementsAre("distributed.ranks is 1000000000; accepted: 1 to 1024",
                          "distributed.timeout_seconds is 0.5; accepted: 1 to 604800",
                          "distributed.weight_check_every_steps is -1; accepted: >= 1, or 0 for "
                          "never",
                          "distributed.use_error_feedback: true needs "
                          "distributed.gradient_compression FP16 or BF16; give one, or remove "
                          "distributed.use_error_feedback"));
  distributed.Clear();
  distributed.set_gradient_compression(training::v1::GRADIENT_COMPRESSION_BF16);
  distributed.set_use_error_feedback(true);
  EXPECT_THAT(FaultTexts(spec), ElementsAre());
}

TEST(DistributedSpecTest, IsReadFromAJobFile) {
  const absl::StatusOr<JobSpec> spec = ParseJobFile(
      "model: {world_model: {}}\n"
      "dataset: {trajectories: {path: a.npz}}\n"
      "training: {max_steps: 10, use_ddp: true}\n"
      "distributed: {gradient_compression: FP16, timeout_seconds: 30, shard_optimizer_state: "
      "true}\n",
      "job.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->distributed().gradient_compression(), training::v1::GRADIENT_COMPRESSION_FP16);
  EXPECT_EQ(spec->distributed().timeout_seconds(), 30);
  EXPECT_TRUE(spec->distributed().shard_optimizer_state());
}

}  // namespace
}  // namespace genesis
