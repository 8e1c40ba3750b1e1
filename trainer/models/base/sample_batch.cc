#include "trainer/models/base/sample_batch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "trainer/checkpoint/element_scalar.h"

namespace genesis {

absl::StatusOr<BatchMemory> MakeBatchMemory(const Dataset& dataset, int64_t examples, bool pinned) {
  BatchMemory memory;
  for (const Field& field : dataset.fields()) {
    std::vector<int64_t> sizes = {examples};
    sizes.insert(sizes.end(), field.shape.begin(), field.shape.end());
    const auto options = torch::TensorOptions(ToScalarType(field.type)).pinned_memory(pinned);
    const auto [slot, fresh] =
        memory.batch.fields.emplace(field.name, torch::empty(sizes, options));
    if (!fresh) {
      return absl::InternalError(absl::StrCat("the dataset has two fields ", QuoteValue(field.name),
                                              "; accepted: each name once"));
    }
    // Dataset::Gather writes into the tensor that the batch keeps.
    memory.targets.push_back(static_cast<std::byte*>(slot->second.data_ptr()));
  }
  return memory;
}

absl::StatusOr<Batch> SampleBatch(const Dataset& dataset, const std::vector<int64_t>& examples) {
  absl::StatusOr<BatchMemory> memory =
      MakeBatchMemory(dataset, static_cast<int64_t>(examples.size()), /*pinned=*/false);
  if (!memory.ok()) return memory.status();
  absl::Status status = dataset.Gather(examples, memory->targets);
  if (!status.ok()) return status;
  memory->batch.examples = examples;
  return std::move(memory->batch);
}

}  // namespace genesis
