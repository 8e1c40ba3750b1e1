#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace genesis {

// Returns the name of this machine; "unknown" if the system has none.
std::string HostName();

// Returns the address of this machine from which `host` is reached: "10.0.0.3" for a name or a
// number, as the routing table has it. Sends nothing except the name lookup. UNAVAILABLE naming
// `host` when it has no address or no route leads to it.
absl::StatusOr<std::string> LocalAddressTo(const std::string& host);

// Returns the network interface of this machine that has the address: "eth0" for "10.0.0.3". Empty
// if there is none.
std::string InterfaceOf(const std::string& address);

}  // namespace genesis
