#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "trainer/models/builtin/radio_layers.h"
#include "trainer/models/builtin/radio_unet.h"
#include "trainer/precision/autocast_guard.h"

namespace genesis {
namespace {

namespace nn = torch::nn;
using training::v1::RadioUnetSpec;

// Names of the fields that Draw adds.
constexpr char kStep[] = "step";
constexpr char kNoise[] = "noise";

// Returns the fraction of the map's variance that remains after each step (Nichol and Dhariwal,
// 2021, equation 17).
torch::Tensor CosineSchedule(int64_t steps) {
  constexpr double kOffset = 0.008;
  constexpr double kMaxNoise = 0.999;
  const auto left = [steps](int64_t step) {
    const double part = static_cast<double>(step) / static_cast<double>(steps);
    return std::pow(std::cos((part + kOffset) / (1 + kOffset) * std::numbers::pi / 2), 2);
  };
  std::vector<double> product;
  double signal = 1;
  for (int64_t step = 0; step < steps; ++step) {
    signal *= 1 - std::min(1 - left(step + 1) / left(step), kMaxNoise);
    product.push_back(signal);
  }
  return torch::tensor(product, torch::kDouble).to(torch::kFloat);
}

}  // namespace

class DiffusionModule : public nn::Module {
 public:
  DiffusionModule(const RadioUnetSpec& spec, const MapShape& shape)
      : width_(spec.base_channels()), schedule_steps_(spec.diffusion_steps()) {
    const LevelChannels channels = ChannelsOf(spec);
    const int64_t time = 4 * width_;
    // One by one, because the order of construction is the order of drawing.
    time_embedding_ = register_module("time_embedding", nn::Sequential());
    time_embedding_->push_back(nn::Linear(width_, time));
    time_embedding_->push_back(nn::SiLU());
    time_embedding_->push_back(nn::Linear(time, time));
    input_ = register_module("input",
                             Convolution(shape.channels + shape.condition_channels, channels[0]));
    down_ = AddDownLevels(*this, channels, time);
    middle_ = register_module("middle", std::make_shared<Middle>(channels.back(), time));
    up_ = AddUpLevels(*this, channels, time, /*skips=*/true);
    norm_ = register_module("norm", Norm(channels[0]));
    output_ = register_module("output", Convolution(channels[0], shape.channels));
    {
      // Zero the output layer, so that training starts at a loss of 1, the variance of the noise.
      const torch::NoGradGuard no_grad;
      output_->weight.zero_();
      output_->bias.zero_();
    }
    signal_ = register_buffer("alphas_cumprod", CosineSchedule(schedule_steps_));
    UseChannelsLast(*this);
  }

  // Returns the noise in `maps` [B, C + K, H, W] at `steps` [B].
  torch::Tensor forward(const torch::Tensor& maps, const torch::Tensor& steps) {
    const torch::Tensor time = time_embedding_->forward(Sinusoids(steps).to(maps.dtype()));
    torch::Tensor x = input_->forward(maps);
    std::vector<torch::Tensor> passed;
    for (const auto& level : down_) {
      passed.push_back(level->Blocks(x, time));
      x = level->Leave(passed.back());
    }
    x = middle_->forward(x, time);
    for (const auto& level : up_) {
      x = level->Leave(level->Blocks(torch::cat({x, passed.back()}, 1), time));
      passed.pop_back();
    }
    return output_->forward(torch::silu(norm_->forward(x)));
  }

  int64_t Operations(const MapShape& shape) const {
    const int64_t pixels = shape.height * shape.width;
    const int64_t lowest = pixels >> (2 * (down_.size() - 1));
    return LayerOperations(*time_embedding_, 1) + LayerOperations(*input_, pixels) +
           LevelOperations(down_, pixels, /*down=*/true) + LayerOperations(*middle_, lowest) +
           LevelOperations(up_, lowest, /*down=*/false) + LayerOperations(*output_, pixels);
  }

  int64_t schedule_steps() const { return schedule_steps_; }
  // Fraction of the map's variance that remains at each step.
  const torch::Tensor& signal() const { return signal_; }

 private:
  // Returns the step number as sines and cosines of decreasing frequency (Vaswani et al., 2017).
  torch::Tensor Sinusoids(const torch::Tensor& steps) const {
    const int64_t half = width_ / 2;
    const torch::Tensor frequencies =
        torch::exp(torch::arange(half, torch::TensorOptions(torch::kFloat).device(steps.device())) *
                   (-std::log(10000.0) / static_cast<double>(half)));
    const torch::Tensor angles = steps.to(torch::kFloat).unsqueeze(1) * frequencies;
    return torch::cat({angles.sin(), angles.cos()}, 1);
  }

  const int64_t width_;
  const int64_t schedule_steps_;
  nn::Sequential time_embedding_{nullptr};
  nn::Conv2d input_{nullptr}, output_{nullptr};
  std::vector<std::shared_ptr<Level>> down_, up_;
  std::shared_ptr<Middle> middle_;
  nn::GroupNorm norm_{nullptr};
  torch::Tensor signal_;
};

MapDiffusion::MapDiffusion(const RadioUnetSpec& spec, const MapShape& shape)
    : MapDiffusion(std::make_shared<DiffusionModule>(spec, shape), shape) {}

MapDiffusion::MapDiffusion(std::shared_ptr<DiffusionModule> module, const MapShape& shape)
    : ModuleModel(module), module_(std::move(module)), shape_(shape) {}

torch::Tensor MapDiffusion::Losses(const Batch& batch, std::optional<torch::ScalarType> autocast) {
  const torch::Tensor map = batch.at("image").to(torch::kFloat);
  const torch::Tensor& steps = batch.at(kStep);
  const torch::Tensor& noise = batch.at(kNoise);
  const torch::Tensor signal = module_->signal().index_select(0, steps).view({-1, 1, 1, 1});
  torch::Tensor input = signal.sqrt() * map + (1 - signal).sqrt() * noise;
  if (shape_.condition_channels > 0) {
    input = torch::cat({input, batch.at("condition").to(torch::kFloat)}, 1);
  }
  input = input.to(format()).contiguous(torch::MemoryFormat::ChannelsLast);
  torch::Tensor predicted;
  {
    const AutocastGuard guard(map.device().type(), autocast);
    predicted = module_->forward(input, steps);
  }
  return (predicted.to(torch::kFloat) - noise).square().flatten(1).mean(1);
}

void MapDiffusion::Draw(Batch& batch) const {
  const torch::Tensor& map = batch.at("image");
  AddDrawn(kStep, torch::randint(module_->schedule_steps(), {map.size(0)}, torch::kLong), batch);
  AddDrawn(kNoise, torch::randn(map.sizes()), batch);
}

std::vector<Field> MapDiffusion::drawn() const {
  return {{kStep, ElementType::kInt64, {}},
          {kNoise, ElementType::kFloat32, {shape_.channels, shape_.height, shape_.width}}};
}

torch::Tensor MapDiffusion::Loss(const Batch& batch, std::optional<torch::ScalarType> autocast) {
  return MeanLoss(Losses(batch, autocast), batch);
}

std::vector<MetricSum> MapDiffusion::Evaluate(const Batch& batch) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> steps;
  std::vector<torch::Tensor> noise;
  for (const int64_t example : batch.examples) {
    const at::Generator generator = EvaluationGenerator(example);
    steps.push_back(torch::randint(module_->schedule_steps(), {}, generator, torch::kLong));
    noise.push_back(
        torch::randn({shape_.channels, shape_.height, shape_.width}, generator, torch::kFloat));
  }
  Batch drawn = batch;
  AddDrawn(kStep, torch::stack(steps), drawn);
  AddDrawn(kNoise, torch::stack(noise), drawn);
  return {SumOf("loss", Losses(drawn, std::nullopt))};
}

int64_t MapDiffusion::OperationsPerExample() const { return module_->Operations(shape_); }

}  // namespace genesis
