#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/checkpoint/value.h"

namespace genesis {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Selects the model's weights or, if the file has one, their moving average.
enum class WeightsKind { kModel, kAverage };

// Reads the weights of a file, contiguous, on the CPU, in their own types and under their names in
// the file. Accepts torch.save of a state dict, or of a dict with model_state_dict or state_dict, a
// checkpoint of this trainer, and .safetensors, distinguished by content. Executes nothing in the
// file. Messages name path, entry, the found value and the accepted ones.
absl::StatusOr<NamedTensors> ReadWeights(const std::string& path,
                                         WeightsKind kind = WeightsKind::kModel);

// Writes the weights of a checkpoint (or of any file that ReadWeights accepts) as .safetensors, for
// safetensors.torch.load_file. Tensors that share a storage are each written separately.
absl::Status ExportSafetensors(const std::string& from, const std::string& to, WeightsKind kind);

}  // namespace genesis
