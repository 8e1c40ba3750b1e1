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

#include "trainer/accel/communicator.h"
#include "trainer/distributed/bucket_transport.h"
#include "trainer/distributed/connect_store.h"
#include "trainer/distributed/rank_place.h"

namespace genesis {

// The control flags of a rank, or of any of them, at the end of a step.
struct ControlFlags {
  bool stop = false;
  bool checkpoint = false;
  bool time_is_up = false;  // training.time_limit_seconds
  bool fp32 = false;        // To go on in FP32.
  double seconds = 0;       // Of the step before; the mean over the ranks once it is heard.
};

struct RankOptions {
  // How long a rank may be silent between two exchanges: while it loads its data, or evaluates.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  // As c10d's own for Gloo.
  // Whether ranks that share a host add up gradients in memory that they share.
  bool shared_memory = true;
  // For collectives among the GPUs of the ranks; null, and why, where this one has none.
  CommunicatorFactory* communicators = nullptr;
  std::string no_communicator = "it computes on the CPU";
  TellWaiting tell = [](const std::string&) {};
};

// The ranks that train one job together, each on examples of its own, with the same weights
// (data-parallel training, as torch.nn.parallel.DistributedDataParallel). Ranks that decide alike
// make the same steps, so whatever a decision rests on is a figure of the group: gradients, loss
// and requests travel in one all-reduce a step (GradientReducer), the rest is told by rank 0. Made
// of c10d's ProcessGroupGloo and its store, and between GPUs of NCCL; where that is not to be had,
// what is on a GPU travels through host memory.
//
// Every method but those that say otherwise is called by all ranks, in the same order. Owner: the
// run's caller. Threads: one. Failure: RunFailure (FAILURE_CAUSE_WORKER_EXIT) when a rank ends, or
// is silent for longer than options().timeout; it names the rank where that can be known.
class RankGroup {
 public:
  // Waits until all are there. Requires place.size > 1.
  explicit RankGroup(const RankPlace& place, const RankOptions& options = {});
  // By a store that the ranks share already.
  RankGroup(const RankPlace& place, const c10::intrusive_ptr<c10d::Store>& store,
            const RankOptions& options = {});
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  // The one that writes checkpoints and tells of the job.
  bool first() const { return place_.rank == 0; }
  const RankOptions& options() const { return options_; }

  // Takes effect with the next step's gradients.
  void SetFlags(const ControlFlags& flags) { own_flags_ = flags; }
  const ControlFlags& own_flags() const { return own_flags_; }
  // Agreed by all ranks with the gradients of the last step.
  const ControlFlags& agreed() const { return agreed_; }
  void Agree(const ControlFlags& flags) { agreed_ = flags; }

  // The fastest that these ranks have for gradients on `device`, with `common` bytes of memory for
  // all of them where they share any. `*text` says for people which it is, and why.
  std::unique_ptr<BucketTransport> MakeTransport(const std::vector<BucketSize>& buckets,
                                                 size_t common, at::Device device,
                                                 std::string* text);

  // Adds up a contiguous tensor on the CPU over the ranks, in place.
  void Sum(const at::Tensor& tensor);
  // Waits until `ready`, an event of this rank's GPU that collectives lie before: they never end
  // where another rank has. Requires a transport on_device().
  void AwaitDevice(const std::function<bool()>& ready);
  // Returns the tensor on the CPU. A GPU is awaited as by AwaitDevice where collectives run on it.
  at::Tensor Fetch(const at::Tensor& tensor);

  // Makes the tensors those of rank 0, in place.
  void CopyFromFirst(const std::vector<at::Tensor>& tensors) { CopyFrom(0, tensors); }
  void CopyFrom(int rank, const std::vector<at::Tensor>& tensors);
  // Makes the tensor of rank 0 that of `rank`, in place; called by these two alone.
  void SendToFirst(int rank, const at::Tensor& tensor);
  // Returns what rank 0 gave. As FromAll over the ranks' own connections, so that nothing gathers
  // in the store of a long job.
  std::string FromFirst(const std::string& own);
  // Returns what each rank gave, by rank.
  std::vector<std::string> FromAll(const std::string& own);
  // Returns the fault of the first rank that has one; empty where none has.
  std::string FirstFault(const std::string& own);
  // The tensors of all ranks one behind the other, in their order, in float32 on the CPU. All are
  // of one size.
  at::Tensor JoinAll(const at::Tensor& own);
  // Until all ranks are here.
  void Await();

  // How long this rank has waited for the gradients of others since it was asked last. Seconds.
  void NoteWait(double seconds) { wait_seconds_ += seconds; }
  double TakeWaitSeconds() { return std::exchange(wait_seconds_, 0); }

  // Leaves word for the others why this rank ends before the job does. Never throws; for any rank
  // at any time.
  void TellFailure(const std::string& message);
  // Throws the failure that `error` of c10d or Gloo in the course of `task` means.
  [[noreturn]] void Fail(const char* task, const std::exception& error);
  // Throws the failure of a rank that is known: "has ended".
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
