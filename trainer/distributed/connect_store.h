#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <string>

#include "trainer/distributed/rank_place.h"

namespace genesis {

// Receives what a rank is waiting for, in one sentence for people.
using TellWaiting = std::function<void(const std::string&)>;
inline constexpr std::chrono::milliseconds kTellWaitingEvery = std::chrono::seconds(10);

// Silences c10d's own log, because a failure reports in a sentence what c10d logs with C++ frames.
// TORCH_CPP_LOG_LEVEL shows it.
void SilenceC10d();

// Connects to the TCPStore of the ranks of a launcher, and serves it if that is up to `place`.
// Throws RunFailure (FAILURE_CAUSE_WORKER_EXIT) if it cannot be reached within `timeout` for each
// address family.
c10::intrusive_ptr<c10d::Store> ConnectStore(const RankPlace& place,
                                             std::chrono::milliseconds timeout,
                                             const TellWaiting& tell);

}  // namespace genesis
