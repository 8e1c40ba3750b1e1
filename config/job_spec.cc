#include "config/job_spec.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "config/precision.h"

namespace genesis {

using training::v1::JobSpec;
using training::v1::OptimizerSpec;
using training::v1::PrecisionSpec;
using training::v1::TrainingSpec;

const char kAcceptedPrecisionModes[] =
    "FP32, MIXED_FP16, MIXED_BF16 (FP16, BF16 and AUTO are not trained by this version)";

namespace {

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

// Collects faults. In each check 0 is fine where it stands for the default.
class Faults {
 public:
  // min to max; with max == kMaxInt64 just "min or more".
  void CheckWhole(const char* path, int64_t value, int64_t min, int64_t max) {
    if (value == 0 || (value >= min && value <= max)) return;
    Add(path, absl::StrCat(value),
        max == kMaxInt64 ? absl::StrCat(">= ", min) : absl::StrCat(min, " to ", max));
  }

  // `fine` is whether a finite value other than 0 is in range.
  void CheckNumber(const char* path, double value, bool fine, const char* accepted) {
    if (value == 0 || (std::isfinite(value) && fine)) return;
    Add(path, FormatNumber(value), accepted);
  }

  void Add(std::string path, std::string value, std::string accepted) {
    FieldError error;
    error.path = std::move(path);
    error.value = std::move(value);
    error.accepted = std::move(accepted);
    errors_.push_back(std::move(error));
  }

  std::vector<FieldError> Take() { return std::move(errors_); }

 private:
  std::vector<FieldError> errors_;
};

void CheckModel(const JobSpec& spec, Faults& faults) {
  if (!spec.model().has_world_model()) {
    faults.Add("model", "", "required; give it one kind of model: world_model");
    return;
  }
  const training::v1::WorldModelSpec& model = spec.model().world_model();
  faults.CheckWhole("model.world_model.hidden_size", model.hidden_size(), 1, 16384);
  faults.CheckWhole("model.world_model.latent_size", model.latent_size(), 1, 16384);
}

void CheckDatasetPath(const std::string& path, Faults& faults) {
  constexpr char kField[] = "dataset.trajectories.path";
  const std::vector<std::string> parts = absl::StrSplit(path, '/');
  if (path.empty()) {
    faults.Add(kField, "", "required; give the path of an .npz file below the dataset root");
  } else if (absl::StrContains(path, '\0')) {
    faults.Add(kField, QuoteValue(path), "a path without a NUL byte");
  } else if (std::find(parts.begin(), parts.end(), "..") != parts.end()) {
    faults.Add(kField, QuoteValue(path),
               "a path without \"..\"; it may not leave the dataset root");
  } else if (!absl::EndsWith(path, ".npz")) {
    faults.Add(kField, QuoteValue(path), "a path that ends in .npz");
  }
}

void CheckDataset(const JobSpec& spec, Faults& faults) {
  if (!spec.dataset().has_trajectories()) {
    faults.Add("dataset", "", "required; give it one kind of dataset: trajectories");
    return;
  }
  const training::v1::TrajectoryFileSpec& data = spec.dataset().trajectories();
  CheckDatasetPath(data.path(), faults);
  const double part = data.holdout_fraction();
  faults.CheckNumber("dataset.trajectories.holdout_fraction", part, part > 0 && part <= 0.5,
                     "above 0, at most 0.5");
}

void CheckTraining(const TrainingSpec& training, Faults& faults) {
  if (training.max_steps() != 0 && training.epochs() != 0) {
    faults.Add("training.max_steps", "",
               absl::StrCat(training.max_steps(), " conflicts with training.epochs ",
                            training.epochs(), "; give one of the two"));
  } else if (training.max_steps() == 0 && training.epochs() == 0) {
    faults.Add("training", "",
               "its length is required; give training.max_steps (1 to 1000000000000) or "
               "training.epochs (1 to 1000000)");
  }
  faults.CheckWhole("training.max_steps", training.max_steps(), 1, 1'000'000'000'000);
  faults.CheckWhole("training.epochs", training.epochs(), 1, 1'000'000);
  faults.CheckWhole("training.batch_size", training.batch_size(), 1, 1048576);
  faults.CheckWhole("training.gradient_accumulation_steps", training.gradient_accumulation_steps(),
                    1, 65536);
  const double norm = training.max_grad_norm();
  faults.CheckNumber("training.max_grad_norm", norm, norm > 0 || norm == -1,
                     "a finite number > 0, or -1 for no clipping");
}

void CheckOptimizer(const OptimizerSpec& optimizer, Faults& faults) {
  constexpr char kPositive[] = "a finite number > 0";
  constexpr char kDecay[] = "above 0 and below 1, or -1 for 0";
  const auto is_decay = [](double x) { return x == -1 || (x > 0 && x < 1); };
  faults.CheckNumber("optimizer.learning_rate", optimizer.learning_rate(),
                     optimizer.learning_rate() > 0, kPositive);
  faults.CheckNumber("optimizer.beta1", optimizer.beta1(), is_decay(optimizer.beta1()), kDecay);
  faults.CheckNumber("optimizer.beta2", optimizer.beta2(), is_decay(optimizer.beta2()), kDecay);
  faults.CheckNumber("optimizer.epsilon", optimizer.epsilon(), optimizer.epsilon() > 0, kPositive);
  const double weight_decay = optimizer.weight_decay();
  faults.CheckNumber("optimizer.weight_decay", weight_decay, weight_decay > 0 || weight_decay == -1,
                     "a finite number > 0, or -1 for no decay");
}

// A loss scale beside a mode that has none: one of the two is a mistake, and only the user knows
// which, so both places are named.
void CheckLossScaleConflicts(const PrecisionSpec& precision, Faults& faults) {
  const auto check = [&](const char* path, double value) {
    if (value == 0) return;
    faults.Add(path, "",
               absl::StrCat(FormatNumber(value), " conflicts with precision.mode ",
                            PrecisionName(precision.mode()),
                            ", which has no loss scale; remove one of the two"));
  };
  check("precision.loss_scale", precision.loss_scale());
  check("precision.growth_factor", precision.growth_factor());
  check("precision.backoff_factor", precision.backoff_factor());
  check("precision.growth_interval", static_cast<double>(precision.growth_interval()));
}

void CheckPrecision(const PrecisionSpec& precision, Faults& faults) {
  switch (precision.mode()) {
    case training::v1::PRECISION_MODE_FP32:
    case training::v1::PRECISION_MODE_MIXED_BF16:
      CheckLossScaleConflicts(precision, faults);
      return;
    case training::v1::PRECISION_MODE_UNSPECIFIED:
    case training::v1::PRECISION_MODE_MIXED_FP16:
      break;
    default:
      faults.Add("precision.mode", PrecisionName(precision.mode()), kAcceptedPrecisionModes);
  }
  // The scale is a float on the device: what overflows or vanishes there is no scale.
  const float scale = static_cast<float>(precision.loss_scale());
  faults.CheckNumber("precision.loss_scale", precision.loss_scale(),
                     scale > 0 && std::isfinite(scale), "a finite float > 0");
  const double growth = precision.growth_factor();
  faults.CheckNumber("precision.growth_factor", growth, growth > 1, "a finite number > 1");
  const double backoff = precision.backoff_factor();
  faults.CheckNumber("precision.backoff_factor", backoff, backoff > 0 && backoff < 1,
                     "above 0 and below 1");
  faults.CheckWhole("precision.growth_interval", precision.growth_interval(), 1, kMaxInt64);
}

void FillLossScale(PrecisionSpec& precision, const LossScaleSettings& loss_scale) {
  if (precision.mode() != training::v1::PRECISION_MODE_UNSPECIFIED &&
      precision.mode() != training::v1::PRECISION_MODE_MIXED_FP16) {
    return;
  }
  if (precision.loss_scale() == 0) precision.set_loss_scale(loss_scale.initial);
  if (precision.growth_factor() == 0) precision.set_growth_factor(loss_scale.growth_factor);
  if (precision.backoff_factor() == 0) precision.set_backoff_factor(loss_scale.backoff_factor);
  if (precision.growth_interval() == 0) precision.set_growth_interval(loss_scale.growth_interval);
}

}  // namespace

JobSpec WithDefaults(JobSpec spec, const LossScaleSettings& loss_scale) {
  if (spec.model().has_world_model()) {
    training::v1::WorldModelSpec& model = *spec.mutable_model()->mutable_world_model();
    if (model.hidden_size() == 0) model.set_hidden_size(256);
    if (model.latent_size() == 0) model.set_latent_size(64);
  }
  if (spec.dataset().has_trajectories()) {
    training::v1::TrajectoryFileSpec& data = *spec.mutable_dataset()->mutable_trajectories();
    if (data.holdout_fraction() == 0) data.set_holdout_fraction(0.1);
  }
  TrainingSpec& training = *spec.mutable_training();
  if (training.batch_size() == 0) training.set_batch_size(128);
  if (training.gradient_accumulation_steps() == 0) training.set_gradient_accumulation_steps(1);
  if (training.max_grad_norm() == 0) training.set_max_grad_norm(1.0);

  OptimizerSpec& optimizer = *spec.mutable_optimizer();
  if (optimizer.learning_rate() == 0) optimizer.set_learning_rate(1e-3);
  if (optimizer.beta1() == 0) optimizer.set_beta1(0.9);
  if (optimizer.beta2() == 0) optimizer.set_beta2(0.999);
  if (optimizer.epsilon() == 0) optimizer.set_epsilon(1e-8);
  if (optimizer.weight_decay() == 0) optimizer.set_weight_decay(0.01);

  FillLossScale(*spec.mutable_precision(), loss_scale);
  training::v1::CheckpointSpec& checkpoint = *spec.mutable_checkpoint();
  if (checkpoint.keep_last() == 0) checkpoint.set_keep_last(3);
  if (!spec.has_max_restarts()) spec.set_max_restarts(3);
  return spec;
}

std::vector<FieldError> ValidateJobSpec(const JobSpec& spec) {
  Faults faults;
  CheckModel(spec, faults);
  CheckDataset(spec, faults);
  CheckTraining(spec.training(), faults);
  CheckOptimizer(spec.optimizer(), faults);
  CheckPrecision(spec.precision(), faults);
  faults.CheckWhole("checkpoint.every_steps", spec.checkpoint().every_steps(), 0, kMaxInt64);
  faults.CheckWhole("checkpoint.keep_last", spec.checkpoint().keep_last(), 1, 1000);
  faults.CheckWhole("max_restarts", spec.max_restarts(), 0, 1000);
  return faults.Take();
}

std::string JobIdFault(const std::string& id) {
  constexpr size_t kLongest = 63;
  constexpr char kAccepted[] =
      "; accepted: 1 to 63 lower-case letters, digits and '-', the first no '-'";
  const bool characters = std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
  });
  if (!id.empty() && id.size() <= kLongest && id.front() != '-' && characters) return "";
  return absl::StrCat("job_id is ", QuoteValue(id), kAccepted);
}

}  // namespace genesis
