#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/trainer/model_checks.h"
#include "trainer/models/base/alignment.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using training::v1::JobSpec;

constexpr int64_t kExamples = 24;

// Returns transitions, or rollouts of `steps` steps, whose change and reward follow from
// observation and action.
std::vector<std::pair<std::string, torch::Tensor>> Transitions(int64_t steps) {
  torch::manual_seed(11);
  std::map<std::string, std::vector<torch::Tensor>> rows;
  torch::Tensor observation = torch::randn({kExamples, 3});
  for (int64_t i = 0; i < steps; ++i) {
    const torch::Tensor action = torch::randn({kExamples, 2});
    const torch::Tensor change = 0.2 * observation.roll(1, 1) + 0.3 * action.narrow(1, 0, 1);
    rows["observation"].push_back(observation);
    rows["action"].push_back(action);
    rows["change"].push_back(change);
    rows["reward"].push_back(observation.narrow(1, 0, 1) - 2);
    rows["done"].push_back((observation.narrow(1, 1, 1) > 1).to(torch::kFloat));
    observation = observation + change;
  }
  std::vector<std::pair<std::string, torch::Tensor>> fields;
  for (const char* name : {"observation", "action", "change", "reward", "done"}) {
    fields.emplace_back(name, steps == 1 ? rows[name][0] : torch::stack(rows[name], 1));
  }
  return fields;
}

JobSpec WorldModelJob(int steps, int members, bool gru = false) {
  JobSpec spec;
  training::v1::WorldModelSpec& model = *spec.mutable_model()->mutable_world_model();
  model.set_hidden_size(16);
  model.set_latent_size(8);
  model.set_rollout_steps(steps);
  model.set_ensemble_size(members);
  model.set_dynamics(gru ? training::v1::WORLD_MODEL_DYNAMICS_GRU
                         : training::v1::WORLD_MODEL_DYNAMICS_MLP);
  spec.mutable_dataset()->mutable_trajectories()->set_path("walks.npz");
  spec.mutable_training()->set_seed(3);
  return spec;
}

TEST(WorldModelTest, KeepsWhatEveryModelPromises) {
  for (int steps : {1, 4}) {
    for (int members : {1, 3}) {
      for (bool gru : {false, true}) {
        SCOPED_TRACE(testing::Message() << steps << " steps, " << members << " members, " << gru);
        const MemoryDataset dataset(Transitions(steps));
        CheckPromises(*Build(WorldModelJob(steps, members, gru), dataset), dataset);
      }
    }
  }
}

TEST(WorldModelTest, NamesParametersAsAPythonTwinDoes) {
  const MemoryDataset dataset(Transitions(1));
  const auto one = Build(WorldModelJob(1, 1), dataset);
  EXPECT_EQ(one->parameters().size(), 22u);
  EXPECT_EQ(one->parameters()[0].first, "encoder.0.weight");
  EXPECT_EQ(one->parameters()[4].first, "dynamics.0.weight");
  EXPECT_THAT(Names(one->buffers()),
              ElementsAre("observation_mean", "observation_std", "action_mean", "action_std",
                          "change_mean", "change_std", "reward_mean", "reward_std"));
  const auto gru = Build(WorldModelJob(1, 1, true), dataset);
  EXPECT_EQ(gru->parameters()[4].first, "dynamics.weight_ih");
  EXPECT_EQ(gru->parameters()[4].second.sizes(), torch::IntArrayRef({24, 2}));

  const auto two = Build(WorldModelJob(1, 2), dataset);
  EXPECT_EQ(two->parameters().size(), 44u);
  EXPECT_EQ(two->parameters()[0].first, "members.0.encoder.0.weight");
  EXPECT_EQ(two->parameters()[22].first, "members.1.encoder.0.weight");
  EXPECT_TRUE(torch::equal(two->parameters()[0].second, one->parameters()[0].second));
  EXPECT_FALSE(torch::equal(two->parameters()[22].second, one->parameters()[0].second));
  EXPECT_EQ(two->OperationsPerExample(), 2 * one->OperationsPerExample());
}

TEST(WorldModelTest, LearnsAndBeatsTheTrivialPredictors) {
  for (int steps : {1, 4}) {
    const MemoryDataset dataset(Transitions(steps));
    const auto model = Build(WorldModelJob(steps, 1), dataset);
    const Batch all = dataset.Rows(0, kExamples);
    const std::vector<MetricSum> before = model->Evaluate(all);
    Train(*model, all, 200, 0.1);
    const std::vector<MetricSum> after = model->Evaluate(all);
    EXPECT_LT(Metric(after, "loss"), 0.5 * Metric(before, "loss"));
    EXPECT_LT(Metric(after, "observation_error"), 0.5 * Metric(before, "observation_error"));
    EXPECT_EQ(Metric(after, "persistence_error"), Metric(before, "persistence_error"));
    EXPECT_LT(Metric(after, "observation_error"), Metric(after, "persistence_error"));
    EXPECT_LT(Metric(after, "observation_error"), Metric(after, "mean_error"));
  }
}

TEST(WorldModelTest, MeasuresTheTrivialPredictorsInUnitsOfTheVariance) {
  const MemoryDataset dataset(Transitions(1));
  const Batch all = dataset.Rows(0, kExamples);
  const std::vector<MetricSum> metrics = Build(WorldModelJob(1, 1), dataset)->Evaluate(all);
  const torch::Tensor variance = all.at("observation").to(torch::kDouble).var(0, false);
  const torch::Tensor next = (all.at("observation") + all.at("change")).to(torch::kDouble);
  const double mean_error = Value((next.var(0, false) / variance).mean());
  EXPECT_NEAR(Metric(metrics, "mean_error") / kExamples, mean_error, 1e-5);
  const torch::Tensor change = all.at("change").to(torch::kDouble);
  EXPECT_NEAR(Metric(metrics, "persistence_error") / kExamples,
              Value((change.square() / variance).mean()), 1e-5);
}

TEST(WorldModelTest, SaysWhichFieldDoesNotFit) {
  EXPECT_EQ(Refusal(WorldModelJob(4, 1), MemoryDataset(Transitions(1))),
            "model.world_model with rollout_steps 4 needs the field observation [4, O] of float32; "
            "dataset.trajectories has observation [3] float32");
  auto wide = Transitions(1);
  wide[3].second = torch::zeros({kExamples, 2});
  EXPECT_EQ(Refusal(WorldModelJob(1, 1), MemoryDataset(wide)),
            "model.world_model needs the field reward [1] of float32; dataset.trajectories has "
            "reward [2] float32");
  EXPECT_EQ(
      Refusal(WorldModelJob(1, 1), MemoryDataset({{"tokens", torch::zeros({4, 9}, torch::kLong)}})),
      "model.world_model needs the field observation [O] of float32; dataset.trajectories "
      "has tokens [9] int64");
}

JobSpec TransformerJob(bool untied) {
  JobSpec spec;
  training::v1::TransformerSpec& model = *spec.mutable_model()->mutable_transformer();
  model.set_vocabulary_size(11);
  model.set_context_length(8);
  model.set_layers(2);
  model.set_heads(4);
  model.set_embedding_size(32);
  model.set_untied_output(untied);
  spec.mutable_dataset()->mutable_tokens()->set_path("text.bin");
  return spec;
}

// Returns sequences that count upwards from a random number, so that all tokens except
// the first are predictable.
MemoryDataset Counting() {
  torch::manual_seed(2);
  const torch::Tensor start = torch::randint(11, {kExamples, 1}, torch::kLong);
  return MemoryDataset({{"tokens", (start + torch::arange(9)).remainder(11)}});
}

TEST(TransformerTest, KeepsWhatEveryModelPromises) {
  const MemoryDataset dataset = Counting();
  for (bool untied : {false, true}) CheckPromises(*Build(TransformerJob(untied), dataset), dataset);
}

TEST(TransformerTest, SharesTheTokenEmbeddingUnlessUntied) {
  const MemoryDataset dataset = Counting();
  const auto tied = Build(TransformerJob(false), dataset);
  EXPECT_THAT(Names(tied->parameters()), testing::Not(testing::Contains("lm_head.weight")));
  EXPECT_THAT(tied->tied(), ElementsAre(testing::Pair("lm_head.weight", "token_embedding.weight")));
  const auto untied = Build(TransformerJob(true), dataset);
  EXPECT_THAT(Names(untied->parameters()), testing::Contains("lm_head.weight"));
  EXPECT_TRUE(untied->tied().empty());
  EXPECT_EQ(tied->OperationsPerExample(), untied->OperationsPerExample());
}

TEST(TransformerTest, BeginsAsGpt2Does) {
  JobSpec spec = TransformerJob(false);
  spec.mutable_model()->mutable_transformer()->set_embedding_size(64);
  const auto model = Build(spec, Counting());
  for (const auto& [name, weight] : model->parameters()) {
    const bool norm = name.find("norm.weight") != std::string::npos;
    const bool residual = name.find("projection.weight") != std::string::npos;
    const double mean = norm ? 1 : 0;
    EXPECT_NEAR(Value(weight.mean()), mean, 0.004) << name;
    if (weight.dim() < 2) {
      EXPECT_EQ(Value((weight - mean).abs().max()), 0) << name;
      continue;
    }
    EXPECT_NEAR(Value(weight.std()), residual ? 0.01 : 0.02, 0.002) << name;
  }
  const Batch all = Counting().Rows(0, kExamples);
  // The probabilities of the eleven tokens are nearly uniform.
  EXPECT_NEAR(Metric(model->Evaluate(all), "loss") / kExamples, std::log(11.0), 0.2);
}

TEST(TransformerTest, SeesNoTokenThatIsYetToCome) {
  const MemoryDataset dataset = Counting();
  const auto model = Build(TransformerJob(false), dataset);
  Batch batch = dataset.Rows(0, 4);
  // The last position has no loss, so changing it matters only if earlier positions can see it.
  batch.fields["tokens"] = batch.at("tokens").clone();
  batch.fields["tokens"].select(1, 8).fill_(-100);
  const auto loss_after_change_at = [&](int64_t position) {
    const torch::NoGradGuard no_grad;
    // Change only a part of the row, because the norm removes an equal change of all columns.
    torch::Tensor row = model->parameters()[1].second[position].slice(0, 0, 16);
    row.add_(1);
    const double loss = Value(model->Loss(batch, std::nullopt));
    row.sub_(1);
    return loss;
  };
  EXPECT_EQ(model->parameters()[1].first, "position_embedding.weight");
  const double loss = Value(model->Loss(batch, std::nullopt));
  EXPECT_EQ(loss_after_change_at(7), loss);
  EXPECT_NE(loss_after_change_at(6), loss);
}

TEST(TransformerTest, LearnsToCount) {
  const MemoryDataset dataset = Counting();
  const auto model = Build(TransformerJob(false), dataset);
  const Batch all = dataset.Rows(0, kExamples);
  EXPECT_LT(Metric(model->Evaluate(all), "accuracy"), 0.5 * kExamples);
  Train(*model, all, 150, 0.5);
  EXPECT_GT(Metric(model->Evaluate(all), "accuracy"), 0.95 * kExamples);
  EXPECT_LT(Metric(model->Evaluate(all), "loss"), 0.3 * kExamples);
}

TEST(TransformerTest, SaysWhichFieldDoesNotFit) {
  JobSpec spec = TransformerJob(false);
  spec.mutable_model()->mutable_transformer()->set_context_length(16);
  EXPECT_EQ(Refusal(spec, Counting()),
            "model.transformer with context_length 16 needs the field tokens [17] of int64; "
            "dataset.tokens has tokens [9] int64");
}

JobSpec RadioUnetJob(bool vae) {
  JobSpec spec;
  training::v1::RadioUnetSpec& model = *spec.mutable_model()->mutable_radio_unet();
  model.set_part(vae ? training::v1::RADIO_UNET_PART_VAE : training::v1::RADIO_UNET_PART_DIFFUSION);
  model.set_base_channels(8);
  for (const int multiplier : {1, 2}) model.add_channel_multipliers(multiplier);
  model.set_diffusion_steps(20);
  model.set_latent_channels(4);
  model.set_kl_weight(1e-3);
  spec.mutable_dataset()->mutable_arrays()->set_path("maps.npz");
  return spec;
}

// Returns maps with one bright spot, whose position the condition shows.
MemoryDataset Maps(bool condition) {
  torch::manual_seed(4);
  torch::Tensor spots = torch::zeros({kExamples, 1, 8, 8});
  const torch::Tensor places = torch::randint(64, {kExamples}, torch::kLong);
  spots.view({kExamples, 64}).scatter_(1, places.unsqueeze(1), 1.0);
  const torch::Tensor maps = torch::avg_pool2d(spots, 3, 1, 1) * 9 - 0.5;
  if (!condition) return MemoryDataset({{"image", maps}});
  return MemoryDataset({{"image", maps}, {"condition", torch::cat({spots, spots * 0.5}, 1)}});
}

// Changes the weights, because layers initialized with zeros pass no gradient.
void Disturb(const Model& model) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(9);
  for (const auto& [name, parameter] : model.parameters()) {
    torch::Tensor(parameter).add_(torch::randn_like(parameter), 0.05);
  }
}

TEST(RadioUnetTest, KeepsWhatEveryModelPromises) {
  for (bool vae : {false, true}) {
    for (bool condition : {false, true}) {
      SCOPED_TRACE(testing::Message() << vae << condition);
      const MemoryDataset dataset = Maps(condition);
      const auto model = Build(RadioUnetJob(vae), dataset);
      Disturb(*model);
      CheckPromises(*model, dataset);
    }
  }
}

// Strides of one channel or one pixel fit both memory formats, and a convolution uses the format
// that its weight and its map suggest. If the first map suggested none, all maps of its resolution
// would be copied from one format to the other and back.
TEST(RadioUnetTest, KeepsConvolutionsInChannelsLast) {
  const auto channels_last = [](const torch::Tensor& tensor) {
    return tensor.suggest_memory_format() == torch::MemoryFormat::ChannelsLast;
  };
  for (bool vae : {false, true}) {
    for (bool condition : {false, true}) {
      SCOPED_TRACE(testing::Message() << vae << condition);
      const MemoryDataset dataset = Maps(condition);
      const auto model = Build(RadioUnetJob(vae), dataset);
      DrawnLoss(*model, dataset.Rows(0, 2), std::nullopt).backward();
      int convolutions = 0;
      for (const auto& [name, parameter] : model->parameters()) {
        if (parameter.dim() != 4) continue;
        ++convolutions;
        EXPECT_TRUE(channels_last(parameter)) << name;
        EXPECT_TRUE(parameter.grad().is_contiguous(torch::MemoryFormat::ChannelsLast)) << name;
      }
      EXPECT_GT(convolutions, 10);
    }
  }
}

TEST(RadioUnetTest, BeginsByPredictingNoNoise) {
  const MemoryDataset dataset = Maps(true);
  const auto model = Build(RadioUnetJob(false), dataset);
  // The loss is the variance of the noise.
  EXPECT_NEAR(Metric(model->Evaluate(dataset.Rows(0, kExamples)), "loss") / kExamples, 1, 0.1);
  EXPECT_THAT(Names(model->buffers()), ElementsAre("alphas_cumprod"));
  const torch::Tensor signal = model->buffers()[0].second;
  EXPECT_EQ(signal.sizes(), torch::IntArrayRef({20}));
  EXPECT_GT(Value(signal[0]), 0.98);
  EXPECT_LT(Value(signal[19]), 1e-4);
  EXPECT_GT(Value((signal.slice(0, 0, -1) - signal.slice(0, 1)).min()), 0);
}

TEST(RadioUnetTest, DrawsItsNoiseFromTheDefaultGenerator) {
  for (bool vae : {false, true}) {
    const MemoryDataset dataset = Maps(false);
    const auto model = Build(RadioUnetJob(vae), dataset);
    Disturb(*model);
    const Batch batch = dataset.Rows(0, 4);
    const auto loss = [&](uint64_t seed) {
      torch::manual_seed(seed);
      return Value(DrawnLoss(*model, batch, std::nullopt));
    };
    const double first = loss(1);
    EXPECT_EQ(loss(1), first);
    EXPECT_NE(loss(2), first);
    EXPECT_NE(Value(DrawnLoss(*model, batch, std::nullopt)), loss(2));
  }
}

TEST(RadioUnetTest, Learns) {
  for (bool vae : {false, true}) {
    const MemoryDataset dataset = Maps(true);
    const auto model = Build(RadioUnetJob(vae), dataset);
    const Batch all = dataset.Rows(0, kExamples);
    const double before = Metric(model->Evaluate(all), "loss");
    Train(*model, all, 20, 0.1);
    EXPECT_LT(Metric(model->Evaluate(all), "loss"), 0.8 * before) << vae;
  }
}

TEST(RadioUnetTest, SaysWhatDoesNotFit) {
  JobSpec spec = RadioUnetJob(false);
  for (int i = 0; i < 3; ++i)
    spec.mutable_model()->mutable_radio_unet()->add_channel_multipliers(1);
  EXPECT_EQ(Refusal(spec, Maps(false)),
            "model.radio_unet.channel_multipliers has 5 numbers, so maps are halved 4 times and "
            "need a height and width that 16 divides; dataset.arrays has image [1, 8, 8] float32; "
            "give fewer multipliers or pad the maps");
  EXPECT_EQ(Refusal(RadioUnetJob(false), MemoryDataset({{"image", torch::zeros({2, 8, 8})}})),
            "model.radio_unet needs the field image [C, H, W] of float32 or float16 or bfloat16 or "
            "float64; dataset.arrays has image [8, 8] float32");
  EXPECT_EQ(
      Refusal(RadioUnetJob(false), MemoryDataset({{"image", torch::zeros({2, 1, 8, 8})},
                                                  {"condition", torch::zeros({2, 3, 8, 4})}})),
      "model.radio_unet needs the field condition [K, 8, 8] of float32 or float16 or "
      "bfloat16 or float64; dataset.arrays has condition [3, 8, 4] float32");
}

TEST(AlignmentTest, NamesTheWeightsWhoseSizesNeedPadding) {
  EXPECT_THAT(AlignmentWarnings(*Build(WorldModelJob(1, 1), MemoryDataset(Transitions(1)))),
              ElementsAre("encoder.0.weight is [16, 3]: 3 is not a multiple of 8",
                          "dynamics.0.weight is [16, 10]: 10 is not a multiple of 8",
                          "change_head.2.weight is [3, 16]: 3 is not a multiple of 8",
                          "reward_head.2.weight is [1, 16]: 1 is not a multiple of 8",
                          "done_head.2.weight is [1, 16]: 1 is not a multiple of 8"));
  EXPECT_THAT(AlignmentWarnings(*Build(RadioUnetJob(false), Maps(true))),
              ElementsAre("input.weight is [8, 3, 3, 3]: 3 is not a multiple of 8",
                          "output.weight is [1, 8, 3, 3]: 1 is not a multiple of 8"));
  EXPECT_THAT(AlignmentWarnings(*Build(TransformerJob(true), Counting())),
              ElementsAre("lm_head.weight is [11, 32]: 11 is not a multiple of 8"));
  EXPECT_THAT(AlignmentWarnings(*Build(TransformerJob(false), Counting())),
              ElementsAre("token_embedding.weight is [11, 32]: 11 is not a multiple of 8"));
}

TEST(AlignmentTest, NamesABatchThatNeedsPadding) {
  EXPECT_EQ(BatchWarning(64), "");
  EXPECT_EQ(BatchWarning(8), "");
  EXPECT_EQ(BatchWarning(30),
            "training.batch_size is 30: 30 is not a multiple of 8; with 24 or 32 no part of the "
            "matrix units is idle");
  EXPECT_EQ(
      BatchWarning(5),
      "training.batch_size is 5: 5 is not a multiple of 8; with 8 no part of the matrix units "
      "is idle");
}

TEST(AlignmentTest, SaysHowManyMoreThereAre) {
  JobSpec spec = WorldModelJob(1, 2);
  spec.mutable_model()->mutable_world_model()->set_hidden_size(15);
  const std::vector<std::string> warnings =
      AlignmentWarnings(*Build(spec, MemoryDataset(Transitions(1))));
  ASSERT_EQ(warnings.size(), 16u);
  EXPECT_EQ(warnings[0], "members.0.encoder.0.weight is [15, 3]: 15 and 3 are not multiples of 8");
  EXPECT_EQ(warnings[15], "and 7 more with sizes that are not multiples of 8");
}

}  // namespace
}  // namespace genesis
