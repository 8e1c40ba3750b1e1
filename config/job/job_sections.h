#pragma once

#include <google/protobuf/map.h>

#include <string>

#include "config/job/faults.h"
#include "config/job/job_spec.h"
#include "genesis/training/v1/job.pb.h"

// The sections of a job file, each in its own file (job_spec_<section>.cc). Fill sets defaults.
// Check finds all errors: single fields that violate their rule in the proto (field_rules.h), and
// conflicts between fields and between sections.
namespace genesis {

void FillModel(training::v1::JobSpec& spec);
void CheckModel(const training::v1::JobSpec& spec, Faults& faults);

// Call after FillModel: the vocabulary of synthetic tokens is the model's by default.
void FillDataset(training::v1::JobSpec& spec);
void CheckDataset(const training::v1::JobSpec& spec, Faults& faults);

// Sections training, evaluation, optimizer, checkpoint and trace.
void FillTraining(training::v1::JobSpec& spec);
void CheckTraining(const training::v1::JobSpec& spec, Faults& faults);

// FillDistributed creates a missing section only if training.use_ddp is set.
void FillDistributed(training::v1::JobSpec& spec);
void CheckDistributed(const training::v1::JobSpec& spec, Faults& faults);

// Sections precision and rehearsals.
void FillPrecision(training::v1::JobSpec& spec, const LossScaleSettings& loss_scale);
void CheckPrecision(const training::v1::JobSpec& spec, Faults& faults);

// Section scheduling, and the checkpoint or weights that a job begins with.
void FillScheduling(training::v1::JobSpec& spec);
void CheckScheduling(const training::v1::JobSpec& spec, Faults& faults);
// Checks the labels of a job, also for UpdateJob. `path` is the path of the field.
void CheckLabels(const std::string& path,
                 const google::protobuf::Map<std::string, std::string>& labels, Faults& faults);

}  // namespace genesis
