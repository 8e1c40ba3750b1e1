#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <vector>

#include "trainer/cuda/communicator.h"
#include "trainer/distributed/bucket_transport.h"
#include "trainer/distributed/rank_group.h"

namespace genesis {

// All-reduce among the GPUs of the ranks. Buckets and sums are on the GPU, and the host waits for
// none of them.
class CommunicatorTransport : public BucketTransport {
 public:
  CommunicatorTransport(RankGroup& ranks, Communicator& communicator,
                        const std::vector<BucketSize>& sizes, at::Device device);

  const at::Tensor& buffer(size_t bucket) const override { return buffers_[bucket]; }
  void Begin(size_t bucket) override;
  // Also waits for all buckets begun before, because they are reduced in order.
  void Await(size_t /*bucket*/) override { communicator_.Join(); }
  bool on_device() const override { return true; }

 private:
  RankGroup& ranks_;
  Communicator& communicator_;
  std::vector<at::Tensor> buffers_;
};

}  // namespace genesis
