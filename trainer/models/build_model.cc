#include "trainer/models/build_model.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "config/job/model_kinds.h"
#include "trainer/models/builtin/latent_world_model.h"
#include "trainer/models/builtin/radio_unet.h"
#include "trainer/models/builtin/transformer.h"
#include "trainer/models/exported/exported_model.h"

namespace genesis {
namespace {

using training::v1::ModelSpec;

struct Builder {
  ModelSpec::KindCase kind;
  absl::StatusOr<std::unique_ptr<Model>> (*build)(const training::v1::JobSpec& spec,
                                                  const Dataset& dataset);
};

// One builder for each of ModelKinds(). The Python twins of built-in models are in
// trainer/compiled/python/twins.
constexpr Builder kBuilders[] = {
    {ModelSpec::kWorldModel, &LatentWorldModel::Build},
    {ModelSpec::kTransformer, &Transformer::Build},
    {ModelSpec::kRadioUnet, &BuildRadioUnet},
    {ModelSpec::kExported, &ExportedModel::Build},
};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> BuildModel(const training::v1::JobSpec& spec,
                                                  const Dataset& dataset) {
  const ModelSpec::KindCase kind = spec.model().kind_case();
  const auto* const found = std::find_if(std::begin(kBuilders), std::end(kBuilders),
                                         [&](const Builder& row) { return row.kind == kind; });
  if (found != std::end(kBuilders)) return found->build(spec, dataset);
  return absl::InvalidArgumentError(absl::StrCat("model: required; ", ModelKindsText()));
}

}  // namespace genesis
