#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/job/field_rules.h"
#include "config/job/job_sections.h"
#include "config/job/model_kinds.h"

namespace genesis {

using training::v1::DatasetSpec;
using training::v1::JobSpec;
using training::v1::ModelSpec;
using training::v1::RadioUnetSpec;
using training::v1::SyntheticSpec;
using training::v1::TransformerSpec;

namespace {

// Adds an error for a field that has no effect because of another one; one must be a mistake.
void AddUnused(const char* path, const std::string& value, const std::string& because,
               Faults& faults) {
  faults.Add(path, "",
             absl::StrCat(value, " conflicts with ", because,
                          ", which does not use it; remove one of the two"));
}

// Returns the kind of dataset as in the job file; empty if none is given.
std::string DatasetKind(const DatasetSpec& dataset) {
  switch (dataset.kind_case()) {
    case DatasetSpec::kTrajectories:
      return "dataset.trajectories";
    case DatasetSpec::kReplay:
      return "dataset.replay";
    case DatasetSpec::kTokens:
      return "dataset.tokens";
    case DatasetSpec::kArrays:
      return "dataset.arrays";
    case DatasetSpec::kSynthetic:
      break;
    case DatasetSpec::KIND_NOT_SET:
      return "";
  }
  switch (dataset.synthetic().kind_case()) {
    case SyntheticSpec::kTrajectories:
      return "dataset.synthetic.trajectories";
    case SyntheticSpec::kTokens:
      return "dataset.synthetic.tokens";
    case SyntheticSpec::kMaps:
      return "dataset.synthetic.maps";
    case SyntheticSpec::KIND_NOT_SET:
      break;
  }
  return "";
}

void CheckDatasetFits(const JobSpec& spec, Faults& faults) {
  const ModelKind& kind = *FindKind(spec.model());
  const std::string dataset = DatasetKind(spec.dataset());
  if (dataset.empty()) return;
  for (const std::string& fitting : kind.datasets) {
    if (dataset == fitting) return;
  }
  faults.Add("model." + kind.name(), "",
             absl::StrCat("conflicts with ", dataset, "; it is trained on ",
                          absl::StrJoin(kind.datasets, " or ")));
}

void CheckTransformer(const JobSpec& spec, Faults& faults) {
  const TransformerSpec& given = spec.model().transformer();
  TransformerSpec model = given;
  FillDefaults(model);
  if (given.vocabulary_size() == 0) {
    faults.Add("model.transformer.vocabulary_size", "",
               "required; give the number of different tokens, 2 to 1048576");
  }
  CheckRanges("model.transformer", given, faults);
  if (model.heads() > 0 && model.embedding_size() > 0 &&
      model.embedding_size() % model.heads() != 0) {
    faults.Add("model.transformer.heads", "",
               absl::StrCat(model.heads(), " does not divide model.transformer.embedding_size ",
                            model.embedding_size(), "; change one of the two"));
  }
  const int64_t made = spec.dataset().synthetic().tokens().vocabulary_size();
  if (made > given.vocabulary_size() && given.vocabulary_size() > 0) {
    faults.Add("model.transformer.vocabulary_size", "",
               absl::StrCat(given.vocabulary_size(),
                            " conflicts with dataset.synthetic.tokens.vocabulary_size ", made,
                            "; the model needs at least as many"));
  }
}

// Fills only fields of the chosen part, so that fields set for the other part are noticed.
void FillRadioUnet(RadioUnetSpec& model) {
  FillDefaults(model);
  if (model.channel_multipliers().empty()) {
    for (const int multiplier : {1, 2, 4}) model.add_channel_multipliers(multiplier);
  }
  if (model.part() == training::v1::RADIO_UNET_PART_VAE) {
    if (model.latent_channels() == 0) model.set_latent_channels(4);
    if (model.kl_weight() == 0) model.set_kl_weight(1e-6);
  } else if (model.diffusion_steps() == 0) {
    model.set_diffusion_steps(1000);
  }
}

void CheckRadioUnet(const RadioUnetSpec& model, Faults& faults) {
  const int64_t base = model.base_channels();
  if (base != 0 && (base < 8 || base > 1024 || base % 8 != 0)) {
    faults.Add("model.radio_unet.base_channels", absl::StrCat(base), "a multiple of 8, 8 to 1024");
  }
  constexpr int kMaxMultipliers = 6;
  if (model.channel_multipliers_size() > kMaxMultipliers) {
    faults.Add("model.radio_unet.channel_multipliers",
               absl::StrCat("[", absl::StrJoin(model.channel_multipliers(), ", "), "]"),
               absl::StrCat("at most ", kMaxMultipliers, " numbers"));
  }
  for (int i = 0; i < model.channel_multipliers_size(); ++i) {
    const int multiplier = model.channel_multipliers(i);
    if (multiplier >= 1 && multiplier <= 16) continue;
    faults.Add(absl::StrCat("model.radio_unet.channel_multipliers[", i, "]"),
               absl::StrCat(multiplier), "1 to 16");
  }
  CheckRanges("model.radio_unet", model, faults);
  if (model.part() == training::v1::RADIO_UNET_PART_VAE) {
    if (model.diffusion_steps() != 0) {
      AddUnused("model.radio_unet.diffusion_steps", absl::StrCat(model.diffusion_steps()),
                "model.radio_unet.part VAE", faults);
    }
    return;
  }
  if (model.latent_channels() != 0) {
    AddUnused("model.radio_unet.latent_channels", absl::StrCat(model.latent_channels()),
              "model.radio_unet.part DIFFUSION", faults);
  }
  if (model.kl_weight() != 0) {
    AddUnused("model.radio_unet.kl_weight", FormatNumber(model.kl_weight()),
              "model.radio_unet.part DIFFUSION", faults);
  }
}

void CheckExported(const JobSpec& spec, Faults& faults) {
  faults.CheckPath("model.exported.path", spec.model().exported().path(),
                   "a file that genesis.export of Python wrote", {".pt2"});
}

// Excludes dataset.tokens, because the length of an example would be undefined.
std::vector<std::string> AnyExamples() {
  return {"dataset.arrays", "dataset.trajectories", "dataset.replay",
          "dataset.synthetic.trajectories", "dataset.synthetic.maps"};
}

}  // namespace

const std::vector<ModelKind>& ModelKinds() {
  static const auto& kinds = *new std::vector<ModelKind>{
      {.kind = ModelSpec::kWorldModel,
       .datasets = {"dataset.trajectories", "dataset.replay", "dataset.synthetic.trajectories"},
       .fill = [](ModelSpec& model) { FillDefaults(*model.mutable_world_model()); },
       .check =
           [](const JobSpec& spec, Faults& faults) {
             CheckRanges("model.world_model", spec.model().world_model(), faults);
           }},
      {.kind = ModelSpec::kTransformer,
       .datasets = {"dataset.tokens", "dataset.synthetic.tokens"},
       .fill = [](ModelSpec& model) { FillDefaults(*model.mutable_transformer()); },
       .check = &CheckTransformer},
      {.kind = ModelSpec::kRadioUnet,
       .datasets = {"dataset.arrays", "dataset.synthetic.maps"},
       .fill = [](ModelSpec& model) { FillRadioUnet(*model.mutable_radio_unet()); },
       .check = [](const JobSpec& spec,
                   Faults& faults) { CheckRadioUnet(spec.model().radio_unet(), faults); },
       .array = "image"},
      {.kind = ModelSpec::kExported,
       .datasets = AnyExamples(),
       .fill = [](ModelSpec&) {},
       .check = &CheckExported,
       .path = [](const ModelSpec& model) -> const std::string& {
         return model.exported().path();
       }},
  };
  return kinds;
}

void FillModel(JobSpec& spec) {
  if (const ModelKind* const kind = FindKind(spec.model())) kind->fill(*spec.mutable_model());
}

void CheckModel(const JobSpec& spec, Faults& faults) {
  const ModelKind* const kind = FindKind(spec.model());
  if (kind == nullptr) return faults.Add("model", "", "required; " + ModelKindsText());
  kind->check(spec, faults);
  CheckDatasetFits(spec, faults);
  if (!spec.model().initial_weights().empty()) {
    faults.CheckPath("model.initial_weights", spec.model().initial_weights(),
                     "a .pt or .safetensors file", {".pt", ".safetensors"});
  }
}

}  // namespace genesis
