#include "trainer/predict/served_model.h"

#include "trainer/predict/served_builtin.h"
#include "trainer/predict/served_exported.h"

namespace genesis {
namespace {

using training::v1::JobSpec;
using training::v1::ModelSpec;

struct Builder {
  ModelSpec::KindCase kind;
  absl::StatusOr<std::unique_ptr<ServedModel>> (*build)(const JobSpec& spec,
                                                        const NamedTensors& weights);
};

constexpr Builder kBuilders[] = {
    {ModelSpec::kWorldModel, &BuildServedWorldModel},
    {ModelSpec::kTransformer, &BuildServedTransformer},
    {ModelSpec::kExported, &BuildServedModule},
};

}  // namespace

absl::StatusOr<std::unique_ptr<ServedModel>> ServedModel::Build(const JobSpec& spec,
                                                                const NamedTensors& weights) {
  for (const Builder& row : kBuilders) {
    if (row.kind != spec.model().kind_case()) continue;
    absl::StatusOr<std::unique_ptr<ServedModel>> model = row.build(spec, weights);
    if (!model.ok()) return model;
    if (absl::Status loaded = (*model)->Load(weights); !loaded.ok()) return loaded;
    return model;
  }
  return absl::FailedPreconditionError(
      "this kind of model makes no predictions; accepted: model.world_model, model.transformer, "
      "model.exported");
}

}  // namespace genesis
