#pragma once

#include "absl/status/status.h"
#include "genesis/training/v1/job.pb.h"
#include "trainer/data/dataset.h"
#include "trainer/models/exported/exported_file.h"

namespace genesis {

// Sets training.batch_size of a job that trains an exported module and leaves it unset: to the only
// batch size that its file supports, or the default. BuildModel handles an unreadable file and a
// job with another size.
void FillBatchSize(training::v1::JobSpec& spec);

// Returns INVALID_ARGUMENT if the file supports only one batch size, and the job has another, may
// shrink its batches, or trains on or holds out fewer examples than a batch.
absl::Status CheckBatchSize(const training::v1::JobSpec& spec, const Dataset& dataset,
                            const ExportedFile& file);

}  // namespace genesis
