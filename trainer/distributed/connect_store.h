#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <string>

#include "trainer/distributed/rank_place.h"

namespace genesis {

// Hears what a rank waits for, in one sentence for people.
using TellWaiting = std::function<void(const std::string&)>;
inline constexpr std::chrono::milliseconds kTellWaitingEvery = std::chrono::seconds(10);

// Keeps c10d's own log to itself, for a failure says in a sentence what it logs with frames of C++.
// TORCH_CPP_LOG_LEVEL shows those.
void SilenceC10d();

// Connects to the TCPStore of the ranks of a launcher, and serves it where that falls to `place`.
// Throws RunFailure (FAILURE_CAUSE_WORKER_EXIT) where it cannot be reached within `timeout` for
// each address family.
c10::intrusive_ptr<c10d::Store> ConnectStore(const RankPlace& place,
                                             std::chrono::milliseconds timeout,
                                             const TellWaiting& tell);

}  // namespace genesis
