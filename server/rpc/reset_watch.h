#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace genesis {

// The calls that one connection may still abandon, a token bucket.
class ResetBudget {
 public:
  // Calls that a connection may abandon at one time: as many as it may have open.
  static constexpr double kBurst = 1000;
  // Calls that are forgotten each second.
  static constexpr double kPerSecond = 50;

  // The connection has abandoned that many more calls. True when they use up the budget.
  bool Spend(double calls, absl::Time now);

 private:
  double left_ = kBurst;
  absl::Time as_of_ = absl::InfinitePast();
};

// A `ResetWatch` finds the connections whose client opens and resets calls without end (HTTP/2
// "rapid reset", CVE-2023-44487): HTTP/2 bounds the calls that are open at one time, and one that
// is reset is not open; gRPC 1.51 has no limit of its own.
//
// It reads the counters that gRPC's transports keep for channelz
// (https://github.com/grpc/proposal/blob/master/A14-channelz.md). The transport counts while it
// reads from the socket; handlers run later, and tens of thousands of calls later where the
// processor is short.
//
// Owner: TrainingListener. Threads: one of its own, which calls `on_flood` with the client as gRPC
// names it ("ipv4:10.0.0.1:4711", "unix:"), once for each time that it uses up its budget.
class ResetWatch {
 public:
  using OnFlood = std::function<void(const std::string& peer)>;

  // A connection may have `max_open_calls` at one time (HTTP/2's SETTINGS_MAX_CONCURRENT_STREAMS).
  ResetWatch(int max_open_calls, OnFlood on_flood);
  ~ResetWatch();
  ResetWatch(const ResetWatch&) = delete;
  ResetWatch& operator=(const ResetWatch&) = delete;

 private:
  // Calls of one server over all connections.
  struct Calls {
    int64_t failed = 0;
    int64_t open = 0;
  };
  struct Connection {
    int64_t abandoned = 0;
    ResetBudget budget;
    int64_t last_look = 0;
  };
  void Loop();
  // Whether so many calls failed, or were opened, since the last look at connections that one of
  // them may be a flood. Reads one short text for each server.
  bool Suspects();
  void LookAtConnections(absl::Time now);
  void LookAt(int64_t socket, absl::Time now);

  const int64_t max_open_calls_;
  const OnFlood on_flood_;
  std::map<int64_t, Calls> servers_;           // At the last check, by channelz's id.
  std::map<int64_t, Connection> connections_;  // Keyed by channelz's id.
  int64_t looks_ = 0;
  // When memory that a flood had taken is given back to the system.
  absl::Time trim_at_ = absl::InfiniteFuture();
  absl::Notification stopped_;
  std::thread thread_;
};

}  // namespace genesis
