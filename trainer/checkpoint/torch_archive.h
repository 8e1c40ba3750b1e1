#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "trainer/checkpoint/value.h"

namespace genesis {

// Reads the values in a file of torch.save or of this trainer. Executes nothing in the file and
// checks every record against its checksum before use. Tensors that share a storage in the file
// share it in memory too, and none extends outside of it. Messages begin with the path: NOT_FOUND,
// DATA_LOSS for a damaged file, INVALID_ARGUMENT for another kind of file (a TorchScript module, a
// file of torch before 1.6), with the cure in Python.
absl::StatusOr<Value> ReadTorchArchive(const std::string& path);

// Returns INVALID_ARGUMENT with a cure if the file is in the format of torch.save before 1.6.
// Otherwise returns `fault`, the error of opening the file.
absl::Status ExplainForeignFile(const std::string& path, const absl::Status& fault);

}  // namespace genesis
