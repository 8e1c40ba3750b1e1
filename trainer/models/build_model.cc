#include "trainer/models/exported_model.h"
#include "trainer/models/latent_world_model.h"
#include "trainer/models/model.h"
#include "trainer/models/radio_unet.h"
#include "trainer/models/scripted_model.h"
#include "trainer/models/transformer.h"

namespace genesis {

absl::StatusOr<std::unique_ptr<Model>> BuildModel(const training::v1::JobSpec& spec,
                                                  const Dataset& dataset) {
  switch (spec.model().kind_case()) {
    case training::v1::ModelSpec::kWorldModel:
      return LatentWorldModel::Build(spec, dataset);
    case training::v1::ModelSpec::kTransformer:
      return Transformer::Build(spec, dataset);
    case training::v1::ModelSpec::kRadioUnet:
      return BuildRadioUnet(spec, dataset);
    case training::v1::ModelSpec::kTorchscript:
      return ScriptedModel::Build(spec, dataset);
    case training::v1::ModelSpec::kExported:
      return ExportedModel::Build(spec, dataset);
    case training::v1::ModelSpec::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "model: required; give it one kind of model: world_model, transformer, radio_unet, "
      "torchscript or exported");
}

}  // namespace genesis
