#include "trainer/models/sample_batch.h"

#include <cstddef>

#include "trainer/checkpoint/element_scalar.h"

namespace genesis {
absl::StatusOr<Batch> SampleBatch(const Dataset& dataset, const std::vector<int64_t>& examples) {
  Batch batch;
  batch.examples = examples;
  std::vector<std::byte*> out;
  for (const Field& field : dataset.fields()) {
    std::vector<int64_t> sizes = field.shape;
    sizes.insert(sizes.begin(), batch.size());
    const torch::Tensor tensor = torch::empty(sizes, ToScalarType(field.type));
    out.push_back(static_cast<std::byte*>(tensor.data_ptr()));
    batch.fields[field.name] = tensor;
  }
  if (absl::Status status = dataset.Gather(examples, out); !status.ok()) return status;
  return batch;
}

}  // namespace genesis
