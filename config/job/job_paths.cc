#include "config/job/job_paths.h"

#include "config/job/model_kinds.h"

namespace genesis {

std::vector<JobPath> PathsOf(training::v1::JobSpec& spec) {
  std::vector<JobPath> paths;
  training::v1::ModelSpec& model = *spec.mutable_model();
  if (const ModelKind* const kind = FindKind(model); kind != nullptr && kind->path != nullptr) {
    paths.push_back({"model." + kind->name() + ".path", kind->path(model)});
  }
  if (!model.initial_weights().empty()) {
    paths.push_back({"model.initial_weights", model.mutable_initial_weights()});
  }
  training::v1::DatasetSpec& data = *spec.mutable_dataset();
  if (data.has_trajectories()) {
    paths.push_back({"dataset.trajectories.path", data.mutable_trajectories()->mutable_path()});
  }
  if (data.has_replay()) {
    paths.push_back({"dataset.replay.path", data.mutable_replay()->mutable_path(), true});
  }
  if (data.has_tokens()) {
    paths.push_back({"dataset.tokens.path", data.mutable_tokens()->mutable_path()});
  }
  if (data.has_arrays()) {
    paths.push_back({"dataset.arrays.path", data.mutable_arrays()->mutable_path()});
  }
  if (!spec.precision().baseline_file().empty()) {
    paths.push_back({"precision.baseline_file", spec.mutable_precision()->mutable_baseline_file()});
  }
  return paths;
}

}  // namespace genesis
