#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

#include "trainer/distributed/connect_store.h"

namespace genesis {

// Functions that find out why an exchange failed. Each rank that notices the failure leaves a mark
// in the ranks' store, so a rank without one after a second is missing. Any thread may call them.

// Registers this rank before the first exchange. Returns false if this number was already
// registered, which means that two launches use one store.
bool TellPresence(c10d::Store& store, int rank);
// Waits until all `size` ranks have registered. Calls `tell` every `interval` with a sentence that
// names the missing ranks. Throws the store's error after `timeout`.
void AwaitPresence(c10d::Store& store, int size, std::chrono::milliseconds timeout,
                   std::chrono::milliseconds interval, const TellWaiting& tell);
// Records that this rank ends before the job does, and why.
void TellEnd(c10d::Store& store, int rank, const std::string& why);

// Returns the cause of a failure seen by `rank`: "rank 1 failed: ..." with that rank's message,
// "rank 1 does not answer", or "another rank has ended or cannot be reached" if it finds no missing
// rank. Waits for at most a second, even if the store's server is gone.
std::string FindMissingRanks(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size);

}  // namespace genesis
