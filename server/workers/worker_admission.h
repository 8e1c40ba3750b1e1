#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// Checks whether a worker of another host that holds no job may attach. `wanted` is the checkpoint
// folder that it must see; nullopt if workers of other hosts are not accepted.
absl::Status CheckRemote(const training::v1::Hello& hello,
                         const std::optional<training::v1::SharedFolder>& wanted);

// Returns the error for a worker whose reservation is not open.
absl::Status ReservationIsOver(const std::string& reservation);

// Returns the error for a worker that the daemon does not expect.
absl::Status NotAwaited(const training::v1::AttachRequest& request);

}  // namespace genesis
