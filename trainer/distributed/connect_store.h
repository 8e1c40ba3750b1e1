#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <functional>
#include <string>

#include "trainer/distributed/rank_place.h"

namespace genesis {

// A callback that receives what a rank is waiting for, as one sentence.
using TellWaiting = std::function<void(const std::string&)>;
inline constexpr std::chrono::milliseconds kTellWaitingEvery = std::chrono::seconds(10);

// Silences c10d's own log, because a failure is reported in one sentence and not with C++ frames.
// The variable TORCH_CPP_LOG_LEVEL enables the log again.
void SilenceC10d();

// Connects to the TCPStore of the ranks of a launcher, and serves it if `place` is rank 0 and has
// no agent store. Throws RunFailure (FAILURE_CAUSE_WORKER_EXIT) if it cannot be reached within
// `timeout` for each address family.
c10::intrusive_ptr<c10d::Store> ConnectStore(const RankPlace& place,
                                             std::chrono::milliseconds timeout,
                                             const TellWaiting& tell);

}  // namespace genesis
