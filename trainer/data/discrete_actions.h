#pragma once

#include <cstdint>

namespace genesis {

// Integer actions become one-hot columns. More distinct actions than this are probably a mistake.
inline constexpr int64_t kMaxDiscreteActions = 1024;

}  // namespace genesis
