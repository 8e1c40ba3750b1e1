#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/checkpoint/value.h"

namespace genesis {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Which weights of a checkpoint: the model's, or their moving average where the file has one.
enum class WeightsKind { kModel, kAverage };

// The weights in a file that somebody saved, contiguous, on the CPU, of whatever type, under the
// names they have there. Accepted: torch.save of a state dict, of a dict with model_state_dict or
// state_dict inside, a checkpoint of ours, and .safetensors; told apart by content. Nothing in the
// file is executed. Messages name path, entry, what was found and what is accepted.
absl::StatusOr<NamedTensors> ReadWeights(const std::string& path,
                                         WeightsKind kind = WeightsKind::kModel);

// Writes the weights of a checkpoint (or of anything ReadWeights takes) as .safetensors: what
// safetensors.torch.load_file opens. Tensors that share a storage are written once each.
absl::Status ExportSafetensors(const std::string& from, const std::string& to, WeightsKind kind);

}  // namespace genesis
