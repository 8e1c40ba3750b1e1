#pragma once

#include <cstdint>

namespace genesis {

// Integer actions become one-hot columns; more distinct actions than this are more likely a mistake
// than a game.
inline constexpr int64_t kMaxDiscreteActions = 1024;

}  // namespace genesis
