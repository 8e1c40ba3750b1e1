#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

#include "trainer/distributed/connect_store.h"

namespace genesis {

// Why an exchange failed, as far as the store of the ranks knows: each rank that notices leaves
// word there, so one that leaves none within a second is missing. Free functions for any thread.

// Before the first exchange: this rank is there. Returns whether it is the first to say so: two
// launches may have been given one store.
bool TellPresence(c10d::Store& store, int rank);
// Waits until all `size` ranks have said so; `tell` hears each `interval` whom it waits for, in one
// sentence. Throws the store's error after `timeout`.
void AwaitPresence(c10d::Store& store, int size, std::chrono::milliseconds timeout,
                   std::chrono::milliseconds interval, const TellWaiting& tell);
// This rank ends before the job does, and why.
void TellEnd(c10d::Store& store, int rank, const std::string& why);

// Returns what a failure of `rank` is put down to: "rank 1 failed: ..." in its own words, "rank 1
// does not answer", or "another rank has ended or cannot be reached" where nobody is known to be
// missing. Waits for at most a second, also where the store's server is gone.
std::string FindMissingRanks(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size);

}  // namespace genesis
