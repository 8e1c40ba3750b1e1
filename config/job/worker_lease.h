#pragma once

namespace genesis {

// A worker on another host that cannot reach its daemon must have stopped before the daemon gives
// the job to another worker. The worker notices after kSilenceSeconds at the latest: gRPC sends a
// ping every kKeepaliveSeconds and waits kKeepaliveTimeoutSeconds for the reply. For the rest of
// workers.reattach_timeout_seconds, its patience, it tries to reattach.
inline constexpr int kKeepaliveSeconds = 12;
inline constexpr int kKeepaliveTimeoutSeconds = 5;
inline constexpr int kSilenceSeconds = 20;

inline constexpr int RemotePatienceSeconds(int reattach_timeout_seconds) {
  return reattach_timeout_seconds - kSilenceSeconds;
}
// Patience of a worker on the daemon's host. It may be long: the daemon can end such a worker.
inline constexpr int kLocalPatienceSeconds = 600;

}  // namespace genesis
