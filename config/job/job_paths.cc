#include "config/job/job_paths.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "config/job/model_kinds.h"
#include "google/protobuf/descriptor.h"

namespace genesis {

std::vector<JobPath> PathsOf(const training::v1::JobSpec& spec) {
  std::vector<JobPath> paths;
  const training::v1::ModelSpec& model = spec.model();
  if (const ModelKind* const kind = FindKind(model); kind != nullptr && kind->path != nullptr) {
    paths.push_back({"model." + kind->name() + ".path", kind->path(model)});
  }
  if (!model.initial_weights().empty()) {
    paths.push_back({"model.initial_weights", model.initial_weights()});
  }
  const training::v1::DatasetSpec& data = spec.dataset();
  if (data.has_trajectories()) {
    paths.push_back({"dataset.trajectories.path", data.trajectories().path()});
  }
  if (data.has_replay()) {
    paths.push_back({"dataset.replay.path", data.replay().path(), true});
  }
  if (data.has_tokens()) {
    paths.push_back({"dataset.tokens.path", data.tokens().path()});
  }
  if (data.has_arrays()) {
    paths.push_back({"dataset.arrays.path", data.arrays().path()});
  }
  if (!spec.precision().baseline_file().empty()) {
    paths.push_back({"precision.baseline_file", spec.precision().baseline_file()});
  }
  return paths;
}

void SetPath(training::v1::JobSpec& spec, const std::string& field, const std::string& path) {
  const std::vector<std::string> names = absl::StrSplit(field, '.');
  google::protobuf::Message* message = &spec;
  for (const std::string& name : names) {
    const google::protobuf::FieldDescriptor& named =
        *message->GetDescriptor()->FindFieldByName(name);
    const google::protobuf::Reflection& reflection = *message->GetReflection();
    if (named.message_type() == nullptr) return reflection.SetString(message, &named, path);
    message = reflection.MutableMessage(message, &named);
  }
}

void PutPathsBelow(const std::string& datasets_root, training::v1::JobSpec& spec) {
  for (const JobPath& named : PathsOf(spec)) {
    SetPath(spec, named.field, absl::StrCat(datasets_root, "/", named.path));
  }
}

}  // namespace genesis
