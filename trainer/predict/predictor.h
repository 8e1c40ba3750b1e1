#pragma once

#include "base/files/memory_socket.h"

namespace genesis {

// Serves the PredictorRequests of the socket until the other side closes it. Returns the exit code
// of the process.
//
// Calls of one request whose inputs have the same names and shapes are computed together, in chunks
// of at most kMaxRows rows, which bounds the memory. Each call gets its part of the outputs.
int RunPredictor(MemorySocket socket);

}  // namespace genesis
