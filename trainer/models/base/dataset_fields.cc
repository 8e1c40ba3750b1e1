#include "trainer/models/base/dataset_fields.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace genesis {
namespace {

std::string Describe(const Field& field) {
  return absl::StrCat(field.name, " ", SizesText(field.shape), " ", ElementTypeName(field.type));
}

// Returns the field of the dataset in the job file, such as "dataset.arrays", for error messages.
std::string Place(const training::v1::DatasetSpec& spec) {
  const auto* const kind = spec.GetReflection()->GetOneofFieldDescriptor(
      spec, spec.GetDescriptor()->FindOneofByName("kind"));
  return kind == nullptr ? "the dataset" : absl::StrCat("dataset.", kind->name());
}

bool Fits(const std::vector<int64_t>& shape, const std::vector<Dimension>& wanted) {
  return std::equal(
      shape.begin(), shape.end(), wanted.begin(), wanted.end(),
      [](int64_t size, const Dimension& d) { return d.size == 0 ? size >= 1 : size == d.size; });
}

}  // namespace

const Field* FindField(const Dataset& dataset, const std::string& name) {
  for (const Field& field : dataset.fields()) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

DatasetFields::DatasetFields(const training::v1::JobSpec& spec, const Dataset& dataset,
                             std::string needed_by)
    : dataset_(dataset), needed_by_(std::move(needed_by)), place_(Place(spec.dataset())) {}

absl::StatusOr<std::vector<int64_t>> DatasetFields::Shape(
    const std::string& name, const std::vector<Dimension>& shape,
    const std::vector<ElementType>& types) const {
  const Field* const field = FindField(dataset_, name);
  if (field != nullptr && Fits(field->shape, shape) &&
      std::find(types.begin(), types.end(), field->type) != types.end()) {
    return field->shape;
  }
  const std::string wanted = absl::StrJoin(shape, ", ", [](std::string* out, const Dimension& d) {
    absl::StrAppend(out, d.size == 0 ? d.letter : absl::StrCat(d.size));
  });
  const std::string formats = absl::StrJoin(types, " or ", [](std::string* out, ElementType type) {
    absl::StrAppend(out, ElementTypeName(type));
  });
  return absl::InvalidArgumentError(absl::StrCat(
      needed_by_, " needs the field ", name, " [", wanted, "] of ", formats, "; ",
      field == nullptr ? WhatThereIs() : absl::StrCat(place_, " has ", Describe(*field))));
}

absl::StatusOr<ColumnStatistics> DatasetFields::Statistics(const std::string& name,
                                                           int64_t columns) const {
  const auto found = dataset_.statistics().find(name);
  const auto size = static_cast<size_t>(columns);
  if (found != dataset_.statistics().end() && found->second.mean.size() == size &&
      found->second.deviation.size() == size) {
    return found->second;
  }
  return absl::InvalidArgumentError(absl::StrCat(needed_by_, " needs mean and deviation of the ",
                                                 columns, " columns of ", name, "; ", place_,
                                                 " has none, or of another number of columns"));
}

std::string DatasetFields::WhatThereIs() const {
  return absl::StrCat(place_, " has ",
                      absl::StrJoin(dataset_.fields(), ", ", [](std::string* out, const Field& f) {
                        absl::StrAppend(out, Describe(f));
                      }));
}

std::string SizesText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace genesis
