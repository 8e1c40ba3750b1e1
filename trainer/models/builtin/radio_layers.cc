#include "trainer/models/builtin/radio_layers.h"

#include <string>
#include <utility>

namespace genesis {
namespace {

namespace nn = torch::nn;
namespace F = torch::nn::functional;

constexpr int64_t kGroups = 8;
constexpr int64_t kHeadWidth = 64;
constexpr int kBlocksPerLevel = 2;

template <typename Layer>
Layer StartingAtZero(Layer layer) {
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& parameter : layer->parameters()) parameter.zero_();
  return layer;
}

}  // namespace

nn::Conv2d Convolution(int64_t in, int64_t out, int64_t size, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2));
}

nn::GroupNorm Norm(int64_t channels) {
  return nn::GroupNorm(nn::GroupNormOptions(kGroups, channels));
}

ResidualBlock::ResidualBlock(int64_t in, int64_t out, int64_t time_width) {
  norm1_ = register_module("norm1", Norm(in));
  conv1_ = register_module("conv1", Convolution(in, out));
  if (time_width > 0) time_ = register_module("time", nn::Linear(time_width, out));
  norm2_ = register_module("norm2", Norm(out));
  conv2_ = register_module("conv2", StartingAtZero(Convolution(out, out)));
  if (in != out) skip_ = register_module("skip", Convolution(in, out, 1));
}

torch::Tensor ResidualBlock::forward(const torch::Tensor& x, const torch::Tensor& time) {
  torch::Tensor h = conv1_->forward(torch::silu(norm1_->forward(x)));
  if (time_) h = h + time_->forward(torch::silu(time)).unsqueeze(2).unsqueeze(3);
  h = conv2_->forward(torch::silu(norm2_->forward(h)));
  return (skip_ ? skip_->forward(x) : x) + h;
}

MapAttention::MapAttention(int64_t channels)
    : heads_(channels % kHeadWidth == 0 ? channels / kHeadWidth : 1) {
  norm_ = register_module("norm", Norm(channels));
  query_key_value_ = register_module("query_key_value", nn::Linear(channels, 3 * channels));
  projection_ = register_module("projection", StartingAtZero(nn::Linear(channels, channels)));
}

torch::Tensor MapAttention::forward(const torch::Tensor& x) {
  const int64_t batch = x.size(0);
  const int64_t channels = x.size(1);
  const int64_t pixels = x.size(2) * x.size(3);
  // In channels_last layout this copies nothing.
  const torch::Tensor rows =
      norm_->forward(x).permute({0, 2, 3, 1}).reshape({batch, pixels, channels});
  const auto by_head = [&](const torch::Tensor& t) {
    return t.view({batch, pixels, heads_, channels / heads_}).transpose(1, 2);
  };
  const std::vector<torch::Tensor> parts = query_key_value_->forward(rows).split(channels, 2);
  const torch::Tensor seen =
      at::scaled_dot_product_attention(by_head(parts[0]), by_head(parts[1]), by_head(parts[2]));
  const torch::Tensor h =
      projection_->forward(seen.transpose(1, 2).reshape({batch, pixels, channels}));
  return x + h.view({batch, x.size(2), x.size(3), channels}).permute({0, 3, 1, 2});
}

Level::Level(int64_t in, int64_t out, int64_t time_width, Way way) : way_(way) {
  nn::ModuleList list;
  for (int i = 0; i < kBlocksPerLevel; ++i) {
    blocks_.push_back(std::make_shared<ResidualBlock>(i == 0 ? in : out, out, time_width));
    list->push_back(blocks_.back());
  }
  register_module("blocks", list);
  if (way_ == Way::kDown) {
    resample_ = register_module("downsample", Convolution(out, out, 3, /*stride=*/2));
  } else if (way_ == Way::kUp) {
    resample_ = register_module("upsample", Convolution(out, out));
  }
}

torch::Tensor Level::Blocks(torch::Tensor x, const torch::Tensor& time) {
  for (const auto& block : blocks_) x = block->forward(x, time);
  return x;
}

torch::Tensor Level::Leave(const torch::Tensor& x) {
  switch (way_) {
    case Way::kDown:
      return resample_->forward(x);
    case Way::kUp:
      return resample_->forward(F::interpolate(x, F::InterpolateFuncOptions()
                                                      .scale_factor(std::vector<double>{2, 2})
                                                      .mode(torch::kNearest)));
    case Way::kStay:
      break;
  }
  return x;
}

Middle::Middle(int64_t channels, int64_t time_width) {
  first_ =
      register_module("first", std::make_shared<ResidualBlock>(channels, channels, time_width));
  attention_ = register_module("attention", std::make_shared<MapAttention>(channels));
  last_ = register_module("last", std::make_shared<ResidualBlock>(channels, channels, time_width));
}

torch::Tensor Middle::forward(const torch::Tensor& x, const torch::Tensor& time) {
  return last_->forward(attention_->forward(first_->forward(x, time)), time);
}

namespace {

std::vector<std::shared_ptr<Level>> Register(nn::Module& owner, const char* name,
                                             std::vector<std::shared_ptr<Level>> levels) {
  nn::ModuleList list;
  for (const auto& level : levels) list->push_back(level);
  owner.register_module(name, list);
  return levels;
}

}  // namespace

std::vector<std::shared_ptr<Level>> AddDownLevels(nn::Module& owner, const LevelChannels& channels,
                                                  int64_t time_width) {
  std::vector<std::shared_ptr<Level>> levels;
  for (size_t i = 0; i < channels.size(); ++i) {
    const bool last = i + 1 == channels.size();
    levels.push_back(std::make_shared<Level>(channels[i == 0 ? 0 : i - 1], channels[i], time_width,
                                             last ? Level::Way::kStay : Level::Way::kDown));
  }
  return Register(owner, "down", std::move(levels));
}

std::vector<std::shared_ptr<Level>> AddUpLevels(nn::Module& owner, const LevelChannels& channels,
                                                int64_t time_width, bool skips) {
  std::vector<std::shared_ptr<Level>> levels;
  int64_t in = channels.back();
  for (size_t i = channels.size(); i-- > 0;) {
    levels.push_back(std::make_shared<Level>(in + (skips ? channels[i] : 0), channels[i],
                                             time_width,
                                             i == 0 ? Level::Way::kStay : Level::Way::kUp));
    in = channels[i];
  }
  return Register(owner, "up", std::move(levels));
}

int64_t LayerOperations(const nn::Module& layer, int64_t pixels) {
  int64_t weights = 0;
  for (const torch::Tensor& parameter : layer.parameters()) weights += parameter.numel();
  // A multiplication and an addition per weight and pixel, once forward and twice backward.
  return 6 * weights * pixels;
}

int64_t LevelOperations(const std::vector<std::shared_ptr<Level>>& levels, int64_t first_pixels,
                        bool down) {
  int64_t operations = 0;
  int64_t pixels = first_pixels;
  for (const auto& level : levels) {
    operations += LayerOperations(*level, pixels);
    pixels = down ? pixels / 4 : pixels * 4;
  }
  return operations;
}

void UseChannelsLast(nn::Module& module) {
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : module.parameters()) {
    if (parameter.dim() == 4) {
      // contiguous() would leave a weight of one input channel or one pixel with strides that do
      // not identify its layout.
      parameter.set_data(parameter.to(torch::MemoryFormat::ChannelsLast));
    }
  }
}

}  // namespace genesis
