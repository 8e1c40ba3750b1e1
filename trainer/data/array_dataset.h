#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/dataset.h"

namespace genesis {

// Opens a file of named arrays [N, ...]. Each is a field, in alphabetical order and with the type
// of the file. The last examples are held out. Opening checks once that every floating-point value
// is finite. Arrays that fit the memory limit together are kept; otherwise Gather reads them.
// `npy_name` is the field's name for a .npy file, which has none.
absl::StatusOr<std::unique_ptr<Dataset>> OpenArrays(const training::v1::ArrayFileSpec& spec,
                                                    const std::string& npy_name,
                                                    int64_t memory_limit_bytes);

}  // namespace genesis
