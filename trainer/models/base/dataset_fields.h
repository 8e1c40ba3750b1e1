#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"

namespace genesis {

// One dimension of a field that a model needs: of a given size, or of any size and named by a
// letter.
struct Dimension {
  std::string letter;
  int64_t size = 0;  // 0 for any size.
};

// Returns the field of that name, or nullptr.
const Field* FindField(const Dataset& dataset, const std::string& name);

// A check of a model's requirements on its dataset. Messages name both: "model.world_model needs
// the field observation [O] of float32; dataset.tokens has tokens [129] int64".
//
// Owner: a scope; the dataset outlives it. Failure: INVALID_ARGUMENT.
class DatasetFields {
 public:
  // `needed_by` is the model's path in the job file, with the relevant settings.
  DatasetFields(const training::v1::JobSpec& spec, const Dataset& dataset, std::string needed_by);

  // Returns the shape of the field. `types` are the accepted formats.
  absl::StatusOr<std::vector<int64_t>> Shape(const std::string& name,
                                             const std::vector<Dimension>& shape,
                                             const std::vector<ElementType>& types) const;

  // Returns mean and deviation of a field's `columns` columns.
  absl::StatusOr<ColumnStatistics> Statistics(const std::string& name, int64_t columns) const;

  // Returns "dataset.tokens has tokens [129] int64".
  std::string WhatThereIs() const;

 private:
  const Dataset& dataset_;
  const std::string needed_by_;
  std::string place_;
};

// Returns "[3, 64, 64]".
std::string SizesText(const std::vector<int64_t>& shape);

}  // namespace genesis
