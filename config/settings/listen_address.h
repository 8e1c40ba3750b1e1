#pragma once

#include <optional>
#include <string>

namespace genesis {

// "127.0.0.1:50051", "localhost:8080", "[::1]:0".
struct HostPort {
  std::string host;  // Without brackets.
  int port = 0;
};

// Returns nullopt unless `text` is host:port with a port of 0 to 65535; an IPv6 host is in
// brackets.
std::optional<HostPort> ParseHostPort(const std::string& text);

// Returns true for localhost, 127.0.0.0/8 and ::1. Names are not resolved.
bool IsLoopback(const std::string& host);

}  // namespace genesis
