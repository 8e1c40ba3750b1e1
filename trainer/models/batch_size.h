#pragma once

#include "absl/status/status.h"
#include "genesis/training/v1/job.pb.h"
#include "trainer/data/dataset.h"
#include "trainer/models/exported_file.h"

namespace genesis {

// Fills in training.batch_size of a job that trains an exported module and names none: the size of
// the only batches that its file takes, or the default. A file that cannot be read, and a job that
// names another size, are left to BuildModel.
void FillBatchSize(training::v1::JobSpec& spec);

// INVALID_ARGUMENT where the file takes batches of one size alone, and the job has another one, or
// the dataset no such batch to train on or held out.
absl::Status CheckBatchSize(const training::v1::JobSpec& spec, const Dataset& dataset,
                            const ExportedFile& file);

}  // namespace genesis
