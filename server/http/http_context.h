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

// A queue of tasks from other threads to the server's thread. Drops tasks posted after Close.
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
  // Cancels the session's pending operations on its socket.
  virtual void Close() = 0;
  // Ends the session after the response that is under way. Without one, closes a connection that
  // has served a request; any other gets a 503.
  virtual void Leave() = 0;
  // Sets HttpRequest::client_gone if the client has closed the connection.
  virtual void CheckClient() = 0;
};

// The state shared by the sessions of one server. Used on the server's thread only. A
// session is owned by its pending socket operation or, while the daemon prepares a
// response, by this object.
class HttpContext {
 public:
  HttpContext(HttpHandlers http_handlers, HttpLimits http_limits,
              std::shared_ptr<HttpLoop> http_loop)
      : handlers(std::move(http_handlers)), limits(http_limits), loop(std::move(http_loop)) {}

  // Adds a session. At max_connections, the one that has been idle longest leaves, or this one if
  // all are busy.
  void Add(HttpSessionBase* session);
  void Remove(HttpSessionBase* session);
  // Marks a session that can be closed without loss: it serves no request or only a probe.
  void SetIdle(HttpSessionBase* session);
  void SetBusy(HttpSessionBase* session);
  // Reserves a slot for a request. Some connections are reserved for probes. Returns
  // false if no slot is free.
  bool TakePlace();
  void GivePlace() { --places_taken_; }
  // Owns the session until Release or CloseAll. Does nothing after CloseAll, because no event would
  // release the session.
  void Hold(std::shared_ptr<HttpSessionBase> session);
  void Release(const std::shared_ptr<HttpSessionBase>& session) { waiting_.erase(session); }

  // Reserves memory for a body. Returns false if too little is left.
  bool TakeRoom(size_t bytes);
  void GiveRoom(size_t bytes) { bodies_bytes_ -= bytes; }

  // Calls CheckClient of the sessions that are held.
  void CheckClients();
  // Ends every session.
  void CloseAll();

  const HttpHandlers handlers;
  const HttpLimits limits;
  const std::shared_ptr<HttpLoop> loop;

 private:
  void Dismiss(HttpSessionBase* session);

  std::set<HttpSessionBase*> sessions_;
  std::set<HttpSessionBase*> leaving_;  // Beyond max_connections.
  // Keyed by the turn in which the session became idle.
  std::map<uint64_t, HttpSessionBase*> idle_;
  std::map<HttpSessionBase*, uint64_t> idle_since_;  // Inverse of `idle_`.
  uint64_t turns_ = 0;
  int places_taken_ = 0;
  std::set<std::shared_ptr<HttpSessionBase>> waiting_;
  bool closed_ = false;
  size_t bodies_bytes_ = 0;
};

}  // namespace genesis
