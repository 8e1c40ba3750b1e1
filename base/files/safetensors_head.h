#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// One tensor of a .safetensors file.
struct SafetensorsPart {
  std::string name;  // UTF-8.
  std::string type;  // "F32", "BF16", "I64", ...
  std::vector<int64_t> shape;
  uint64_t size = 0;  // Bytes.
};

// Returns the beginning of a .safetensors file: the length of its header and the header. The
// elements of `parts` follow in the same order. They are aligned if the types are ordered by size.
std::string SafetensorsHead(const std::vector<SafetensorsPart>& parts,
                            const std::map<std::string, std::string>& metadata);

// Returns the beginning of a file of weights with those tensors for which `takes` returns true.
std::string WeightsHead(const training::v1::PublishedWeights& weights,
                        const std::function<bool(const training::v1::PublishedTensor&)>& takes);

// Returns the elements of each tensor of a file of weights, in the order of weights.tensors().
// Requires that the file contains every tensor of `weights`.
std::vector<std::string_view> WeightsElements(const training::v1::PublishedWeights& weights,
                                              std::string_view file);

// WeightsVersion.number is the claim of the attempt times this, plus a number within the attempt.
inline constexpr int64_t kVersionsOfAttempt = 1'000'000'000;

}  // namespace genesis
