#pragma once

#include <optional>
#include <string>

namespace genesis {

// An address such as "127.0.0.1:50051", "localhost:8080" or "[::1]:0".
struct HostPort {
  std::string host;  // Without brackets.
  int port = 0;
};

// Parses `text`. Returns nullopt unless it is host:port with a port of 0 to 65535. An IPv6 host
// must be in brackets.
std::optional<HostPort> ParseHostPort(const std::string& text);

// Returns true for localhost, 127.0.0.0/8 and ::1. Does not resolve names.
bool IsLoopback(const std::string& host);

}  // namespace genesis
