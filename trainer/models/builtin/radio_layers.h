#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <vector>

// The layers that diffusion and autoencoder of radio maps share. Inputs and outputs are [B, C, H,
// W] in channels_last layout.
namespace genesis {

// Channels at each resolution, full resolution first; each level halves height and width.
using LevelChannels = std::vector<int64_t>;

torch::nn::Conv2d Convolution(int64_t in, int64_t out, int64_t size = 3, int64_t stride = 1);
torch::nn::GroupNorm Norm(int64_t channels);

// Norm, SiLU and convolution, twice, plus a skip connection (He et al., 2016). A time embedding [B,
// time_width] is added between the two. The second convolution starts at zero, so that the block
// starts as its skip connection.
class ResidualBlock : public torch::nn::Module {
 public:
  // time_width 0 disables the time embedding.
  ResidualBlock(int64_t in, int64_t out, int64_t time_width);
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& time);

 private:
  torch::nn::GroupNorm norm1_{nullptr}, norm2_{nullptr};
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  torch::nn::Conv2d skip_{nullptr};  // Null if in == out.
  torch::nn::Linear time_{nullptr};  // Null without time.
};

// Self-attention over all pixels, which starts as the identity.
class MapAttention : public torch::nn::Module {
 public:
  explicit MapAttention(int64_t channels);
  torch::Tensor forward(const torch::Tensor& x);

 private:
  const int64_t heads_;
  torch::nn::GroupNorm norm_{nullptr};
  torch::nn::Linear query_key_value_{nullptr}, projection_{nullptr};
};

// Two residual blocks of one resolution and, except on the last level, the change to the next
// resolution.
class Level : public torch::nn::Module {
 public:
  enum class Way { kDown, kUp, kStay };

  Level(int64_t in, int64_t out, int64_t time_width, Way way);
  // Runs only the blocks.
  torch::Tensor Blocks(torch::Tensor x, const torch::Tensor& time);
  // Runs only the change of resolution.
  torch::Tensor Leave(const torch::Tensor& x);

 private:
  const Way way_;
  std::vector<std::shared_ptr<ResidualBlock>> blocks_;
  torch::nn::Conv2d resample_{nullptr};
};

// Residual block, attention, residual block at the lowest resolution.
class Middle : public torch::nn::Module {
 public:
  Middle(int64_t channels, int64_t time_width);
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& time);

 private:
  std::shared_ptr<ResidualBlock> first_, last_;
  std::shared_ptr<MapAttention> attention_;
};

// Adds the levels from full resolution down, named down.0, down.1, ... of `owner`.
std::vector<std::shared_ptr<Level>> AddDownLevels(torch::nn::Module& owner,
                                                  const LevelChannels& channels,
                                                  int64_t time_width);
// Adds the levels from the lowest resolution up, named up.0, up.1, ... With `skips` each also takes
// the output of the down level of the same resolution.
std::vector<std::shared_ptr<Level>> AddUpLevels(torch::nn::Module& owner,
                                                const LevelChannels& channels, int64_t time_width,
                                                bool skips);

// Returns the approximate floating-point operations of one map [.., height, width], forward and
// backward.
int64_t LevelOperations(const std::vector<std::shared_ptr<Level>>& levels, int64_t first_pixels,
                        bool down);
int64_t LayerOperations(const torch::nn::Module& layer, int64_t pixels);

// Converts the weights of convolutions to channels_last layout.
void UseChannelsLast(torch::nn::Module& module);

}  // namespace genesis
