#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "trainer/distributed/rank_group.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {

// Disables c10d's flight recorder, which keeps the states of all groups of a process in a map
// without a lock. Only here do several ranks share a process.
inline const int kNoFlightRecorder = setenv("TORCH_FR_BUFFER_SIZE", "0", /*replace=*/1);

inline RankPlace PlaceOf(int rank, int size) {
  RankPlace place;
  place.rank = rank;
  place.size = size;
  return place;
}

// Runs each rank as a thread. All of them share one in-memory store.
inline void WithRanks(int size, const RankOptions& options,
                      const std::function<void(RankGroup&)>& work) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      RankGroup ranks(PlaceOf(rank, size), store, options);
      work(ranks);
      ranks.Await();  // No rank leaves while another is working.
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline void WithRanks(int size, const std::function<void(RankGroup&)>& work) {
  WithRanks(size, {}, work);
}

// Returns the message of the RunFailure that the end of another rank causes
// in `work`; empty for none.
inline std::string FailureOf(const std::function<void()>& work) {
  try {
    work();
  } catch (const RunFailure& failure) {
    EXPECT_EQ(failure.cause, training::v1::FAILURE_CAUSE_WORKER_EXIT);
    return failure.message;
  }
  return "";
}

}  // namespace genesis
