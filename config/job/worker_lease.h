#pragma once

namespace genesis {

// A worker on another host whose daemon cannot be reached must have stopped before the daemon gives
// its job to another. It notices after kSilenceSeconds at the latest: gRPC asks every
// kKeepaliveSeconds whether the other side lives, and waits kKeepaliveTimeoutSeconds for an answer.
// The rest of workers.reattach_timeout_seconds is its patience.
inline constexpr int kKeepaliveSeconds = 12;
inline constexpr int kKeepaliveTimeoutSeconds = 5;
inline constexpr int kSilenceSeconds = 20;

inline constexpr int RemotePatienceSeconds(int reattach_timeout_seconds) {
  return reattach_timeout_seconds - kSilenceSeconds;
}
// A worker on the daemon's own host is ended by the daemon itself when it comes too late.
inline constexpr int kLocalPatienceSeconds = 600;

}  // namespace genesis
