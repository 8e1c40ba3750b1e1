#pragma once

#include <string>
#include <vector>

#include "genesis/training/v1/job.pb.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "trainer/models/base/model.h"

namespace genesis {

// Lines of a job's log, for people.

// "model: 210435 trainable parameters in 14 tensors", and which of them the loss did not depend on
// when the model was tried: autograd leaves those alone without a word, so that a layer that
// forward forgets looks like one that learns nothing. The first six are named.
std::string ModelLine(const Model& model);

// ModelLine(), and for a model without short batches the number of examples that the job leaves
// out: "batches: of 8 examples alone, ...".
std::vector<std::string> ModelLines(const Model& model, const Dataset& dataset, int64_t batch_size,
                                    int ranks);

// "training complete: job <id>, <n> steps, loss <x>, ...". Requires the progress of `finished`.
std::string CompletionLine(const std::string& job_id, const training::v1::Finished& finished,
                           const training::v1::Evaluation& evaluation);

}  // namespace genesis
