#pragma once

#include <ATen/ATen.h>

#include <chrono>
#include <memory>
#include <string>

namespace genesis {

// Collectives among the GPUs of several ranks: a communicator of NCCL. They run on a stream of
// their own, in the order in which they were begun, beside what the current stream is given; the
// host waits for none of them. All ranks begin the same ones in the same order. A CUDA graph
// captures them as it does other operations.
//
// Owner: the RankGroup. Threads: one at a time. Failure: exceptions of LibTorch. A rank that ends
// or falls silent shows in Fault() at most: a collective that misses it never ends before Abort().
class Communicator {
 public:
  virtual ~Communicator() = default;
  // The sum over the ranks, in place, of what the current stream has made. Contiguous; float32,
  // float16 or bfloat16.
  virtual void AllReduce(const at::Tensor& tensor) = 0;
  // Makes it that of rank `root`, in place. Contiguous, of any type.
  virtual void Broadcast(const at::Tensor& tensor, int root) = 0;
  // Lets the current stream wait for all that was begun.
  virtual void Join() = 0;
  // Says what broke; "" for nothing. Does not wait.
  virtual std::string Fault() = 0;
  // Ends what is under way, with any values in its tensors. Nothing else is asked of it then.
  virtual void Abort() = 0;
};

// Makes communicators. Threads: any.
class CommunicatorFactory {
 public:
  struct Options {
    std::string id;
    int rank = 0;
    int size = 0;
    std::chrono::milliseconds timeout{0};  // To wait for the others.
  };

  virtual ~CommunicatorFactory() = default;
  // By which the ranks of one communicator find each other; whoever knows it can take part.
  virtual std::string NewId() = 0;
  // Waits until all ranks are there. Throws, naming the cause.
  virtual std::unique_ptr<Communicator> Make(const Options& options) = 0;
};

}  // namespace genesis
