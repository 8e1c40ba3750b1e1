#pragma once

#include <string>
#include <vector>

#include "config/job/faults.h"
#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/model.pb.h"

namespace genesis {

// A kind of model that a job can train: a field of the oneof ModelSpec.kind. The table of kinds is
// in job_spec_model.cc; a worker builds each by its row in trainer/models/build_model.cc.
struct ModelKind {
  training::v1::ModelSpec::KindCase kind;
  std::vector<std::string> datasets;  // Datasets that it accepts: "dataset.tokens".
  // Sets the defaults.
  void (*fill)(training::v1::ModelSpec& model);
  // Adds errors of the model, and conflicts with other sections.
  void (*check)(const training::v1::JobSpec& spec, Faults& faults);
  // Returns the field that names the file of a user's own module. Null for a built-in model.
  std::string* (*path)(training::v1::ModelSpec& model) = nullptr;
  // The name of the main array in files of arrays that have only one.
  const char* array = "input";

  std::string name() const;  // Returns "world_model", as in a job file.
};

const std::vector<ModelKind>& ModelKinds();
// Returns null if the model has no kind.
const ModelKind* FindKind(const training::v1::ModelSpec& model);

// Returns the file of a user's own module (model.<kind>.path); empty for a built-in model.
std::string ModuleFile(const training::v1::ModelSpec& model);

// Returns "give it one kind of model: world_model, transformer or exported".
std::string ModelKindsText();

}  // namespace genesis
