#include "trainer/distributed/neighbour_watch.h"

#include <chrono>
#include <exception>
#include <vector>

namespace genesis {
namespace {

// A tag that no other message of the ranks uses.
constexpr int kTag = 1;
// Longer than any job: a timeout would break the connections of all ranks.
constexpr std::chrono::hours kForEver{24 * 365 * 10};

}  // namespace

NeighbourWatch::NeighbourWatch(c10d::Backend& gloo) {
  std::vector<at::Tensor> byte = {at::zeros({1}, at::kByte)};
  message_ = gloo.recv(byte, (gloo.getRank() + gloo.getSize() - 1) % gloo.getSize(), kTag);
  thread_ = std::thread([this] {
    try {
      message_->wait(kForEver);
    } catch (const std::exception&) {
      gone_ = true;
    }
  });
}

NeighbourWatch::~NeighbourWatch() {
  message_->abort();
  thread_.join();
}

}  // namespace genesis
