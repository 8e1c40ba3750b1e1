#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"

namespace genesis {

// One dimension of a field that a model needs: of a given size, or of any and known by a letter.
struct Dimension {
  std::string letter;
  int64_t size = 0;  // 0: any.
};

// The field of that name, or nullptr.
const Field* FindField(const Dataset& dataset, const std::string& name);

// The demands of a model on its dataset. Messages name both: "model.world_model needs the field
// observation [O] of float32; dataset.tokens has tokens [129] int64".
//
// Owner: a scope; the dataset outlives it. Failure: INVALID_ARGUMENT.
class DatasetFields {
 public:
  // `needed_by` is the model's place in the job file, with the settings that matter.
  DatasetFields(const training::v1::JobSpec& spec, const Dataset& dataset, std::string needed_by);

  // The shape of the field. `types` are the formats that are accepted.
  absl::StatusOr<std::vector<int64_t>> Shape(const std::string& name,
                                             const std::vector<Dimension>& shape,
                                             const std::vector<ElementType>& types) const;

  // Mean and deviation of a field's `columns` columns.
  absl::StatusOr<ColumnStatistics> Statistics(const std::string& name, int64_t columns) const;

  // "dataset.tokens has tokens [129] int64".
  std::string WhatThereIs() const;

 private:
  const Dataset& dataset_;
  const std::string needed_by_;
  std::string place_;
};

// "[3, 64, 64]"
std::string SizesText(const std::vector<int64_t>& shape);

}  // namespace genesis
