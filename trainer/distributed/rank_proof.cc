#include "trainer/distributed/rank_proof.h"

#include "absl/strings/str_cat.h"
#include "base/files/sha256.h"
#include "base/random_bytes.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {
namespace {

constexpr size_t kChallengeBytes = 32;

std::string DescribeRank(int rank, const std::vector<std::string>& devices) {
  const auto place = static_cast<size_t>(rank);
  return absl::StrCat("rank ", rank,
                      place < devices.size() ? absl::StrCat(" on ", devices[place]) : "");
}

// Compares in constant time, so that timing reveals nothing.
bool IsSame(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  int different = 0;
  for (size_t i = 0; i < a.size(); ++i) different |= a[i] ^ b[i];
  return different == 0;
}

}  // namespace

void ProveSecret(RankGroup& ranks, const std::string& secret,
                 const std::vector<std::string>& devices) {
  std::string challenges;
  for (const std::string& each : ranks.FromAll(RandomBytes(kChallengeBytes)))
    absl::StrAppend(&challenges, each);
  const auto proof_of = [&](int rank) {
    return HmacSha256(secret,
                      absl::StrCat("genesis rank ", rank, " of ", ranks.size(), "\n", challenges));
  };
  int rank = 0;
  for (const std::string& proof : ranks.FromAll(proof_of(ranks.rank()))) {
    if (!IsSame(proof, proof_of(rank))) {
      throw RunFailure{
          training::v1::FAILURE_CAUSE_INTERNAL,
          absl::StrCat("rank ", ranks.rank(), " of ", ranks.size(), ": what responds as ",
                       DescribeRank(rank, devices),
                       " lacks the secret of this job: it is another program, or of "
                       "another attempt; see what listens there, and close the network of the "
                       "ranks to others")};
    }
    ++rank;
  }
}

}  // namespace genesis
