#include <utility>

#include "trainer/models/builtin/radio_layers.h"
#include "trainer/models/builtin/radio_unet.h"
#include "trainer/precision/autocast_guard.h"

namespace genesis {
namespace {

namespace nn = torch::nn;
using training::v1::RadioUnetSpec;

constexpr char kLatentNoise[] = "noise";  // Name of the field that Draw adds.

// The encoder: from a radio map to mean and logarithm of the variance of each latent element.
class Encoder : public nn::Module {
 public:
  Encoder(const LevelChannels& channels, int64_t map, int64_t latent) {
    input_ = register_module("input", Convolution(map, channels[0]));
    down_ = AddDownLevels(*this, channels, /*time_width=*/0);
    middle_ = register_module("middle", std::make_shared<Middle>(channels.back(), 0));
    norm_ = register_module("norm", Norm(channels.back()));
    output_ = register_module("output", Convolution(channels.back(), 2 * latent));
  }

  torch::Tensor forward(const torch::Tensor& map) {
    torch::Tensor x = input_->forward(map);
    for (const auto& level : down_) x = level->Leave(level->Blocks(x, {}));
    return output_->forward(torch::silu(norm_->forward(middle_->forward(x, {}))));
  }

  int64_t Operations(int64_t pixels, int64_t lowest) const {
    return LayerOperations(*input_, pixels) + LevelOperations(down_, pixels, /*down=*/true) +
           LayerOperations(*middle_, lowest) + LayerOperations(*output_, lowest);
  }

 private:
  nn::Conv2d input_{nullptr}, output_{nullptr};
  std::vector<std::shared_ptr<Level>> down_;
  std::shared_ptr<Middle> middle_;
  nn::GroupNorm norm_{nullptr};
};

class Decoder : public nn::Module {
 public:
  Decoder(const LevelChannels& channels, int64_t map, int64_t latent) {
    input_ = register_module("input", Convolution(latent, channels.back()));
    middle_ = register_module("middle", std::make_shared<Middle>(channels.back(), 0));
    up_ = AddUpLevels(*this, channels, /*time_width=*/0, /*skips=*/false);
    norm_ = register_module("norm", Norm(channels[0]));
    output_ = register_module("output", Convolution(channels[0], map));
  }

  torch::Tensor forward(const torch::Tensor& latent) {
    torch::Tensor x = middle_->forward(input_->forward(latent), {});
    for (const auto& level : up_) x = level->Leave(level->Blocks(x, {}));
    return output_->forward(torch::silu(norm_->forward(x)));
  }

  int64_t Operations(int64_t pixels, int64_t lowest) const {
    return LayerOperations(*input_, lowest) + LayerOperations(*middle_, lowest) +
           LevelOperations(up_, lowest, /*down=*/false) + LayerOperations(*output_, pixels);
  }

 private:
  nn::Conv2d input_{nullptr}, output_{nullptr};
  std::vector<std::shared_ptr<Level>> up_;
  std::shared_ptr<Middle> middle_;
  nn::GroupNorm norm_{nullptr};
};

}  // namespace

class AutoencoderModule : public nn::Module {
 public:
  AutoencoderModule(const RadioUnetSpec& spec, const MapShape& shape)
      : latent_(spec.latent_channels()), halvings_(spec.channel_multipliers_size() - 1) {
    const LevelChannels channels = ChannelsOf(spec);
    encoder_ =
        register_module("encoder", std::make_shared<Encoder>(channels, shape.channels, latent_));
    decoder_ =
        register_module("decoder", std::make_shared<Decoder>(channels, shape.channels, latent_));
    UseChannelsLast(*this);
  }

  Encoder& encoder() { return *encoder_; }
  Decoder& decoder() { return *decoder_; }

  std::vector<int64_t> LatentShape(const MapShape& shape) const {
    return {latent_, shape.height >> halvings_, shape.width >> halvings_};
  }

  int64_t Operations(const MapShape& shape) const {
    const int64_t pixels = shape.height * shape.width;
    const int64_t lowest = pixels >> (2 * halvings_);
    return encoder_->Operations(pixels, lowest) + decoder_->Operations(pixels, lowest);
  }

 private:
  const int64_t latent_;
  const int halvings_;
  std::shared_ptr<Encoder> encoder_;
  std::shared_ptr<Decoder> decoder_;
};

MapAutoencoder::MapAutoencoder(const RadioUnetSpec& spec, const MapShape& shape)
    : MapAutoencoder(std::make_shared<AutoencoderModule>(spec, shape), shape, spec.kl_weight()) {}

MapAutoencoder::MapAutoencoder(std::shared_ptr<AutoencoderModule> module, const MapShape& shape,
                               double kl_weight)
    : ModuleModel(module), module_(std::move(module)), shape_(shape), kl_weight_(kl_weight) {}

MapAutoencoder::Errors MapAutoencoder::Measure(const Batch& batch,
                                               std::optional<torch::ScalarType> autocast) {
  // Bounds of the logarithm, as in Rombach et al.
  constexpr double kLeast = -30;
  constexpr double kMax = 20;
  const torch::Tensor map = batch.at("image").to(torch::kFloat);
  const auto channels_last = [&](const torch::Tensor& t) {
    return t.to(format()).contiguous(torch::MemoryFormat::ChannelsLast);
  };
  torch::Tensor encoded;
  {
    const AutocastGuard guard(map.device().type(), autocast);
    encoded = module_->encoder().forward(channels_last(map));
  }
  // The latent map is drawn in float32 because its variance can be very small.
  const std::vector<torch::Tensor> halves = encoded.to(torch::kFloat).chunk(2, 1);
  const torch::Tensor& mean = halves[0];
  const torch::Tensor log_variance = halves[1].clamp(kLeast, kMax);
  const torch::Tensor latent = mean + torch::exp(0.5 * log_variance) * batch.at(kLatentNoise);
  torch::Tensor decoded;
  {
    const AutocastGuard guard(map.device().type(), autocast);
    decoded = module_->decoder().forward(channels_last(latent));
  }
  const torch::Tensor divergence =
      0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).flatten(1).sum(1);
  const auto elements = static_cast<double>(shape_.channels * shape_.height * shape_.width);
  return {.reconstruction = (decoded.to(torch::kFloat) - map).square().flatten(1).mean(1),
          .divergence = divergence / elements};
}

torch::Tensor MapAutoencoder::Weigh(const Errors& errors) const {
  return errors.reconstruction + kl_weight_ * errors.divergence;
}

void MapAutoencoder::Draw(Batch& batch) const {
  std::vector<int64_t> sizes = module_->LatentShape(shape_);
  sizes.insert(sizes.begin(), batch.at("image").size(0));
  AddDrawn(kLatentNoise, torch::randn(sizes), batch);
}

std::vector<Field> MapAutoencoder::drawn() const {
  return {{kLatentNoise, ElementType::kFloat32, module_->LatentShape(shape_)}};
}

torch::Tensor MapAutoencoder::Loss(const Batch& batch, std::optional<torch::ScalarType> autocast) {
  return MeanLoss(Weigh(Measure(batch, autocast)), batch);
}

std::vector<MetricSum> MapAutoencoder::Evaluate(const Batch& batch) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> noise;
  for (const int64_t example : batch.examples) {
    noise.push_back(
        torch::randn(module_->LatentShape(shape_), EvaluationGenerator(example), torch::kFloat));
  }
  Batch drawn = batch;
  AddDrawn(kLatentNoise, torch::stack(noise), drawn);
  const Errors errors = Measure(drawn, std::nullopt);
  return {SumOf("loss", Weigh(errors)), SumOf("reconstruction_error", errors.reconstruction),
          SumOf("kl_divergence", errors.divergence)};
}

int64_t MapAutoencoder::OperationsPerExample() const { return module_->Operations(shape_); }

}  // namespace genesis
