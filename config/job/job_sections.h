#pragma once

#include <google/protobuf/map.h>

#include <string>

#include "config/job/faults.h"
#include "config/job/job_spec.h"
#include "genesis/training/v1/job.pb.h"

// The sections of a job file, each in a file of its own (job_spec_<section>.cc). Fill writes the
// defaults out, Check finds every fault: those of one field as its rule in the proto says
// (field_rules.h), and conflicts between fields and sections.
namespace genesis {

void FillModel(training::v1::JobSpec& spec);
void CheckModel(const training::v1::JobSpec& spec, Faults& faults);

// After FillModel: some defaults are the model's.
void FillDataset(training::v1::JobSpec& spec);
void CheckDataset(const training::v1::JobSpec& spec, Faults& faults);

// training, evaluation, optimizer, checkpoint and trace. After FillModel.
void FillTraining(training::v1::JobSpec& spec);
void CheckTraining(const training::v1::JobSpec& spec, Faults& faults);

// After FillTraining, whose use_ddp asks for several ranks.
void FillDistributed(training::v1::JobSpec& spec);
void CheckDistributed(const training::v1::JobSpec& spec, Faults& faults);

// precision and rehearsals.
void FillPrecision(training::v1::JobSpec& spec, const LossScaleSettings& loss_scale);
void CheckPrecision(const training::v1::JobSpec& spec, Faults& faults);

// scheduling and start_from_checkpoint.
void FillScheduling(training::v1::JobSpec& spec);
void CheckScheduling(const training::v1::JobSpec& spec, Faults& faults);
// A part of it that UpdateJob takes too; `path` names the field.
void CheckLabels(const std::string& path,
                 const google::protobuf::Map<std::string, std::string>& labels, Faults& faults);

}  // namespace genesis
