#include "trainer/distributed/rank_proof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "trainer/runtime/run_failure.h"

namespace genesis {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

const std::vector<std::string>& Devices() {
  static const auto* const devices = new std::vector<std::string>{"cpu", "gpu-7/cpu", "gpu-8/cpu"};
  return *devices;
}

// Runs three ranks as threads. Returns why each of them failed; "" for a rank that did not.
std::vector<std::string> Failures(const std::function<void(RankGroup&)>& work) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::string> failures(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      RankPlace place;
      place.rank = rank;
      place.size = 3;
      place.listen = "127.0.0.1";
      RankGroup ranks(place, store);
      try {
        work(ranks);
      } catch (const RunFailure& failure) {
        failures[static_cast<size_t>(rank)] = failure.message;
      }
      ranks.Await();  // No rank leaves while another is working.
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failures;
}

TEST(RankProofTest, RanksThatKnowTheSecretPass) {
  const std::string secret("a\0secret", 8);
  EXPECT_THAT(Failures([&](RankGroup& ranks) { ProveSecret(ranks, secret, Devices()); }),
              Each(std::string()));
}

TEST(RankProofTest, ARankThatDoesNotIsNamedByAllOthers) {
  const std::vector<std::string> failures = Failures([](RankGroup& ranks) {
    ProveSecret(ranks, ranks.rank() == 1 ? "guessed" : "secret", Devices());
  });
  EXPECT_THAT(failures[0], HasSubstr("what responds as rank 1 on gpu-7/cpu lacks the secret"));
  EXPECT_THAT(failures[2], HasSubstr("what responds as rank 1 on gpu-7/cpu lacks the secret"));
  EXPECT_THAT(failures[1], HasSubstr("what responds as rank 0 on cpu"));
}

}  // namespace
}  // namespace genesis
