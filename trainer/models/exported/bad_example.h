#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "genesis/training/v1/job.pb.h"
#include "trainer/models/base/model.h"

namespace genesis {

// A value of a batch that a user's module cannot process, although it can process the example with
// another value of that field.
struct BadExample {
  int64_t row = 0;    // Row in the batch.
  std::string field;  // Name of the field.
  std::string where;  // For messages: "the field label of example 12 (row 3 of its batch) is 17".
  Batch other;        // The example alone, with zeros in the field.
};

// Finds a bad example by bisection. `fails` returns whether a batch of any size throws. Returns
// nullopt if the batch does not fail, if only several examples together fail, or if an example
// fails with any value.
std::optional<BadExample> FindBadExample(const Batch& batch, const std::vector<std::string>& fields,
                                         const std::function<bool(const Batch&)>& fails);

// Returns a batch of `size` that repeats the rows of this one.
Batch Repeated(const Batch& batch, int64_t size);

// Returns the cure for a bad value, for fields of numbers and of indices. Messages append it to
// BadExample::where.
std::string CureOf(const BadExample& bad);

// Returns the path of a job's data, or "the dataset", for error messages.
std::string DataPath(const training::v1::JobSpec& spec);

}  // namespace genesis
