#include "trainer/models/sample_batch.h"

#include <cstddef>

namespace genesis {
namespace {

torch::ScalarType ScalarType(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return torch::kFloat;
    case ElementType::kFloat64:
      return torch::kDouble;
    case ElementType::kFloat16:
      return torch::kHalf;
    case ElementType::kBfloat16:
      return torch::kBFloat16;
    case ElementType::kInt64:
      return torch::kLong;
    case ElementType::kInt32:
      return torch::kInt;
    case ElementType::kInt16:
      return torch::kShort;
    case ElementType::kInt8:
      return torch::kChar;
    case ElementType::kUint8:
      return torch::kByte;
    case ElementType::kBool:
      break;
  }
  return torch::kBool;
}

}  // namespace

absl::StatusOr<Batch> SampleBatch(const Dataset& dataset, const std::vector<int64_t>& examples) {
  Batch batch;
  batch.examples = examples;
  std::vector<std::byte*> out;
  for (const Field& field : dataset.fields()) {
    std::vector<int64_t> sizes = field.shape;
    sizes.insert(sizes.begin(), batch.size());
    const torch::Tensor tensor = torch::empty(sizes, ScalarType(field.type));
    out.push_back(static_cast<std::byte*>(tensor.data_ptr()));
    batch.fields[field.name] = tensor;
  }
  if (absl::Status status = dataset.Gather(examples, out); !status.ok()) return status;
  return batch;
}

}  // namespace genesis
