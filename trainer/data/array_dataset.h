#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"

namespace genesis {

// Opens a file of named arrays [N, ...]: each is a field, in the order of the alphabet and as wide
// as in the file; the last examples are held out. Every floating-point value is checked to be
// finite once, when opened. Arrays that fit the memory limit together are kept; else Gather reads
// them. `npy_name` is the field of a .npy file.
absl::StatusOr<std::unique_ptr<Dataset>> OpenArrays(const training::v1::ArrayFileSpec& spec,
                                                    const std::string& npy_name,
                                                    int64_t memory_limit_bytes);

}  // namespace genesis
