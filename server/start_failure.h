#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/exit_code.h"

namespace genesis {

// The reason why the daemon could not start.
struct StartFailure {
  StartFailure(ExitCode exit_code, std::string why) : code(exit_code), message(std::move(why)) {}
  StartFailure(ExitCode exit_code, const absl::Status& status)
      : StartFailure(exit_code, std::string(status.message())) {}

  ExitCode code;
  std::string message;
};

}  // namespace genesis
