#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "genesis/training/v1/worker_service.pb.h"

namespace genesis {

// Whether a worker of another host that holds no job may have one. `wanted`: the checkpoint folder
// that it must see; nullopt when the daemon takes no workers of other hosts.
absl::Status CheckRemote(const training::v1::Hello& hello,
                         const std::optional<training::v1::SharedFolder>& wanted);

// The refusal of a worker of a reservation that is not open.
absl::Status ReservationIsOver(const std::string& reservation);

// The refusal of a worker that the daemon does not await.
absl::Status NotAwaited(const training::v1::AttachRequest& request);

}  // namespace genesis
