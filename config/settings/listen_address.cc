#include "config/settings/listen_address.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "base/text/scalars.h"

namespace genesis {
namespace {

bool IsHostName(const std::string& host) {
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

bool IsIpv6(const std::string& host) {
  in6_addr unused;
  return inet_pton(AF_INET6, host.c_str(), &unused) == 1;
}

}  // namespace

std::optional<HostPort> ParseHostPort(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = text.substr(0, colon);
  const std::optional<uint64_t> port = ParseUint64(text.substr(colon + 1));
  if (!port.has_value() || *port > 65535) return std::nullopt;
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
    if (!IsIpv6(host)) return std::nullopt;
  } else if (!IsHostName(host)) {
    return std::nullopt;
  }
  return HostPort{.host = host, .port = static_cast<int>(*port)};
}

bool IsLoopback(const std::string& host) {
  if (absl::AsciiStrToLower(host) == "localhost") return true;
  in6_addr ipv6;
  if (inet_pton(AF_INET6, host.c_str(), &ipv6) == 1) return IN6_IS_ADDR_LOOPBACK(&ipv6);
  in_addr ipv4;
  constexpr uint32_t kFirstByte = 127;
  return inet_pton(AF_INET, host.c_str(), &ipv4) == 1 && ntohl(ipv4.s_addr) >> 24 == kFirstByte;
}

}  // namespace genesis
