#pragma once

#include <string>
#include <vector>

#include "trainer/distributed/rank_group.h"

namespace genesis {

// Proves to the other ranks that this one knows the secret of their job, and has them prove it:
// each answers all the others' random challenges with an HMAC-SHA256 (RFC 2104) over them and its
// rank. The addresses of the ranks are open on their network, and whoever reaches one could speak
// for a rank; the secret came by the daemon's stream, which strangers cannot read. Called by all
// ranks. `devices` names them in messages. Throws RunFailure naming a rank that cannot prove it.
void ProveSecret(RankGroup& ranks, const std::string& secret,
                 const std::vector<std::string>& devices);

}  // namespace genesis
