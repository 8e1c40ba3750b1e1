#include "server/webhooks/public_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <iterator>

namespace genesis {
namespace {

struct Prefix {
  const char* address;
  int bits;
};

// IANA IPv4 Special-Purpose Address Registry (RFC 6890), multicast and reserved addresses.
constexpr Prefix kSpecialIpv4[] = {{"0.0.0.0", 8},      {"10.0.0.0", 8},     {"100.64.0.0", 10},
                                   {"127.0.0.0", 8},    {"169.254.0.0", 16}, {"172.16.0.0", 12},
                                   {"192.0.0.0", 24},   {"192.0.2.0", 24},   {"192.88.99.0", 24},
                                   {"192.168.0.0", 16}, {"198.18.0.0", 15},  {"198.51.100.0", 24},
                                   {"203.0.113.0", 24}, {"224.0.0.0", 4},    {"240.0.0.0", 4}};

// Global unicast addresses, and the blocks among them that are not public.
constexpr Prefix kGlobalIpv6 = {"2000::", 3};
constexpr Prefix kSpecialIpv6[] = {
    {"2001::", 23}, {"2001:db8::", 32}, {"2002::", 16}, {"3fff::", 20}};

// `Bytes`: size of an address of the family.
template <int Family, size_t Bytes>
bool IsIn(const void* address, const Prefix& prefix) {
  unsigned char bytes[Bytes];
  inet_pton(Family, prefix.address, bytes);
  const auto* other = static_cast<const unsigned char*>(address);
  for (int bit = 0; bit < prefix.bits; ++bit) {
    const unsigned char mask = 0x80U >> (bit % 8U);
    if (((bytes[bit / 8] ^ other[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

const void* BytesOf(const sockaddr& address) {
  return address.sa_family == AF_INET
             ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr)
             : &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
}

}  // namespace

bool IsPublicAddress(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    return std::none_of(std::begin(kSpecialIpv4), std::end(kSpecialIpv4), [&](const Prefix& each) {
      return IsIn<AF_INET, 4>(BytesOf(address), each);
    });
  }
  return address.sa_family == AF_INET6 && IsIn<AF_INET6, 16>(BytesOf(address), kGlobalIpv6) &&
         std::none_of(std::begin(kSpecialIpv6), std::end(kSpecialIpv6), [&](const Prefix& each) {
           return IsIn<AF_INET6, 16>(BytesOf(address), each);
         });
}

std::string AddressText(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (address.sa_family == AF_INET || address.sa_family == AF_INET6) {
    inet_ntop(address.sa_family, BytesOf(address), text, sizeof(text));
  }
  return text;
}

}  // namespace genesis
