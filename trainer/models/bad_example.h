#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "genesis/training/v1/job.pb.h"
#include "trainer/models/model.h"

namespace genesis {

// One value of a batch that a user's module cannot take, while it can take the example with another
// value of that field.
struct BadExample {
  int64_t row = 0;    // Of the batch.
  std::string field;  // Its name.
  std::string where;  // "the field label of example 12 (row 3 of its batch) is 17".
  Batch other;        // The example alone, with zeros in the field.
};

// Looks for one by halves. `fails` tries a batch of any size and says whether that throws. nullopt
// where the batch does not fail, where only several examples together do, or any example alone.
std::optional<BadExample> FindBadExample(const Batch& batch, const std::vector<std::string>& fields,
                                         const std::function<bool(const Batch&)>& fails);

// A batch of `size`, the rows of this one over and over.
Batch Repeated(const Batch& batch, int64_t size);

// The cure for one in a field of numbers or of indices, after BadExample::where.
std::string CureOf(const BadExample& bad);

// The file that a job's examples come from, for messages.
std::string DataPath(training::v1::JobSpec spec);

}  // namespace genesis
