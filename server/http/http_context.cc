#include "server/http/http_context.h"

#include <boost/asio/post.hpp>
#include <vector>

namespace genesis {

void HttpLoop::Post(std::function<void()> task) {
  absl::MutexLock lock(&mutex_);
  if (io_ != nullptr) boost::asio::post(*io_, std::move(task));
}

void HttpLoop::Close() {
  absl::MutexLock lock(&mutex_);
  io_ = nullptr;
}

bool HttpContext::TakeRoom(size_t bytes) {
  if (bodies_bytes_ + bytes > limits.max_bodies_bytes) return false;
  bodies_bytes_ += bytes;
  return true;
}

void HttpContext::CloseAll() {
  for (HttpSessionBase* session : sessions_) session->Close();
  // Each goes on its own when nothing holds it; its end changes the set.
  std::exchange(waiting_, {}).clear();
}

}  // namespace genesis
