#pragma once

#include <sys/socket.h>

#include <string>

namespace genesis {

// Returns true if the address may belong to a host on the public Internet. False for private,
// shared, loopback, link-local, multicast, documentation and reserved addresses of the IANA
// special-purpose registries, for IPv6 addresses with an IPv4 address inside (mapped, NAT64, 6to4,
// Teredo), and for families other than IPv4 and IPv6.
bool IsPublicAddress(const sockaddr& address);

// Returns the address without its port, such as "169.254.169.254", for messages.
std::string AddressText(const sockaddr& address);

}  // namespace genesis
