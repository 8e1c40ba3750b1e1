#pragma once

#include <string>
#include <vector>

#include "config/job/faults.h"
#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/model.pb.h"

namespace genesis {

// A kind of model that jobs can train: a field of the oneof ModelSpec.kind. The table of kinds is
// in job_spec_model.cc. The worker builds models in trainer/models/build_model.cc.
struct ModelKind {
  training::v1::ModelSpec::KindCase kind;
  std::vector<std::string> datasets;  // Accepted datasets, e.g. "dataset.tokens".
  // Sets the defaults of the model's fields.
  void (*fill)(training::v1::ModelSpec& model);
  // Adds errors of the model and of conflicts with other sections.
  void (*check)(const training::v1::JobSpec& spec, Faults& faults);
  // Returns the path of the user's module. Null for a built-in model.
  const std::string& (*path)(const training::v1::ModelSpec& model) = nullptr;
  // Name of the main array in a file that contains only one.
  const char* array = "input";

  std::string name() const;  // E.g. "world_model", as in job files.
};

const std::vector<ModelKind>& ModelKinds();
// Returns null if the model has no kind.
const ModelKind* FindKind(const training::v1::ModelSpec& model);

// Returns the path of the user's module (model.<kind>.path); empty for a built-in model.
std::string ModuleFile(const training::v1::ModelSpec& model);

// Returns, e.g., "give it one kind of model: world_model, transformer or exported".
std::string ModelKindsText();

}  // namespace genesis
