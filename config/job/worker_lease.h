#pragma once

namespace genesis {

// A worker on another host that cannot reach its daemon must have stopped before the daemon gives
// its job to another worker. It notices after kSilenceSeconds at the latest: gRPC sends a ping
// every kKeepaliveSeconds and waits kKeepaliveTimeoutSeconds for the reply. The rest of
// workers.reattach_timeout_seconds is its patience.
inline constexpr int kKeepaliveSeconds = 12;
inline constexpr int kKeepaliveTimeoutSeconds = 5;
inline constexpr int kSilenceSeconds = 20;

inline constexpr int RemotePatienceSeconds(int reattach_timeout_seconds) {
  return reattach_timeout_seconds - kSilenceSeconds;
}
// The daemon itself ends a worker on its own host that reattaches too late.
inline constexpr int kLocalPatienceSeconds = 600;

}  // namespace genesis
