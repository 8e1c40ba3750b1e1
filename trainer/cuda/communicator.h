#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <memory>
#include <string>

namespace genesis {

// Collectives among the GPUs of several ranks: a communicator of NCCL. They run on a separate
// stream, in the order in which they were begun, concurrently with the current stream. The host
// waits for none of them. All ranks begin the same collectives in the same order. CUDA graphs can
// capture them.
//
// Owner: the RankGroup. Threads: one at a time. Failure: exceptions of LibTorch. If a rank ends
// or falls silent, Fault() may report it, and collectives that need that rank end only with
// Abort().
class Communicator {
 public:
  virtual ~Communicator() = default;
  // Sums the tensor over the ranks, in place, after the work in the current stream. The tensor is
  // contiguous, and float32, float16 or bfloat16.
  virtual void AllReduce(const at::Tensor& tensor) = 0;
  // Overwrites the tensor, contiguous and of any type, with that of rank `root`.
  virtual void Broadcast(const at::Tensor& tensor, int root) = 0;
  // Makes the current stream wait for all collectives begun so far.
  virtual void Join() = 0;
  // Returns the error; "" if there is none. Does not wait.
  virtual std::string Fault() = 0;
  // Ends collectives in flight, leaving undefined values in their tensors. No other calls may
  // follow.
  virtual void Abort() = 0;
};

// A factory of communicators. Threads: any.
class CommunicatorFactory {
 public:
  struct Options {
    std::string id;
    int rank = 0;
    int size = 0;
    std::chrono::milliseconds timeout{0};  // Time to wait for the other ranks.
  };

  virtual ~CommunicatorFactory() = default;
  // Returns an ID by which the ranks of one communicator find each other. Any process with the ID
  // can join.
  virtual std::string NewId() = 0;
  // Waits until all ranks have joined. Throws, naming the cause.
  virtual std::unique_ptr<Communicator> Make(const Options& options) = 0;
};

}  // namespace genesis
