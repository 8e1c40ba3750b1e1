#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "trainer/checkpoint/value.h"

namespace genesis {

// The values in a file of torch.save, ours or Python's. Nothing in the file is executed; every
// record is checked against its checksum before use; tensors that share a storage share it here
// too, and none reaches outside. Messages begin with the path: NOT_FOUND, DATA_LOSS for a damaged
// file, INVALID_ARGUMENT for one that holds something else (a TorchScript module, a file of torch
// before 1.6), with what to do in Python.
absl::StatusOr<Value> ReadTorchArchive(const std::string& path);

// `fault` of opening a file, or what the file is instead when its beginning tells.
absl::Status ExplainForeignFile(const std::string& path, const absl::Status& fault);

}  // namespace genesis
