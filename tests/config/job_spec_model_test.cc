#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/text/yaml_document.h"
#include "config/job/job_file.h"
#include "config/job/job_spec.h"
#include "config/job/model_kinds.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace genesis {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::ElementsAre;
using testing::IsEmpty;
using training::v1::JobSpec;
using training::v1::RadioUnetSpec;
using training::v1::TransformerSpec;

JobSpec Job() {
  JobSpec spec;
  spec.mutable_training()->set_max_steps(100);
  return spec;
}

JobSpec Transformer(const std::function<void(TransformerSpec&)>& change) {
  JobSpec spec = Job();
  spec.mutable_model()->mutable_transformer()->set_vocabulary_size(256);
  change(*spec.mutable_model()->mutable_transformer());
  return spec;
}

JobSpec RadioUnet(const std::function<void(RadioUnetSpec&)>& change) {
  JobSpec spec = Job();
  change(*spec.mutable_model()->mutable_radio_unet());
  return spec;
}

JobSpec Exported(const std::string& path) {
  JobSpec spec = Job();
  spec.mutable_model()->mutable_exported()->set_path(path);
  return spec;
}

// Returns the errors of the model section, and expects the same errors with and
// without defaults filled in.
std::vector<std::string> ModelFaults(const JobSpec& spec) {
  const auto of = [](const JobSpec& job) {
    std::vector<std::string> texts;
    for (const FieldError& error : ValidateJobSpec(job)) {
      if (error.path.rfind("model", 0) == 0) texts.push_back(error.ToString());
    }
    return texts;
  };
  const std::vector<std::string> faults = of(spec);
  EXPECT_EQ(of(WithDefaults(spec, LossScaleSettings())), faults);
  return faults;
}

const auto kNothing = [](auto&) {};

TEST(ModelDefaultsTest, AreFrozen) {
  const auto filled = [](const JobSpec& spec) { return WithDefaults(spec, {}).model(); };
  JobSpec world = Job();
  world.mutable_model()->mutable_world_model();
  EXPECT_EQ(filled(world).world_model().hidden_size(), 256);
  EXPECT_EQ(filled(world).world_model().latent_size(), 64);
  EXPECT_EQ(filled(world).world_model().dynamics(), training::v1::WORLD_MODEL_DYNAMICS_MLP);
  EXPECT_EQ(filled(world).world_model().ensemble_size(), 1);
  EXPECT_EQ(filled(world).world_model().rollout_steps(), 1);

  const TransformerSpec transformer = filled(Transformer(kNothing)).transformer();
  EXPECT_EQ(transformer.vocabulary_size(), 256);
  EXPECT_EQ(transformer.context_length(), 128);
  EXPECT_EQ(transformer.layers(), 6);
  EXPECT_EQ(transformer.heads(), 6);
  EXPECT_EQ(transformer.embedding_size(), 384);
  EXPECT_FALSE(transformer.untied_output());

  const RadioUnetSpec diffusion = filled(RadioUnet(kNothing)).radio_unet();
  EXPECT_EQ(diffusion.part(), training::v1::RADIO_UNET_PART_DIFFUSION);
  EXPECT_EQ(diffusion.base_channels(), 64);
  EXPECT_THAT(diffusion.channel_multipliers(), ElementsAre(1, 2, 4));
  EXPECT_EQ(diffusion.diffusion_steps(), 1000);
  EXPECT_EQ(diffusion.latent_channels(), 0);
  EXPECT_EQ(diffusion.kl_weight(), 0);

  const RadioUnetSpec vae = filled(RadioUnet([](RadioUnetSpec& model) {
                              model.set_part(training::v1::RADIO_UNET_PART_VAE);
                            })).radio_unet();
  EXPECT_EQ(vae.latent_channels(), 4);
  EXPECT_EQ(vae.kl_weight(), 1e-6);
  EXPECT_EQ(vae.diffusion_steps(), 0);
}

TEST(ModelDefaultsTest, ChangeNothingTheSecondTime) {
  for (const JobSpec& spec :
       {Job(), Transformer(kNothing), RadioUnet(kNothing), Exported("net.pt2")}) {
    const JobSpec once = WithDefaults(spec, {});
    EXPECT_TRUE(MessageDifferencer::Equals(WithDefaults(once, {}), once));
  }
  EXPECT_FALSE(WithDefaults(Job(), {}).has_model());
}

TEST(ModelKindsTest, HasARowForEachFieldOfTheProto) {
  const auto& oneof = *training::v1::ModelSpec::descriptor()->FindOneofByName("kind");
  std::vector<std::string> fields;
  for (int i = 0; i < oneof.field_count(); ++i) fields.push_back(oneof.field(i)->name());
  std::vector<std::string> rows;
  for (const ModelKind& kind : ModelKinds()) rows.push_back(kind.name());
  EXPECT_THAT(rows, testing::UnorderedElementsAreArray(fields));
}

TEST(ModelValidationTest, AcceptsTheSmallestOfEachKind) {
  EXPECT_THAT(ModelFaults(Transformer(kNothing)), IsEmpty());
  EXPECT_THAT(ModelFaults(RadioUnet(kNothing)), IsEmpty());
  EXPECT_THAT(ModelFaults(Exported("net.pt2")), IsEmpty());
  EXPECT_THAT(ModelFaults(Job()),
              ElementsAre("model: required; give it one kind of model: world_model, transformer, "
                          "radio_unet or exported"));
}

TEST(ModelValidationTest, RefusesWorldModelsOutOfRange) {
  JobSpec spec = Job();
  training::v1::WorldModelSpec& model = *spec.mutable_model()->mutable_world_model();
  model.set_dynamics(static_cast<training::v1::WorldModelDynamics>(7));
  model.set_ensemble_size(65);
  model.set_rollout_steps(-1);
  EXPECT_THAT(ModelFaults(spec),
              ElementsAre("model.world_model.dynamics is 7; accepted: MLP, GRU",
                          "model.world_model.ensemble_size is 65; accepted: 1 to 64",
                          "model.world_model.rollout_steps is -1; accepted: 1 to 256"));
}

TEST(ModelValidationTest, RefusesTransformersOutOfRange) {
  EXPECT_THAT(ModelFaults(Transformer([](TransformerSpec& model) { model.Clear(); })),
              ElementsAre("model.transformer.vocabulary_size: required; give the number of "
                          "different tokens, 2 to 1048576"));
  EXPECT_THAT(ModelFaults(Transformer([](TransformerSpec& model) {
                model.set_vocabulary_size(1);
                model.set_context_length(65537);
                model.set_layers(257);
                model.set_heads(-2);
                model.set_embedding_size(65537);
              })),
              ElementsAre("model.transformer.vocabulary_size is 1; accepted: 2 to 1048576",
                          "model.transformer.context_length is 65537; accepted: 1 to 65536",
                          "model.transformer.layers is 257; accepted: 1 to 256",
                          "model.transformer.heads is -2; accepted: 1 to 256",
                          "model.transformer.embedding_size is 65537; accepted: 1 to 65536"));
  EXPECT_THAT(ModelFaults(Transformer([](TransformerSpec& model) { model.set_heads(5); })),
              ElementsAre("model.transformer.heads: 5 does not divide "
                          "model.transformer.embedding_size 384; change one of the two"));
}

TEST(ModelValidationTest, RefusesMoreSyntheticTokensThanTheModelKnows) {
  JobSpec spec = Transformer(kNothing);
  spec.mutable_dataset()->mutable_synthetic()->mutable_tokens()->set_vocabulary_size(300);
  EXPECT_THAT(ModelFaults(spec),
              ElementsAre("model.transformer.vocabulary_size: 256 conflicts with "
                          "dataset.synthetic.tokens.vocabulary_size 300; the model needs at least "
                          "as many"));
}

TEST(ModelValidationTest, RefusesRadioUnetsOutOfRange) {
  EXPECT_THAT(ModelFaults(RadioUnet([](RadioUnetSpec& model) {
                model.set_part(static_cast<training::v1::RadioUnetPart>(9));
                model.set_base_channels(60);
                for (int i = 0; i < 7; ++i) model.add_channel_multipliers(1);
                model.set_channel_multipliers(2, 17);
                model.set_diffusion_steps(1);
              })),
              ElementsAre("model.radio_unet.part is 9; accepted: DIFFUSION, VAE",
                          "model.radio_unet.base_channels is 60; accepted: a multiple of 8, 8 to "
                          "1024",
                          "model.radio_unet.channel_multipliers is [1, 1, 17, 1, 1, 1, 1]; "
                          "accepted: at most 6 numbers",
                          "model.radio_unet.channel_multipliers[2] is 17; accepted: 1 to 16",
                          "model.radio_unet.diffusion_steps is 1; accepted: 2 to 10000"));
  EXPECT_THAT(ModelFaults(RadioUnet([](RadioUnetSpec& model) {
                model.set_part(training::v1::RADIO_UNET_PART_VAE);
                model.set_latent_channels(257);
                model.set_kl_weight(std::nan(""));
              })),
              ElementsAre("model.radio_unet.latent_channels is 257; accepted: 1 to 256",
                          "model.radio_unet.kl_weight is nan; accepted: a finite number > 0"));
}

TEST(ModelValidationTest, RefusesSettingsOfTheOtherHalfOfARadioUnet) {
  EXPECT_THAT(ModelFaults(RadioUnet([](RadioUnetSpec& model) {
                model.set_latent_channels(4);
                model.set_kl_weight(0.5);
              })),
              ElementsAre("model.radio_unet.latent_channels: 4 conflicts with "
                          "model.radio_unet.part DIFFUSION, which does not use it; remove one of "
                          "the two",
                          "model.radio_unet.kl_weight: 0.5 conflicts with model.radio_unet.part "
                          "DIFFUSION, which does not use it; remove one of the two"));
  EXPECT_THAT(ModelFaults(RadioUnet([](RadioUnetSpec& model) {
                model.set_part(training::v1::RADIO_UNET_PART_VAE);
                model.set_diffusion_steps(10);
              })),
              ElementsAre("model.radio_unet.diffusion_steps: 10 conflicts with "
                          "model.radio_unet.part VAE, which does not use it; remove one of the "
                          "two"));
}

TEST(ModelValidationTest, RefusesWhatAnExportedModuleCannotUse) {
  EXPECT_THAT(ModelFaults(Exported("net.pt")),
              ElementsAre("model.exported.path is \"net.pt\"; accepted: a path that ends in .pt2"));
  EXPECT_THAT(ModelFaults(Exported("../net.pt2")),
              ElementsAre("model.exported.path is \"../net.pt2\"; accepted: a path without \"..\"; "
                          "it may not leave the dataset root"));
}

TEST(ModelValidationTest, ChecksThePathOfInitialWeights) {
  const auto with = [](const std::string& path) {
    JobSpec spec = Transformer(kNothing);
    spec.mutable_model()->set_initial_weights(path);
    return ModelFaults(spec);
  };
  EXPECT_THAT(with("base.safetensors"), IsEmpty());
  EXPECT_THAT(with("base.bin"), ElementsAre("model.initial_weights is \"base.bin\"; accepted: a "
                                            "path that ends in .pt or .safetensors"));
  EXPECT_THAT(with("../base.pt"),
              ElementsAre("model.initial_weights is \"../base.pt\"; accepted: a path without "
                          "\"..\"; it may not leave the dataset root"));
}

// Tries every kind of model with every kind of dataset.
TEST(ModelValidationTest, NamesBothPlacesWhereModelAndDatasetDoNotFit) {
  using training::v1::DatasetSpec;
  const std::vector<std::pair<std::string, std::function<void(DatasetSpec&)>>> datasets = {
      {"dataset.trajectories", [](DatasetSpec& d) { d.mutable_trajectories(); }},
      {"dataset.replay", [](DatasetSpec& d) { d.mutable_replay(); }},
      {"dataset.tokens", [](DatasetSpec& d) { d.mutable_tokens(); }},
      {"dataset.arrays", [](DatasetSpec& d) { d.mutable_arrays(); }},
      {"dataset.synthetic.trajectories",
       [](DatasetSpec& d) { d.mutable_synthetic()->mutable_trajectories(); }},
      {"dataset.synthetic.tokens", [](DatasetSpec& d) { d.mutable_synthetic()->mutable_tokens(); }},
      {"dataset.synthetic.maps", [](DatasetSpec& d) { d.mutable_synthetic()->mutable_maps(); }}};
  JobSpec world = Job();
  world.mutable_model()->mutable_world_model();
  const struct {
    std::string name;
    JobSpec spec;
    std::string fits;    // One letter per dataset: 'y' if it fits.
    std::string wanted;  // Expected text in messages.
  } models[] = {{"model.world_model", world, "yynnynn",
                 "dataset.trajectories or dataset.replay or dataset.synthetic.trajectories"},
                {"model.transformer", Transformer(kNothing), "nnynnyn",
                 "dataset.tokens or dataset.synthetic.tokens"},
                {"model.radio_unet", RadioUnet(kNothing), "nnnynny",
                 "dataset.arrays or dataset.synthetic.maps"},
                {"model.exported", Exported("net.pt2"), "yynyyny",
                 "dataset.arrays or dataset.trajectories or dataset.replay or "
                 "dataset.synthetic.trajectories or dataset.synthetic.maps"}};
  for (const auto& model : models) {
    for (size_t i = 0; i < datasets.size(); ++i) {
      JobSpec spec = model.spec;
      datasets[i].second(*spec.mutable_dataset());
      const auto faults = ModelFaults(spec);
      if (model.fits[i] == 'y') {
        EXPECT_THAT(faults, IsEmpty()) << model.name << " " << datasets[i].first;
      } else {
        EXPECT_THAT(faults, ElementsAre(model.name + ": conflicts with " + datasets[i].first +
                                        "; it is trained on " + model.wanted));
      }
    }
  }
}

std::string ReadSource(const std::string& name) {
  const absl::StatusOr<std::string> text = ReadTextFile(GENESIS_SOURCE_DIR "/" + name);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

TEST(ModelsPageTest, HoldsOnlyJobsThatAreRead) {
  const std::vector<std::string> parts = absl::StrSplit(ReadSource("docs/models.md"), "```yaml\n");
  ASSERT_EQ(parts.size(), 5u);
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::string block = parts[i].substr(0, parts[i].find("```"));
    const absl::StatusOr<JobSpec> spec = ParseJobFile(block, "models.md");
    EXPECT_TRUE(spec.ok()) << spec.status();
  }
  for (const std::string name :
       {"examples/transformer.yaml", "examples/radio_unet.yaml", "examples/distributed.yaml"}) {
    const absl::StatusOr<JobSpec> spec = ParseJobFile(ReadSource(name), name);
    EXPECT_TRUE(spec.ok()) << spec.status();
  }
}

TEST(ModelsPageTest, NamesEverySetting) {
  const std::string page = ReadSource("docs/models.md");
  const auto& kinds = *training::v1::ModelSpec::descriptor();
  for (int i = 0; i < kinds.field_count(); ++i) {
    const char* const place = kinds.field(i)->containing_oneof() != nullptr ? "" : "model.";
    EXPECT_THAT(page, testing::HasSubstr(absl::StrCat("`", place, kinds.field(i)->name(), "`")));
    const auto* const type = kinds.field(i)->message_type();
    for (int j = 0; type != nullptr && j < type->field_count(); ++j) {
      EXPECT_THAT(page, testing::HasSubstr("    " + type->field(j)->name() + ": "));
    }
  }
}

}  // namespace
}  // namespace genesis
