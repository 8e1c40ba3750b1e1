#pragma once

#include <functional>

#include "absl/status/statusor.h"

namespace genesis {

// How a call that may wait for the writer, a disk or a worker is answered: exactly once, on any
// thread; whoever gives one must not block in it.
template <typename T>
using Callback = std::function<void(const absl::StatusOr<T>&)>;

}  // namespace genesis
