#include "server/rpc/reset_watch.h"

#include <grpc/grpc.h>
#include <grpc/support/alloc.h>
#include <malloc.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/steady_time.h"

namespace genesis {
namespace {

using Json = nlohmann::json;

// Pause between two readings. A connection can send about a thousand calls in this time.
constexpr absl::Duration kReadingPause = absl::Milliseconds(10);
// Minimum number of calls of a server, failed or opened since the last check of its connections,
// that triggers another check.
constexpr int64_t kSuspectFailed = 100;
constexpr int64_t kSuspectOpened = 200;
constexpr int kMaxSocketsInOneReading = 500;
// Delay after a flood, in which calls that were read before the connection was closed end.
constexpr absl::Duration kTrimPause = absl::Seconds(1);
constexpr absl::Duration kMaxTrimPause = absl::Minutes(2);

// Parses a response of channelz. Returns an empty object if the entity no longer exists.
Json Parse(char* answer) {
  if (answer == nullptr) return Json::object();
  Json parsed = Json::parse(answer, nullptr, /*allow_exceptions=*/false);
  gpr_free(answer);
  return parsed.is_object() ? parsed : Json::object();
}

// Returns a number. Protobuf's JSON has numbers as strings, and omits them if they are 0.
int64_t Number(const Json& object, const char* name) {
  int64_t number = 0;
  const auto found = object.find(name);
  if (found != object.end() && found->is_string()) {
    (void)absl::SimpleAtoi(found->get_ref<const std::string&>(), &number);
  }
  return number;
}

const Json& Member(const Json& object, const char* name) {
  static const Json kNone = Json::object();
  const auto found = object.find(name);
  return found == object.end() ? kNone : *found;
}

template <typename Handle>
void ForEachServer(Handle handle) {
  int64_t next = 0;
  for (bool end = false; !end;) {
    const Json page = Parse(grpc_channelz_get_servers(next));
    for (const Json& server : Member(page, "server")) {
      const int64_t id = Number(Member(server, "ref"), "serverId");
      handle(id, Member(server, "data"));
      next = id + 1;
    }
    end = Member(page, "server").empty() || page.value("end", false);
  }
}

template <typename Handle>
void ForEachSocket(int64_t server, Handle handle) {
  int64_t next = 0;
  for (bool end = false; !end;) {
    const Json page =
        Parse(grpc_channelz_get_server_sockets(server, next, kMaxSocketsInOneReading));
    for (const Json& socket : Member(page, "socketRef")) {
      const int64_t id = Number(socket, "socketId");
      handle(id);
      next = id + 1;
    }
    end = Member(page, "socketRef").empty() || page.value("end", false);
  }
}

}  // namespace

bool ResetBudget::Spend(double calls, absl::Time now) {
  const double before =
      as_of_ == absl::InfinitePast()
          ? kBurst
          : std::min(kBurst, left_ + kPerSecond * absl::ToDoubleSeconds(now - as_of_));
  left_ = before - calls;
  as_of_ = now;
  return before >= 1 && left_ < 1;
}

ResetWatch::ResetWatch(int max_open_calls, OnFlood on_flood)
    : max_open_calls_(max_open_calls),
      on_flood_(std::move(on_flood)),
      thread_([this] { Loop(); }) {}

ResetWatch::~ResetWatch() {
  stopped_.Notify();
  thread_.join();
}

void ResetWatch::Loop() {
  absl::Duration pause = kReadingPause;
  while (!stopped_.WaitForNotificationWithTimeout(pause)) {
    const absl::Time now = SteadyNow();
    if (Suspects()) LookAtConnections(now);
    if (now >= trim_at_) {
      // Small blocks of ended calls keep glibc from returning the memory between them. A busy
      // processor may end the calls of a flood much later, so this is repeated more and more
      // rarely.
      malloc_trim(0);
      trim_pause_ *= 2;
      trim_at_ = trim_pause_ > kMaxTrimPause ? absl::InfiniteFuture() : now + trim_pause_;
    }
    // With thousands of connections a check takes a while; spend at most half of the time on it.
    pause = std::max(kReadingPause, SteadyNow() - now);
  }
}

bool ResetWatch::Suspects() {
  bool suspects = false;
  ForEachServer([&](int64_t id, const Json& data) {
    const int64_t failed = Number(data, "callsFailed");
    const int64_t open = Number(data, "callsStarted") - Number(data, "callsSucceeded") - failed;
    Calls& last = servers_[id];
    last.open = std::min(last.open, open);
    if (failed - last.failed < kSuspectFailed && open - last.open < kSuspectOpened) return;
    last = {failed, open};
    suspects = true;
  });
  return suspects;
}

void ResetWatch::LookAtConnections(absl::Time now) {
  ++looks_;
  for (const auto& [server, calls] : servers_) {
    ForEachSocket(server, [&](int64_t socket) { LookAt(socket, now); });
  }
  std::erase_if(connections_, [&](const auto& each) { return each.second.last_look != looks_; });
}

void ResetWatch::LookAt(int64_t socket, absl::Time now) {
  const Json answer = Parse(grpc_channelz_get_socket(socket));
  const Json& found = Member(answer, "socket");
  Connection& connection = connections_[socket];
  connection.last_look = looks_;
  const Json& data = Member(found, "data");
  // gRPC counts a stream as failed if it was closed before the server ended it, but only when its
  // call is destroyed. At most max_open_calls_ of the started streams can be open, so any others
  // that did not succeed have been reset too.
  const int64_t abandoned =
      std::max(Number(data, "streamsFailed"),
               Number(data, "streamsStarted") - Number(data, "streamsSucceeded") - max_open_calls_);
  const int64_t more = abandoned - connection.abandoned;
  connection.abandoned = std::max(connection.abandoned, abandoned);
  if (more <= 0 || !connection.budget.Spend(static_cast<double>(more), now)) return;
  trim_pause_ = kTrimPause;
  trim_at_ = now + trim_pause_;
  const std::string name = Member(found, "ref").value("name", "");
  on_flood_(std::string(absl::StripPrefix(name, "chttp2 ")));
}

}  // namespace genesis
