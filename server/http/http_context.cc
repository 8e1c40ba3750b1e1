#include "server/http/http_context.h"

#include <boost/asio/post.hpp>
#include <utility>

namespace genesis {

void HttpLoop::Post(std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  if (io_ != nullptr) boost::asio::post(*io_, std::move(task));
}

void HttpLoop::Close() {
  absl::MutexLock lock(&mutex_);
  io_ = nullptr;
}

void HttpContext::Add(HttpSessionBase* session) {
  if (sessions_.size() >= static_cast<size_t>(limits.max_connections)) {
    if (idle_.empty()) return Dismiss(session);
    HttpSessionBase* const oldest = idle_.begin()->second;
    Remove(oldest);
    Dismiss(oldest);
  }
  sessions_.insert(session);
}

// Sends a session away, or closes it at leaving_connections. It ends with its pending operation.
void HttpContext::Dismiss(HttpSessionBase* session) {
  if (leaving_.size() >= static_cast<size_t>(limits.leaving_connections())) return session->Close();
  leaving_.insert(session);
  session->Leave();
}

void HttpContext::Remove(HttpSessionBase* session) {
  SetBusy(session);
  sessions_.erase(session);
  leaving_.erase(session);
}

void HttpContext::SetIdle(HttpSessionBase* session) {
  SetBusy(session);
  if (!sessions_.contains(session)) return;  // Closed already.
  idle_[++turns_] = session;
  idle_since_[session] = turns_;
}

void HttpContext::SetBusy(HttpSessionBase* session) {
  const auto found = idle_since_.find(session);
  if (found == idle_since_.end()) return;
  idle_.erase(found->second);
  idle_since_.erase(found);
}

void HttpContext::Hold(std::shared_ptr<HttpSessionBase> session) {
  if (!closed_) waiting_.insert(std::move(session));
}

bool HttpContext::TakePlace() {
  if (places_taken_ >= limits.max_connections - limits.reserved_connections()) return false;
  ++places_taken_;
  return true;
}

bool HttpContext::TakeRoom(size_t bytes) {
  if (bodies_bytes_ + bytes > limits.max_bodies_bytes) return false;
  bodies_bytes_ += bytes;
  return true;
}

void HttpContext::CheckClients() {
  for (const auto& session : waiting_) session->CheckClient();
}

void HttpContext::CloseAll() {
  closed_ = true;
  for (const auto* sessions : {&sessions_, &leaving_}) {
    for (HttpSessionBase* session : *sessions) session->Close();
  }
  // A session is destroyed when its last owner releases it, and its destructor changes sessions_.
  std::exchange(waiting_, {}).clear();
}

}  // namespace genesis
