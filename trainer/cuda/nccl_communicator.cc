// libgenesis_nccl.so: the code that needs NCCL headers. Loaded like libgenesis_cuda.so, but
// separately because a LibTorch may have only one of them. Uses NCCL instead of c10d's
// ProcessGroupNCCL, whose threads end the process if a rank is lost and do not see the replays of a
// CUDA graph.
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <nccl.h>

#include <cstring>
#include <exception>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "trainer/cuda/plugin.h"

namespace genesis {
namespace {

// Returns NCCL's text for an error.
std::string TextOf(ncclResult_t error, ncclComm_t communicator) {
  std::string text = ncclGetErrorString(error);
  const char* const detail = ncclGetLastError(communicator);
  if (detail != nullptr) text.append("; ").append(detail);
  return text;
}

void Check(ncclResult_t result, const char* call, ncclComm_t communicator = nullptr) {
  TORCH_CHECK(result == ncclSuccess, call, ": ", TextOf(result, communicator));
}

ncclDataType_t TypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return ncclFloat32;
    case at::kHalf:
      return ncclFloat16;
    case at::kBFloat16:
      return ncclBfloat16;
    default:
      TORCH_CHECK(false, "NCCL adds up no ", tensor.scalar_type());
  }
}

class NcclCommunicator : public Communicator {
 public:
  using Options = CommunicatorFactory::Options;

  // Uses the current device.
  explicit NcclCommunicator(const Options& options)
      : stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true)) {
    ncclUniqueId id;
    TORCH_CHECK(options.id.size() == sizeof(id), "rank 0 gave no id of NCCL's");
    std::memcpy(&id, options.id.data(), sizeof(id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    Check(ncclCommInitRankConfig(&communicator_, options.size, id, options.rank, &config),
          "ncclCommInitRankConfig");
  }
  // Requires that no CUDA graph holds its collectives, and, if other ranks continue, that the ranks
  // have met after the last collective (RankGroup::Await).
  ~NcclCommunicator() override {
    Abort();
    aborting_.join();
  }

  void AllReduce(const at::Tensor& tensor) override {
    Enter();
    void* const data = tensor.mutable_data_ptr();
    Check(ncclAllReduce(data, data, static_cast<size_t>(tensor.numel()), TypeOf(tensor), ncclSum,
                        communicator_, stream_),
          "ncclAllReduce", communicator_);
  }

  void Broadcast(const at::Tensor& tensor, int root) override {
    Enter();
    void* const data = tensor.mutable_data_ptr();
    Check(ncclBroadcast(data, data, tensor.nbytes(), ncclInt8, root, communicator_, stream_),
          "ncclBroadcast", communicator_);
  }

  void Join() override {
    joined_.record(stream_);
    joined_.block(c10::cuda::getCurrentCUDAStream());
  }

  std::string Fault() override {
    if (communicator_ == nullptr) return "the communicator was aborted";
    ncclResult_t error = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(communicator_, &error);
    if (asked != ncclSuccess) error = asked;
    return error == ncclSuccess || error == ncclInProgress ? "" : TextOf(error, communicator_);
  }

  void Abort() override {
    const ncclComm_t ended = std::exchange(communicator_, nullptr);
    // NCCL ends collectives in flight immediately, then waits until no CUDA graph of the caller
    // holds its collectives.
    if (ended != nullptr) aborting_ = std::thread([ended] { ncclCommAbort(ended); });
  }

 private:
  void Enter() {
    TORCH_CHECK(communicator_ != nullptr, "the communicator was aborted");
    entered_.record(c10::cuda::getCurrentCUDAStream());
    entered_.block(stream_);
  }

  const c10::cuda::CUDAStream stream_;
  at::cuda::CUDAEvent entered_;
  at::cuda::CUDAEvent joined_;
  ncclComm_t communicator_ = nullptr;
  std::thread aborting_;
};

class NcclFactory : public CommunicatorFactory {
 public:
  std::string NewId() override {
    ncclUniqueId id;
    Check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    return {id.internal, sizeof(id.internal)};
  }

  std::unique_ptr<Communicator> Make(const Options& options) override {
    using Made = std::promise<std::unique_ptr<Communicator>>;
    const auto made = std::make_shared<Made>();
    auto communicator = made->get_future();
    // In a separate thread, because NCCL waits forever for a rank that does not join.
    std::thread([made, options, device = c10::cuda::current_device()] {
      try {
        const c10::cuda::CUDAGuard guard(device);
        made->set_value(std::make_unique<NcclCommunicator>(options));
      } catch (const std::exception&) {
        made->set_exception(std::current_exception());
      }
    }).detach();
    TORCH_CHECK(communicator.wait_for(options.timeout) == std::future_status::ready,
                "not all ranks came within ", options.timeout.count() / 1000, " s");
    return communicator.get();
  }
};

}  // namespace
}  // namespace genesis

genesis::CommunicatorFactory* GenesisNcclCommunicators() {
  static genesis::NcclFactory factory;
  return &factory;
}
