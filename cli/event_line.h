#pragma once

#include <string>

#include "genesis/training/v1/event.pb.h"

namespace genesis::cli {

// "2026-01-02 03:04:05Z  RUNNING -> SUCCEEDED: training complete": one event of a job on one line.
std::string EventLine(const training::v1::JobEvent& event);

}  // namespace genesis::cli
