#pragma once

#include <optional>
#include <string>
#include <vector>

#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/models/base/model.h"

namespace genesis {

// Functions that format the lines of a job's log.

// Returns "model: 210435 trainable parameters in 14 tensors", followed by the names of at most six
// parameters that did not affect the loss in a trial pass. Autograd skips those silently, so a
// layer that forward() forgets would look like one that learns nothing.
std::string ModelLine(const Model& model);

// Returns ModelLine() and, for a model that does not accept short batches, a line with the number
// of examples that the job leaves out: "batches: of 8 examples alone, ...".
std::vector<std::string> ModelLines(const Model& model, const Dataset& dataset, int64_t batch_size,
                                    int ranks);

// Returns "training complete: job <id>, <n> steps, loss <x>, ...". Requires finished.progress.
std::string CompletionLine(const std::string& job_id, const training::v1::Finished& finished,
                           const std::optional<training::v1::Evaluation>& evaluation);

}  // namespace genesis
