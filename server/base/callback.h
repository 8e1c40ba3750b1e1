#pragma once

#include <functional>

#include "absl/status/statusor.h"

namespace genesis {

// Receives the result of a call that may wait for the writer, a disk or a worker. It is called
// exactly once, on any thread, and must not block.
template <typename T>
using Callback = std::function<void(const absl::StatusOr<T>&)>;

}  // namespace genesis
