// Tests that each kind of model in job files has a builder.
#include "trainer/models/build_model.h"
#include "config/job/job_spec.h"
#include "config/job/model_kinds.h"
#include "gtest/gtest.h"
#include "tests/trainer/memory_dataset.h"
#include "trainer/models/base/model.h"

namespace genesis {
namespace {

TEST(BuildModelTest, HasABuilderForEachKind) {
  const MemoryDataset dataset({{"input", torch::zeros({4, 2})}});
  for (const ModelKind& kind : ModelKinds()) {
    training::v1::JobSpec spec;
    const auto* field = training::v1::ModelSpec::descriptor()->FindFieldByName(kind.name());
    training::v1::ModelSpec::GetReflection()->MutableMessage(spec.mutable_model(), field);
    const absl::Status status =
        BuildModel(WithDefaults(spec, LossScaleSettings()), dataset).status();
    // The dataset does not match the model, so only test that its builder is called.
    EXPECT_EQ(status.message().find("give it one kind of model"), std::string::npos)
        << kind.name() << ": " << status;
  }
}

TEST(BuildModelTest, NamesTheKindsWhereNoneIsGiven) {
  const MemoryDataset dataset({{"input", torch::zeros({4, 2})}});
  EXPECT_EQ(BuildModel({}, dataset).status().message(),
            "model: required; give it one kind of model: world_model, transformer, radio_unet "
            "or exported");
}

}  // namespace
}  // namespace genesis
