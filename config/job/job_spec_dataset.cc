#include <string>

#include "absl/strings/str_cat.h"
#include "config/job/job_sections.h"

namespace genesis {
namespace {

using training::v1::DatasetSpec;
using training::v1::JobSpec;
using training::v1::ModelSpec;
using training::v1::SyntheticSpec;

constexpr double kHoldout = 0.1;
constexpr int64_t kMemoryLimit = 1073741824;
constexpr int64_t kLeastMemory = 1048576;

template <typename Spec>
void FillHoldout(Spec& spec) {
  if (spec.holdout_fraction() == 0) spec.set_holdout_fraction(kHoldout);
}

void FillSynthetic(const ModelSpec& model, SyntheticSpec& data) {
  FillHoldout(data);
  if (data.has_trajectories()) {
    training::v1::SyntheticTrajectories& made = *data.mutable_trajectories();
    if (made.episodes() == 0) made.set_episodes(256);
    if (made.episode_length() == 0) made.set_episode_length(64);
    if (made.observation_size() == 0) made.set_observation_size(16);
    if (made.action_size() == 0) made.set_action_size(4);
  } else if (data.has_tokens()) {
    training::v1::SyntheticTokens& made = *data.mutable_tokens();
    if (made.size() == 0) made.set_size(1048576);
    if (made.vocabulary_size() == 0)
      made.set_vocabulary_size(model.transformer().vocabulary_size());
  } else if (data.has_maps()) {
    training::v1::SyntheticMaps& made = *data.mutable_maps();
    if (made.maps() == 0) made.set_maps(256);
    if (made.size() == 0) made.set_size(64);
  }
}

void CheckHoldout(const std::string& field, double part, Faults& faults) {
  faults.CheckNumber(field + ".holdout_fraction", part, part > 0 && part <= 0.5,
                     "above 0, at most 0.5");
}

void CheckSynthetic(const ModelSpec& model, const SyntheticSpec& data, Faults& faults) {
  if (data.has_trajectories()) {
    const std::string field = "dataset.synthetic.trajectories.";
    const training::v1::SyntheticTrajectories& made = data.trajectories();
    faults.CheckWhole(field + "episodes", made.episodes(), 2, 10000000);
    faults.CheckWhole(field + "episode_length", made.episode_length(), 1, 1000000);
    faults.CheckWhole(field + "observation_size", made.observation_size(), 1, 65536);
    faults.CheckWhole(field + "action_size", made.action_size(), 1, 65536);
    const int64_t steps = model.world_model().rollout_steps();
    if (steps > 1 && made.episode_length() > 0 && made.episode_length() < steps) {
      faults.Add(field + "episode_length", absl::StrCat(made.episode_length()),
                 absl::StrCat("at least model.world_model.rollout_steps, ", steps));
    }
  } else if (data.has_tokens()) {
    const std::string field = "dataset.synthetic.tokens.";
    faults.CheckWhole(field + "size", data.tokens().size(), 1024, 1000000000000);
    faults.CheckWhole(field + "vocabulary_size", data.tokens().vocabulary_size(), 2, 1048576);
  } else if (data.has_maps()) {
    const std::string field = "dataset.synthetic.maps.";
    faults.CheckWhole(field + "maps", data.maps().maps(), 2, 10000000);
    const int64_t size = data.maps().size();
    if (size != 0 && (size < 8 || size > 1024 || (size & (size - 1)) != 0)) {
      faults.Add(field + "size", absl::StrCat(size), "a power of two from 8 to 1024");
    }
  } else {
    faults.Add("dataset.synthetic", "",
               "required; give it one kind of data: trajectories, tokens or maps");
  }
  CheckHoldout("dataset.synthetic", data.holdout_fraction(), faults);
}

void CheckKind(const JobSpec& spec, Faults& faults) {
  const DatasetSpec& data = spec.dataset();
  switch (data.kind_case()) {
    case DatasetSpec::kTrajectories:
      faults.CheckPath("dataset.trajectories.path", data.trajectories().path(),
                       "an .npz, .jsonl or .safetensors file", {".npz", ".jsonl", ".safetensors"});
      return CheckHoldout("dataset.trajectories", data.trajectories().holdout_fraction(), faults);
    case DatasetSpec::kReplay:
      faults.CheckPath("dataset.replay.path", data.replay().path(), "the folder of a replay buffer",
                       {});
      return CheckHoldout("dataset.replay", data.replay().holdout_fraction(), faults);
    case DatasetSpec::kTokens:
      faults.CheckPath("dataset.tokens.path", data.tokens().path(), "a .bin or .tokens file",
                       {".bin", ".tokens"});
      return CheckHoldout("dataset.tokens", data.tokens().holdout_fraction(), faults);
    case DatasetSpec::kArrays:
      faults.CheckPath("dataset.arrays.path", data.arrays().path(),
                       "an .npz, .safetensors or .npy file", {".npz", ".safetensors", ".npy"});
      return CheckHoldout("dataset.arrays", data.arrays().holdout_fraction(), faults);
    case DatasetSpec::kSynthetic:
      return CheckSynthetic(spec.model(), data.synthetic(), faults);
    case DatasetSpec::KIND_NOT_SET:
      return faults.Add("dataset", "",
                        "required; give it one kind of dataset: trajectories, replay, tokens, "
                        "arrays or synthetic");
  }
}

void CheckSampling(const DatasetSpec& data, bool use_ddp, Faults& faults) {
  const training::v1::SamplingSpec& sampling = data.sampling();
  const bool prioritized = sampling.kind() == training::v1::SAMPLING_KIND_PRIORITIZED;
  if (prioritized && !data.has_replay() && data.kind_case() != DatasetSpec::KIND_NOT_SET) {
    faults.Add("dataset.sampling.kind", "",
               "PRIORITIZED needs data with priorities; use dataset.replay, or UNIFORM");
  }
  if (prioritized && use_ddp) {
    faults.Add(
        "dataset.sampling.kind", "",
        "PRIORITIZED conflicts with training.use_ddp true, for each rank would go by the losses "
        "of its own examples; give UNIFORM, or remove training.use_ddp");
  }
  const std::pair<const char*, double> exponents[] = {
      {"dataset.sampling.priority_exponent", sampling.priority_exponent()},
      {"dataset.sampling.importance_exponent", sampling.importance_exponent()}};
  for (const auto& [field, value] : exponents) {
    faults.CheckNumber(field, value, value > 0 && value <= 1, "above 0, at most 1");
    if (prioritized || value == 0) continue;
    faults.Add(field, "",
               absl::StrCat(FormatNumber(value),
                            " conflicts with dataset.sampling.kind UNIFORM, "
                            "which has no exponents; remove one of the two"));
  }
}

}  // namespace

void FillDataset(JobSpec& spec) {
  if (spec.dataset().kind_case() == DatasetSpec::KIND_NOT_SET) return;
  DatasetSpec& data = *spec.mutable_dataset();
  switch (data.kind_case()) {
    case DatasetSpec::kTrajectories:
      FillHoldout(*data.mutable_trajectories());
      break;
    case DatasetSpec::kReplay:
      FillHoldout(*data.mutable_replay());
      break;
    case DatasetSpec::kTokens:
      FillHoldout(*data.mutable_tokens());
      if (data.tokens().type() == training::v1::TOKEN_TYPE_UNSPECIFIED) {
        data.mutable_tokens()->set_type(training::v1::TOKEN_TYPE_UINT16);
      }
      break;
    case DatasetSpec::kArrays:
      FillHoldout(*data.mutable_arrays());
      break;
    case DatasetSpec::kSynthetic:
      FillSynthetic(spec.model(), *data.mutable_synthetic());
      break;
    case DatasetSpec::KIND_NOT_SET:
      break;
  }
  if (data.memory_limit_bytes() == 0) data.set_memory_limit_bytes(kMemoryLimit);
  training::v1::SamplingSpec& sampling = *data.mutable_sampling();
  if (sampling.kind() == training::v1::SAMPLING_KIND_UNSPECIFIED) {
    sampling.set_kind(training::v1::SAMPLING_KIND_UNIFORM);
  }
  if (sampling.kind() == training::v1::SAMPLING_KIND_PRIORITIZED) {
    if (sampling.priority_exponent() == 0) sampling.set_priority_exponent(0.6);
    if (sampling.importance_exponent() == 0) sampling.set_importance_exponent(0.4);
  }
}

void CheckDataset(const JobSpec& spec, Faults& faults) {
  CheckKind(spec, faults);
  CheckSampling(spec.dataset(), spec.training().use_ddp(), faults);
  faults.CheckWhole("dataset.memory_limit_bytes", spec.dataset().memory_limit_bytes(), kLeastMemory,
                    kMaxInt64);
}

}  // namespace genesis
