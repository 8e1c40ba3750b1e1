#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace genesis {

// A token bucket that limits the calls that a connection may abandon.
class ResetBudget {
 public:
  // Calls that a connection may abandon in a burst: as many as it may have open.
  static constexpr double kBurst = 1000;
  // Calls per second that are given back.
  static constexpr double kPerSecond = 50;

  // Records `calls` more abandoned calls. Returns true if they use up the budget.
  bool Spend(double calls, absl::Time now);

 private:
  double left_ = kBurst;
  absl::Time as_of_ = absl::InfinitePast();
};

// A `ResetWatch` finds connections whose clients open and reset calls endlessly (HTTP/2 "rapid
// reset", CVE-2023-44487). HTTP/2 limits only the calls that are open, and a call that was reset is
// not. gRPC 1.51 has no limit of its own.
//
// It reads the counters that gRPC's transports keep for channelz
// (https://github.com/grpc/proposal/blob/master/A14-channelz.md). A transport counts
// while it reads from the socket. Handlers would count too late: on a slow processor they
// run tens of thousands of calls later.
//
// Owner: TrainingListener. Threads: its own. It calls `on_flood` with the client in gRPC's form
// ("ipv4:10.0.0.1:4711", "unix:") each time the client uses up its budget.
class ResetWatch {
 public:
  using OnFlood = std::function<void(const std::string& peer)>;

  // `max_open_calls` is the limit per connection (HTTP/2's SETTINGS_MAX_CONCURRENT_STREAMS).
  ResetWatch(int max_open_calls, OnFlood on_flood);
  ~ResetWatch();
  ResetWatch(const ResetWatch&) = delete;
  ResetWatch& operator=(const ResetWatch&) = delete;

 private:
  // Calls of one server, over all of its connections.
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
  // Returns true if so many calls have failed or been opened since the last check of connections
  // that one of them may be a flood. Reads one short text per server.
  bool Suspects();
  void LookAtConnections(absl::Time now);
  void LookAt(int64_t socket, absl::Time now);

  const int64_t max_open_calls_;
  const OnFlood on_flood_;
  std::map<int64_t, Calls> servers_;           // At the last check; keyed by channelz ID.
  std::map<int64_t, Connection> connections_;  // Keyed by channelz ID.
  int64_t looks_ = 0;
  // When the memory that a flood has used is returned to the system, and the pause before that.
  absl::Time trim_at_ = absl::InfiniteFuture();
  absl::Duration trim_pause_ = absl::ZeroDuration();
  absl::Notification stopped_;
  std::thread thread_;
};

}  // namespace genesis
