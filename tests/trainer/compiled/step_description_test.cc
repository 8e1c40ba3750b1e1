#include "trainer/compiled/step_description.h"
#include "trainer/models/build_model.h"

#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>

#include "config/job/job_spec.h"
#include "tests/temp_dir.h"
#include "tests/trainer/memory_dataset.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using training::v1::JobSpec;

class StepDescriptionTest : public testing::Test {
 protected:
  StepDescriptionTest() {
    spec_.mutable_model()->mutable_world_model()->set_hidden_size(16);
    spec_.mutable_model()->mutable_world_model()->set_latent_size(8);
    spec_.mutable_training()->set_batch_size(4);
    spec_.mutable_training()->set_max_steps(10);
    for (const auto& [name, columns] :
         {std::pair{"observation", 3}, std::pair{"action", 2}, std::pair{"change", 3},
          std::pair{"reward", 1}, std::pair{"done", 1}}) {
      tensors_.emplace_back(name, torch::rand({20, columns}));
    }
  }

  absl::StatusOr<StepDescription> Describe(const JobSpec& given,
                                           training::v1::PrecisionMode mode) const {
    const JobSpec spec = WithDefaults(given, LossScaleSettings());
    const MemoryDataset dataset(tensors_);
    return DescribeStep(spec, **BuildModel(spec, dataset), dataset, mode);
  }
  StepDescription Fp32(const JobSpec& given) const {
    return *Describe(given, training::v1::PRECISION_MODE_FP32);
  }

  JobSpec spec_;
  std::vector<std::pair<std::string, torch::Tensor>> tensors_;
};

TEST_F(StepDescriptionTest, IsJsonWithTensorsInTheOrderInWhichTheyArePassed) {
  const StepDescription description = Fp32(spec_);
  google::protobuf::Struct read;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(description.text, &read).ok())
      << description.text;
  const auto& fields = read.fields();
  const auto names = [&](const char* list) {
    std::vector<std::string> found;
    for (const auto& entry : fields.at(list).list_value().values()) {
      found.push_back(entry.struct_value().fields().at("name").string_value());
    }
    return found;
  };
  EXPECT_EQ(names("parameters").front(), "encoder.0.weight");
  EXPECT_EQ(names("parameters").size(), 22U);
  EXPECT_EQ(names("buffers").size(), 8U);
  EXPECT_THAT(names("fields"), ElementsAre("action", "change", "done", "observation", "reward"));
  EXPECT_THAT(description.text, HasSubstr("{\"name\": \"encoder.0.weight\", \"type\": \"float32\", "
                                          "\"shape\": [16, 3], \"strides\": [3, 1]}"));
  EXPECT_THAT(description.text, HasSubstr("{\"name\": \"observation\", \"type\": \"float32\", "
                                          "\"shape\": [4, 3], \"strides\": [3, 1]}"));
  EXPECT_EQ(fields.at("mode").string_value(), "FP32");
  EXPECT_EQ(fields.at("batch_size").number_value(), 4);
  EXPECT_EQ(fields.at("torch").string_value(), TORCH_VERSION);
  EXPECT_EQ(fields.at("processor_flags").string_value().size(), 64U);
}

TEST_F(StepDescriptionTest, KeepsItsKeyWhereTheSameCodeServes) {
  const StepDescription description = Fp32(spec_);
  EXPECT_EQ(description.key.size(), 64U);
  JobSpec other = spec_;
  other.mutable_training()->set_seed(9);
  other.mutable_training()->set_max_steps(500);
  other.mutable_training()->set_max_grad_norm(0.1);
  other.mutable_training()->set_gradient_accumulation_steps(4);
  other.mutable_optimizer()->set_learning_rate(0.5);
  other.mutable_model()->set_initial_weights("some.pt");
  const auto same = Describe(other, training::v1::PRECISION_MODE_FP32);
  EXPECT_EQ(same->text, description.text);
  EXPECT_EQ(same->key, description.key);
}

TEST_F(StepDescriptionTest, ChangesItsKeyWithWhateverChangesTheCode) {
  const std::string key = Fp32(spec_).key;
  JobSpec batch = spec_;
  batch.mutable_training()->set_batch_size(5);
  EXPECT_NE(Fp32(batch).key, key);
  JobSpec wider = spec_;
  wider.mutable_model()->mutable_world_model()->set_hidden_size(24);
  EXPECT_NE(Fp32(wider).key, key);
  JobSpec gru = spec_;
  gru.mutable_model()->mutable_world_model()->set_dynamics(training::v1::WORLD_MODEL_DYNAMICS_GRU);
  EXPECT_NE(Fp32(gru).key, key);
  EXPECT_NE(Describe(spec_, training::v1::PRECISION_MODE_MIXED_BF16)->key, key);
  tensors_[1].second = torch::rand({20, 1});  // Actions with one column.
  EXPECT_NE(Fp32(spec_).key, key);
}

TEST_F(StepDescriptionTest, PureModesHaveParametersInTheirFormatAndStatisticsInFp32) {
  const std::string text = Describe(spec_, training::v1::PRECISION_MODE_BF16)->text;
  EXPECT_THAT(text, HasSubstr("\"encoder.0.weight\", \"type\": \"bfloat16\""));
  EXPECT_THAT(text, HasSubstr("\"observation_mean\", \"type\": \"float32\""));
}

TEST_F(StepDescriptionTest, RefusesStepsThatThePackageWouldMakeOtherwise) {
  JobSpec prioritized = spec_;
  prioritized.mutable_dataset()->mutable_sampling()->set_kind(
      training::v1::SAMPLING_KIND_PRIORITIZED);
  const auto refused = Describe(prioritized, training::v1::PRECISION_MODE_FP32);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(refused.status().message(), HasSubstr("prioritized sampling needs the loss of each"));
  tensors_.emplace_back("weight", torch::ones({20, 1}));
  EXPECT_THAT(Describe(spec_, training::v1::PRECISION_MODE_FP32).status().message(),
              HasSubstr("weighs the loss of each example"));
}

TEST_F(StepDescriptionTest, KnowsAModuleByItsFileAndNotByItsPlace) {
  const TempDir folder;
  const MemoryDataset dataset(tensors_);
  const std::unique_ptr<Model> model = *BuildModel(WithDefaults(spec_, {}), dataset);
  const auto describe = [&](const std::string& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
    JobSpec spec = spec_;
    spec.mutable_model()->mutable_exported()->set_path(path);
    return *DescribeStep(spec, *model, dataset, training::v1::PRECISION_MODE_FP32);
  };
  const StepDescription description = describe(folder.path() + "/net.pt2", "one");
  EXPECT_THAT(description.text, Not(HasSubstr(folder.path())));
  EXPECT_THAT(description.text, HasSubstr("\"module\": \""));
  EXPECT_EQ(describe(folder.path() + "/moved.pt2", "one").text, description.text);
  EXPECT_NE(describe(folder.path() + "/net.pt2", "two").key, description.key);
}

}  // namespace
}  // namespace genesis
