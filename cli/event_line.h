#pragma once

#include <string>

#include "genesis/training/v1/event.pb.h"

namespace genesis::cli {

// Returns one event of a job as one line, for example
// "2026-01-02 03:04:05Z  RUNNING -> SUCCEEDED: training complete".
std::string EventLine(const training::v1::JobEvent& event);

}  // namespace genesis::cli
