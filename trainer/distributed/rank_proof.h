#pragma once

#include <string>
#include <vector>

#include "trainer/distributed/rank_group.h"

namespace genesis {

// Proves to the other ranks that this one knows the secret of their job, and verifies theirs: each
// rank replies to the random challenges of all with an HMAC-SHA256 (RFC 2104) over them and its
// rank. The addresses of the ranks are open on their network, so a stranger could pose as a rank;
// the secret came through the daemon's stream, which strangers cannot read. Collective: every rank
// calls it. `devices` names the ranks in messages. Throws RunFailure with the rank that fails.
void ProveSecret(RankGroup& ranks, const std::string& secret,
                 const std::vector<std::string>& devices);

}  // namespace genesis
