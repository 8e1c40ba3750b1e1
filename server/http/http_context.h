#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/http/http_server.h"

namespace genesis {

// The way from other threads to the server's: what is posted after its end is dropped.
class HttpLoop {
 public:
  explicit HttpLoop(boost::asio::io_context* io) : io_(io) {}
  void Post(std::function<void()> task);
  void Close();

 private:
  absl::Mutex mutex_;
  boost::asio::io_context* io_ ABSL_GUARDED_BY(mutex_);
};

class HttpSessionBase {
 public:
  virtual ~HttpSessionBase() = default;
  // Cancels what the session waits for on its socket.
  virtual void Close() = 0;
};

// The state that sessions of one server share. Used on the server's thread only. A session is owned
// by its pending operation on the socket or, while it waits for an answer of ours, by this.
class HttpContext {
 public:
  HttpContext(HttpHandlers http_handlers, HttpLimits http_limits,
              std::shared_ptr<HttpLoop> http_loop)
      : handlers(std::move(http_handlers)), limits(http_limits), loop(std::move(http_loop)) {}

  // Room for a connection more; where there is none, one that waits for its client is closed: the
  // one that has waited longest. False when all are being served.
  bool MakeRoom();
  void Add(HttpSessionBase* session) { sessions_.insert(session); }
  void Remove(HttpSessionBase* session);
  // Whether nothing is lost when the session is closed: no request is under way, or only a probe.
  void SetIdle(HttpSessionBase* session);
  void SetBusy(HttpSessionBase* session);
  // One of the requests that may be under way at a time; the others of the connections are kept for
  // probes. False when there is none.
  bool TakePlace();
  void GivePlace() { --places_taken_; }
  // Until Release or CloseAll; afterwards not at all, for what it waits for no longer comes.
  void Hold(std::shared_ptr<HttpSessionBase> session);
  void Release(const std::shared_ptr<HttpSessionBase>& session) { waiting_.erase(session); }

  // Room for a body in memory; false when there is none.
  bool TakeRoom(size_t bytes);
  void GiveRoom(size_t bytes) { bodies_bytes_ -= bytes; }

  // Ends every session.
  void CloseAll();

  const HttpHandlers handlers;
  const HttpLimits limits;
  const std::shared_ptr<HttpLoop> loop;

 private:
  std::set<HttpSessionBase*> sessions_;
  std::map<uint64_t, HttpSessionBase*> idle_;        // By when it became so.
  std::map<HttpSessionBase*, uint64_t> idle_since_;  // The same, the other way.
  uint64_t turns_ = 0;
  int places_taken_ = 0;
  std::set<std::shared_ptr<HttpSessionBase>> waiting_;
  bool closed_ = false;
  size_t bodies_bytes_ = 0;
};

}  // namespace genesis
