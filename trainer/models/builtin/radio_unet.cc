#include "trainer/models/builtin/radio_unet.h"

#include <ATen/CPUGeneratorImpl.h>

#include "absl/strings/str_cat.h"
#include "trainer/models/base/dataset_fields.h"

namespace genesis {

absl::StatusOr<std::unique_ptr<Model>> BuildRadioUnet(const training::v1::JobSpec& spec,
                                                      const Dataset& dataset) {
  const training::v1::RadioUnetSpec& model = spec.model().radio_unet();
  const std::vector<ElementType> floats = {ElementType::kFloat32, ElementType::kFloat16,
                                           ElementType::kBfloat16, ElementType::kFloat64};
  const DatasetFields fields(spec, dataset, "model.radio_unet");
  const auto image = fields.Shape("image", {{"C"}, {"H"}, {"W"}}, floats);
  if (!image.ok()) return image.status();
  MapShape shape{.channels = image->at(0), .height = image->at(1), .width = image->at(2)};
  if (FindField(dataset, "condition") != nullptr) {
    const auto condition =
        fields.Shape("condition", {{"K"}, {"H", shape.height}, {"W", shape.width}}, floats);
    if (!condition.ok()) return condition.status();
    shape.condition_channels = condition->at(0);
  }
  const int halvings = model.channel_multipliers_size() - 1;
  const int64_t divisor = int64_t{1} << halvings;
  if (shape.height % divisor != 0 || shape.width % divisor != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.radio_unet.channel_multipliers has ", halvings + 1, " numbers, so maps are halved ",
        halvings, " times and need a height and width that ", divisor, " divides; ",
        fields.WhatThereIs(), "; give fewer multipliers or pad the maps"));
  }
  torch::manual_seed(spec.training().seed());
  if (model.part() == training::v1::RADIO_UNET_PART_VAE) {
    return std::make_unique<MapAutoencoder>(model, shape);
  }
  return std::make_unique<MapDiffusion>(model, shape);
}

std::vector<int64_t> ChannelsOf(const training::v1::RadioUnetSpec& spec) {
  std::vector<int64_t> channels;
  for (const int multiplier : spec.channel_multipliers()) {
    channels.push_back(int64_t{spec.base_channels()} * multiplier);
  }
  return channels;
}

void AddDrawn(const std::string& field, const torch::Tensor& drawn, Batch& batch) {
  const torch::Device device = batch.at("image").device();
  batch.fields[field] =
      device.is_cuda() ? drawn.pin_memory().to(device, /*non_blocking=*/true) : drawn;
}

at::Generator EvaluationGenerator(int64_t example) {
  constexpr uint64_t kSeed = 0x67656e65736973;  // Arbitrary, but must not change.
  return at::detail::createCPUGenerator(kSeed + static_cast<uint64_t>(example));
}

}  // namespace genesis
