#include "trainer/distributed/communicator_transport.h"

#include <exception>

namespace genesis {

CommunicatorTransport::CommunicatorTransport(RankGroup& ranks, Communicator& communicator,
                                             const std::vector<BucketSize>& sizes,
                                             at::Device device)
    : ranks_(ranks), communicator_(communicator) {
  for (const BucketSize& size : sizes) {
    buffers_.push_back(at::zeros({size.elements}, at::dtype(size.type).device(device)));
  }
}

void CommunicatorTransport::Begin(size_t bucket) {
  try {
    communicator_.AllReduce(buffers_[bucket]);
  } catch (const std::exception& error) {
    ranks_.Fail("add up gradients", error);
  }
}

}  // namespace genesis
