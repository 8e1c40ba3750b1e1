#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "google/protobuf/message_lite.h"
#include "trainer/cuda/communicator.h"
#include "trainer/distributed/bucket_transport.h"
#include "trainer/distributed/connect_store.h"
#include "trainer/distributed/rank_place.h"

namespace genesis {

// The control flags of one rank, or combined over all, at the end of a step.
struct ControlFlags {
  bool stop = false;
  bool checkpoint = false;
  bool time_is_up = false;  // training.time_limit_seconds
  bool fp32 = false;        // Requests FP32 for the next steps.
  bool complete = false;    // The job succeeds before its last step.
  bool plateau = false;     // The reported metric has reached another plateau.
  bool news = false;        // Rank 0 has news of the data that the job follows.
  // Duration of the previous step; after the exchange, the mean over the ranks.
  double seconds = 0;
};

struct RankOptions {
  // Maximum silence of a rank between two exchanges, such as while it loads its data or evaluates.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  // Default of c10d for Gloo.
  // Whether ranks on one host sum gradients in shared memory.
  bool shared_memory = true;
  // Factory for collectives among the GPUs of the ranks. If it is null, no_communicator is the
  // reason.
  CommunicatorFactory* communicators = nullptr;
  std::string no_communicator = "it computes on the CPU";
  TellWaiting tell = [](const std::string&) {};
};

// The ranks that train one job together with the same weights, each on its own examples
// (data-parallel training, as torch.nn.parallel.DistributedDataParallel). All ranks must make the
// same decisions, so decisions use only values that the group shares: gradients, loss and requests
// are exchanged in one all-reduce per step (GradientReducer), and rank 0 sends the rest. Uses
// c10d's ProcessGroupGloo and its store, and NCCL between GPUs. Without NCCL, GPU data goes through
// host memory.
//
// A group of one trains the job alone: its exchanges keep its own values and cost nothing.
//
// Unless stated otherwise, all ranks call every method, in the same order. Owner: the run's caller.
// Threads: one. Failure: RunFailure (FAILURE_CAUSE_WORKER_EXIT) if a rank ends or is silent for
// longer than options().timeout. The message names that rank if it can be found out.
class RankGroup {
 public:
  // Creates a group of one. MakeTransport, AwaitDevice, Fetch, SendToFirst, TellFailure and Fail
  // require several ranks.
  RankGroup();
  // Waits until all ranks have joined. Requires place.size > 1.
  explicit RankGroup(const RankPlace& place, const RankOptions& options = {});
  // Uses a store that the ranks already share.
  RankGroup(const RankPlace& place, const c10::intrusive_ptr<c10d::Store>& store,
            const RankOptions& options = {});
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  bool alone() const { return place_.size == 1; }
  // Rank 0 writes checkpoints (of a sharded one, the list of shards) and reports on the job.
  bool first() const { return place_.rank == 0; }
  const RankOptions& options() const { return options_; }

  // Sets this rank's flags, which take effect with the next step's gradients.
  void SetFlags(const ControlFlags& flags) { own_flags_ = flags; }
  const ControlFlags& own_flags() const { return own_flags_; }
  // The flags that all ranks agreed on with the gradients of the last step.
  const ControlFlags& agreed() const { return agreed_; }
  void Agree(const ControlFlags& flags) { agreed_ = flags; }

  // Returns the fastest transport that these ranks have for gradients on `device`, with `common`
  // bytes of common memory if they share any. `*text` describes it, with the reason.
  std::unique_ptr<BucketTransport> MakeTransport(const std::vector<BucketSize>& buckets,
                                                 size_t common, at::Device device,
                                                 std::string* text);

  // Sums a contiguous tensor on the CPU over the ranks, in place.
  void Sum(const at::Tensor& tensor);
  // Waits until `ready`, which polls an event of this rank's GPU, returns true. Throws if a rank
  // has ended or options().timeout passes. Requires a transport on_device().
  void AwaitDevice(const std::function<bool()>& ready);
  // Returns the tensor on the CPU. If collectives run on a GPU, waits as AwaitDevice does.
  at::Tensor Fetch(const at::Tensor& tensor);

  // Overwrites the tensors with those of rank 0.
  void CopyFromFirst(const std::vector<at::Tensor>& tensors) { CopyFrom(0, tensors); }
  void CopyFrom(int rank, const std::vector<at::Tensor>& tensors);
  // Replaces the message with that of rank 0.
  void CopyFromFirst(google::protobuf::MessageLite& message);
  // Overwrites rank 0's tensor with that of `rank`. Only these two ranks call it.
  void SendToFirst(int rank, const at::Tensor& tensor);
  // Returns the string of rank 0. Like FromAll, it uses the ranks' own connections, so that nothing
  // accumulates in the store of a long job.
  std::string FromFirst(const std::string& own);
  // Returns the strings of all ranks, by rank.
  std::vector<std::string> FromAll(const std::string& own);
  // Returns the error of the first rank that has one; empty if none has.
  std::string FirstFault(const std::string& own);
  // Returns the tensors of all ranks concatenated in rank order, in float32 on the CPU. All must
  // have the same size.
  at::Tensor JoinAll(const at::Tensor& own);
  // Waits until all ranks have called it.
  void Await();

  // Adds to the time in seconds that this rank has waited for the gradients of other ranks.
  // TakeWaitSeconds returns this time and resets it to 0.
  void NoteWait(double seconds) { wait_seconds_ += seconds; }
  double TakeWaitSeconds() { return std::exchange(wait_seconds_, 0); }

  // Records for the other ranks why this rank ends before the job does. Never throws. Any rank may
  // call it at any time.
  void TellFailure(const std::string& message);
  // Throws the failure that corresponds to `error` of c10d or Gloo during `task`.
  [[noreturn]] void Fail(const char* task, const std::exception& error);
  // Throws a failure that names the rank, with its `fault`: "has ended".
  [[noreturn]] void Fail(const char* task, int rank, const std::string& fault);

 private:
  struct Connection;
  class GlooTransport;

  void AbortDevices();
  std::string ConnectDevices();
  std::unique_ptr<BucketTransport> ShareMemory(const std::vector<BucketSize>& buckets,
                                               size_t common, std::string* why_not);
  void Broadcast(int rank, const at::Tensor& flat);
  std::vector<at::Tensor> Gather(const at::Tensor& own);
  template <typename Work>
  std::invoke_result_t<Work> Together(const char* task, const Work& work);

  const RankPlace place_;
  const RankOptions options_;
  std::unique_ptr<Connection> connection_;
  ControlFlags own_flags_;
  ControlFlags agreed_;
  double wait_seconds_ = 0;
};

}  // namespace genesis
