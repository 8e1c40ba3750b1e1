#include <string>

#include "absl/strings/str_cat.h"
#include "config/job/field_rules.h"
#include "config/job/job_sections.h"

namespace genesis {
namespace {

using training::v1::DatasetSpec;
using training::v1::JobSpec;
using training::v1::ModelSpec;
using training::v1::SyntheticSpec;

void FillSynthetic(const ModelSpec& model, SyntheticSpec& data) {
  FillDefaults(data);
  if (data.has_trajectories()) {
    FillDefaults(*data.mutable_trajectories());
  } else if (data.has_tokens()) {
    training::v1::SyntheticTokens& made = *data.mutable_tokens();
    FillDefaults(made);
    if (made.vocabulary_size() == 0)
      made.set_vocabulary_size(model.transformer().vocabulary_size());
  } else if (data.has_maps()) {
    FillDefaults(*data.mutable_maps());
  }
}

void CheckSynthetic(const ModelSpec& model, const SyntheticSpec& data, Faults& faults) {
  if (data.has_trajectories()) {
    const std::string field = "dataset.synthetic.trajectories";
    const training::v1::SyntheticTrajectories& made = data.trajectories();
    CheckRanges(field, made, faults);
    const int64_t steps = model.world_model().rollout_steps();
    if (steps > 1 && made.episode_length() > 0 && made.episode_length() < steps) {
      faults.Add(field + ".episode_length", absl::StrCat(made.episode_length()),
                 absl::StrCat("at least model.world_model.rollout_steps, ", steps));
    }
  } else if (data.has_tokens()) {
    CheckRanges("dataset.synthetic.tokens", data.tokens(), faults);
  } else if (data.has_maps()) {
    const std::string field = "dataset.synthetic.maps";
    CheckRanges(field, data.maps(), faults);
    const int64_t size = data.maps().size();
    if (size != 0 && (size < 8 || size > 1024 || (size & (size - 1)) != 0)) {
      faults.Add(field + ".size", absl::StrCat(size), "a power of two from 8 to 1024");
    }
  } else {
    faults.Add("dataset.synthetic", "",
               "required; give it one kind of data: trajectories, tokens or maps");
  }
  CheckRanges("dataset.synthetic", data, faults);
}

// Reports fields that need dataset.replay.follow but lack it, and fields that conflict with it.
void CheckFollow(const JobSpec& spec, Faults& faults) {
  const training::v1::ReplaySpec& replay = spec.dataset().replay();
  const bool newest = spec.dataset().sampling().kind() == training::v1::SAMPLING_KIND_NEWEST;
  if (!replay.follow()) {
    const std::pair<const char*, double> fields[] = {
        {"min_size", static_cast<double>(replay.min_size())},
        {"samples_per_insert", replay.samples_per_insert()},
        {"samples_per_insert_tolerance",
         static_cast<double>(replay.samples_per_insert_tolerance())},
        {"newest_transitions", static_cast<double>(replay.newest_transitions())},
        {"idle_seconds", replay.idle_seconds()}};
    for (const auto& [name, value] : fields) {
      if (value == 0) continue;
      faults.Add(absl::StrCat("dataset.replay.", name), "",
                 absl::StrCat(FormatNumber(value),
                              " needs dataset.replay.follow; give follow: true, or remove it"));
    }
    if (newest) {
      faults.Add("dataset.sampling.kind", "",
                 "NEWEST needs dataset.replay.follow; give follow: true, or UNIFORM");
    }
    return;
  }
  if (replay.samples_per_insert_tolerance() > 0 && replay.samples_per_insert() == 0) {
    faults.Add("dataset.replay.samples_per_insert_tolerance", "",
               absl::StrCat(replay.samples_per_insert_tolerance(),
                            " needs dataset.replay.samples_per_insert; give one, or remove it"));
  }
  if (replay.newest_transitions() > 0 &&
      replay.newest_transitions() < spec.training().batch_size()) {
    faults.Add(
        "dataset.replay.newest_transitions", "",
        absl::StrCat(replay.newest_transitions(), " conflicts with training.batch_size ",
                     spec.training().batch_size(), "; keep the transitions of at least one batch"));
  }
  if (spec.training().epochs() > 0) {
    faults.Add("training.epochs", "",
               absl::StrCat(spec.training().epochs(),
                            " conflicts with dataset.replay.follow, which has no epochs; give "
                            "training.max_steps (up to 1000000000000)"));
  }
}

void CheckKind(const JobSpec& spec, Faults& faults) {
  const DatasetSpec& data = spec.dataset();
  switch (data.kind_case()) {
    case DatasetSpec::kTrajectories:
      faults.CheckPath("dataset.trajectories.path", data.trajectories().path(),
                       "an .npz, .jsonl or .safetensors file", {".npz", ".jsonl", ".safetensors"});
      return CheckRanges("dataset.trajectories", data.trajectories(), faults);
    case DatasetSpec::kReplay:
      faults.CheckPath("dataset.replay.path", data.replay().path(), "the folder of a replay buffer",
                       {});
      CheckFollow(spec, faults);
      return CheckRanges("dataset.replay", data.replay(), faults);
    case DatasetSpec::kTokens:
      faults.CheckPath("dataset.tokens.path", data.tokens().path(), "a .bin or .tokens file",
                       {".bin", ".tokens"});
      return CheckRanges("dataset.tokens", data.tokens(), faults);
    case DatasetSpec::kArrays:
      faults.CheckPath("dataset.arrays.path", data.arrays().path(),
                       "an .npz, .safetensors or .npy file", {".npz", ".safetensors", ".npy"});
      return CheckRanges("dataset.arrays", data.arrays(), faults);
    case DatasetSpec::kSynthetic:
      return CheckSynthetic(spec.model(), data.synthetic(), faults);
    case DatasetSpec::KIND_NOT_SET:
      return faults.Add("dataset", "",
                        "required; give it one kind of dataset: trajectories, replay, tokens, "
                        "arrays or synthetic");
  }
}

void CheckSampling(const DatasetSpec& data, Faults& faults) {
  const training::v1::SamplingSpec& sampling = data.sampling();
  const bool prioritized = sampling.kind() == training::v1::SAMPLING_KIND_PRIORITIZED;
  if (prioritized && !data.has_replay() && data.kind_case() != DatasetSpec::KIND_NOT_SET) {
    faults.Add("dataset.sampling.kind", "",
               "PRIORITIZED needs data with priorities; use dataset.replay, or UNIFORM");
  }
  if (sampling.kind() == training::v1::SAMPLING_KIND_NEWEST && !data.has_replay()) {
    faults.Add("dataset.sampling.kind", "",
               "NEWEST needs data that grows; use dataset.replay with follow: true, or UNIFORM");
  }
  CheckRanges("dataset.sampling", sampling, faults);
  const std::pair<const char*, double> exponents[] = {
      {"dataset.sampling.priority_exponent", sampling.priority_exponent()},
      {"dataset.sampling.importance_exponent", sampling.importance_exponent()}};
  for (const auto& [field, value] : exponents) {
    if (prioritized || value == 0) continue;
    faults.Add(
        field, "",
        absl::StrCat(FormatNumber(value), " conflicts with dataset.sampling.kind ",
                     sampling.kind() == training::v1::SAMPLING_KIND_NEWEST ? "NEWEST" : "UNIFORM",
                     ", which has no exponents; remove one of the two"));
  }
}

}  // namespace

void FillDataset(JobSpec& spec) {
  if (spec.dataset().kind_case() == DatasetSpec::KIND_NOT_SET) return;
  DatasetSpec& data = *spec.mutable_dataset();
  switch (data.kind_case()) {
    case DatasetSpec::kTrajectories:
      FillDefaults(*data.mutable_trajectories());
      break;
    case DatasetSpec::kReplay:
      FillDefaults(*data.mutable_replay());
      break;
    case DatasetSpec::kTokens:
      FillDefaults(*data.mutable_tokens());
      break;
    case DatasetSpec::kArrays:
      FillDefaults(*data.mutable_arrays());
      break;
    case DatasetSpec::kSynthetic:
      FillSynthetic(spec.model(), *data.mutable_synthetic());
      break;
    case DatasetSpec::KIND_NOT_SET:
      break;
  }
  FillDefaults(data);
  training::v1::SamplingSpec& sampling = *data.mutable_sampling();
  FillDefaults(sampling);
  if (sampling.kind() == training::v1::SAMPLING_KIND_PRIORITIZED) {
    if (sampling.priority_exponent() == 0) sampling.set_priority_exponent(0.6);
    if (sampling.importance_exponent() == 0) sampling.set_importance_exponent(0.4);
  }
}

void CheckDataset(const JobSpec& spec, Faults& faults) {
  CheckKind(spec, faults);
  CheckSampling(spec.dataset(), faults);
  CheckRanges("dataset", spec.dataset(), faults);
}

}  // namespace genesis
