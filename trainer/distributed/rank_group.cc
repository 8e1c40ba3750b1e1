#include "trainer/distributed/rank_group.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/text/text.h"
#include "trainer/distributed/communicator_transport.h"
#include "trainer/distributed/connect_store.h"
#include "trainer/distributed/missing_ranks.h"
#include "trainer/distributed/neighbour_watch.h"
#include "trainer/distributed/shared_memory_transport.h"
#include "trainer/runtime/run_failure.h"

// LibTorch was built with Gloo. Its CMake package, which is not used, would define this.
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace genesis {
namespace {

// Checks the layout of the class, because only the names of Gloo's types are declared.
#if defined(__x86_64__)
static_assert(sizeof(c10d::ProcessGroupGloo) == 488);
#endif

// Number of elements at which a broadcast takes no further tensor.
constexpr int64_t kMaxMessage = int64_t{4} << 20;
// Timeout for connecting NCCL. Short, because the ranks have already met.
constexpr std::chrono::milliseconds kCommunicatorTimeout = std::chrono::minutes(1);
// Intervals at which a rank that waits for its GPU polls it, and checks the other ranks.
constexpr std::chrono::microseconds kLookAtDevice{50};
constexpr std::chrono::milliseconds kLookAtOthers{100};

std::string AddressText(const SharedMemory::Address& address, const SharedMemory::Size& size) {
  return absl::StrCat(address.process, " ", address.descriptor, " ", address.cookie, " ",
                      size.bytes + size.common);
}

absl::StatusOr<SharedMemory::Address> ReadAddress(const std::string& text,
                                                  const SharedMemory::Size& size) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  SharedMemory::Address address;
  uint64_t bytes = 0;
  if (words.size() != 4 || !absl::SimpleAtoi(words[0], &address.process) ||
      !absl::SimpleAtoi(words[1], &address.descriptor) ||
      !absl::SimpleAtoi(words[2], &address.cookie) || !absl::SimpleAtoi(words[3], &bytes)) {
    return absl::UnavailableError(text);  // The text is rank 0's reason for having no memory.
  }
  if (bytes != size.bytes + size.common) return absl::UnavailableError("rank 0 has other buckets");
  return address;
}

// Returns the bytes, cut or padded with zeros to `size`.
at::Tensor AsTensor(const std::string& bytes, int64_t size) {
  at::Tensor tensor = at::zeros({size}, at::kByte);
  std::copy_n(bytes.begin(), std::min<int64_t>(size, std::ssize(bytes)),
              tensor.mutable_data_ptr<uint8_t>());
  return tensor;
}

std::string AsString(const at::Tensor& bytes) {
  const auto* const data = bytes.const_data_ptr<uint8_t>();
  return {data, data + bytes.numel()};
}

c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> GlooOptions(const RankPlace& place,
                                                                const RankOptions& options) {
  using Options = c10d::ProcessGroupGloo::Options;
  if (place.listen.empty()) return Options::create_default(options.timeout);
  c10::intrusive_ptr<Options> gloo = Options::create(options.timeout);
  gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(place.listen));
  return gloo;
}

}  // namespace

struct RankGroup::Connection {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  // Set if the ranks' GPUs exchange directly.
  std::unique_ptr<Communicator> communicator;
  std::optional<NeighbourWatch> watch;
};

// A transport that runs each bucket as one all-reduce in Gloo's threads over TCP.
class RankGroup::GlooTransport : public BucketTransport {
 public:
  GlooTransport(RankGroup& ranks, const std::vector<BucketSize>& sizes)
      : ranks_(ranks), works_(sizes.size()) {
    for (const BucketSize& size : sizes) {
      buffers_.push_back(at::zeros({size.elements}, at::dtype(size.type)));
    }
  }
  // Waits, because a running sum writes to its buffer.
  ~GlooTransport() override {
    for (const auto& work : works_) {
      try {
        if (work != nullptr) work->wait();
      } catch (const std::exception&) {
        continue;  // Already thrown by Await.
      }
    }
  }

  const at::Tensor& buffer(size_t bucket) const override { return buffers_[bucket]; }
  void Begin(size_t bucket) override {
    ranks_.Together("add up gradients", [&] {
      std::vector<at::Tensor> sums = {buffers_[bucket]};
      works_[bucket] = ranks_.connection_->gloo->allreduce(sums);
    });
  }
  void Await(size_t bucket) override {
    const auto work = std::exchange(works_[bucket], nullptr);
    ranks_.Together("add up gradients", [&] { work->wait(); });
  }

 private:
  RankGroup& ranks_;
  std::vector<at::Tensor> buffers_;
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

RankGroup::RankGroup() = default;

RankGroup::RankGroup(const RankPlace& place, const RankOptions& options)
    : RankGroup(place, ConnectStore(place, options.timeout, options.tell), options) {}

RankGroup::RankGroup(const RankPlace& place, const c10::intrusive_ptr<c10d::Store>& store,
                     const RankOptions& options)
    : place_(place), options_(options), connection_(std::make_unique<Connection>()) {
  SilenceC10d();
  connection_->store =
      c10::make_intrusive<c10d::PrefixStore>(absl::StrCat("genesis/", place_.attempt), store);
  const char* const task = "join the others";
  const bool first_here = Together(task, [&] {
    connection_->store->setTimeout(options_.timeout);
    return TellPresence(*connection_->store, place_.rank);
  });
  if (!first_here) {
    FailAs(place_, task,
           "another process already has this rank; use a separate MASTER_PORT for each launch, and "
           "a separate rank for each process");
  }
  Together(task, [&] {
    // Only rank 0 waits. Otherwise each rank would query the store about every other rank.
    if (first()) {
      AwaitPresence(*connection_->store, place_.size, options_.timeout, kTellWaitingEvery,
                    options_.tell);
    }
    connection_->gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
        connection_->store, place_.rank, place_.size, GlooOptions(place_, options_));
  });
}

RankGroup::~RankGroup() = default;

// Runs `work`. An exception of c10d or Gloo means that the group is broken.
template <typename Work>
std::invoke_result_t<Work> RankGroup::Together(const char* task, const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    Fail(task, error);
  }
}

// Aborts collectives: those that wait for a lost rank block threads that free GPU memory.
void RankGroup::AbortDevices() {
  if (connection_->communicator != nullptr) connection_->communicator->Abort();
}

void RankGroup::Fail(const char* task, const std::exception& error) {
  AbortDevices();
  const std::string missing = FindMissingRanks(connection_->store, place_.rank, place_.size);
  FailAs(place_, task, absl::StrCat(missing, " (", ExplainException(error).message, ")"));
}

void RankGroup::Fail(const char* task, int rank, const std::string& fault) {
  AbortDevices();
  const std::string words = FindMissingRanks(connection_->store, place_.rank, place_.size);
  if (absl::StrContains(words, " failed: ")) FailAs(place_, task, words);
  FailAs(place_, task, absl::StrCat("rank ", rank, " ", fault, "; its log says why"));
}

void RankGroup::TellFailure(const std::string& message) {
  try {
    TellEnd(*connection_->store, place_.rank, message);
  } catch (const std::exception&) {
    return;  // The other ranks will notice that this rank has ended.
  }
}

std::unique_ptr<BucketTransport> RankGroup::MakeTransport(const std::vector<BucketSize>& buckets,
                                                          size_t common, at::Device device,
                                                          std::string* text) {
  const std::string no_devices = ConnectDevices();
  if (no_devices.empty()) {
    *text = "NCCL";
    return std::make_unique<CommunicatorTransport>(*this, *connection_->communicator, buckets,
                                                   device);
  }
  const std::string detour =
      device.is_cpu() ? "" : absl::StrCat(" and memory of the host, because ", no_devices);
  std::string why_not;
  std::unique_ptr<BucketTransport> transport = ShareMemory(buckets, common, &why_not);
  if (transport != nullptr) {
    *text = "shared memory" + detour;
    return transport;
  }
  *text = detour.empty() ? absl::StrCat("Gloo, because ", why_not) : "Gloo" + detour;
  return std::make_unique<GlooTransport>(*this, buckets);
}

std::string RankGroup::FirstFault(const std::string& own) {
  for (const std::string& fault : FromAll(own)) {
    if (!fault.empty()) return fault;
  }
  return "";
}

// Returns "" and sets up a communicator, or returns why there is none. All ranks get the same
// result, even if only one of them fails.
std::string RankGroup::ConnectDevices() {
  if (connection_->communicator != nullptr) return "";
  std::string fault = FirstFault(
      options_.communicators != nullptr
          ? ""
          : absl::StrCat("rank ", place_.rank, " has no NCCL: ", options_.no_communicator));
  if (!fault.empty()) return fault;
  const auto attempt = [&](const std::function<void()>& work) {
    std::string own;
    try {
      work();
    } catch (const std::exception& error) {
      own = absl::StrCat("rank ", place_.rank, " cannot use NCCL: ",
                         OneLine(ExplainException(error).message, kMaxMessageBytes));
    }
    return FirstFault(own);
  };
  std::string id;
  fault = attempt([&] {
    if (first()) id = options_.communicators->NewId();
  });
  if (!fault.empty()) return fault;
  const CommunicatorFactory::Options options{
      .id = FromFirst(id),
      .rank = place_.rank,
      .size = place_.size,
      .timeout = std::min(options_.timeout, kCommunicatorTimeout)};
  fault = attempt([&] { connection_->communicator = options_.communicators->Make(options); });
  if (fault.empty()) {
    connection_->watch.emplace(*connection_->gloo);
  } else {
    connection_->communicator.reset();
  }
  return fault;
}

// Uses three exchanges so that all ranks get the same result, even if only one of them fails.
std::unique_ptr<BucketTransport> RankGroup::ShareMemory(const std::vector<BucketSize>& buckets,
                                                        size_t common, std::string* why_not) {
  *why_not = FirstFault(options_.shared_memory ? "" : "GENESIS_SHARED_MEMORY is false");
  if (!why_not->empty()) return nullptr;
  const SharedMemory::Size size = SharedMemoryTransport::SizeOf(buckets, place_.size, common);
  absl::StatusOr<std::unique_ptr<SharedMemory>> memory = absl::UnavailableError("");
  std::string told;
  if (first()) {
    memory = SharedMemory::Create(size, place_.rank);
    told = memory.ok() ? AddressText((*memory)->address(), size)
                       : std::string(memory.status().message());
  }
  const absl::StatusOr<SharedMemory::Address> address = ReadAddress(FromFirst(told), size);
  if (!first()) {
    memory = address.ok() ? SharedMemory::Open(*address, size, place_.rank)
                          : absl::StatusOr<std::unique_ptr<SharedMemory>>(address.status());
  }
  *why_not = FirstFault(memory.ok() ? ""
                                    : absl::StrCat("rank ", place_.rank, " has none (",
                                                   memory.status().message(), ")"));
  if (!why_not->empty()) return nullptr;
  return std::make_unique<SharedMemoryTransport>(*this, *std::move(memory), buckets, common);
}

void RankGroup::CopyFrom(int rank, const std::vector<at::Tensor>& tensors) {
  if (alone()) return;
  const at::NoGradGuard no_grad;
  std::map<at::ScalarType, std::vector<at::Tensor>> by_type;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() > 0) by_type[tensor.scalar_type()].push_back(tensor);
  }
  Together("take the weights of another rank", [&] {
    for (const auto& [type, group] : by_type) {
      // Combine tensors into one message, because each costs a tenth of a millisecond.
      for (auto begin = group.begin(); begin != group.end();) {
        std::vector<at::Tensor> pieces;
        const auto first = begin;
        for (int64_t size = 0; begin != group.end() && size < kMaxMessage; ++begin) {
          pieces.push_back(begin->detach().reshape(-1));
          size += begin->numel();
        }
        const at::Tensor flat = at::cat(pieces);
        Broadcast(rank, flat);
        if (place_.rank == rank) continue;
        int64_t offset = 0;
        for (auto tensor = first; tensor != begin; offset += tensor->numel(), ++tensor) {
          tensor->copy_(flat.narrow(0, offset, tensor->numel()).view(tensor->sizes()));
        }
      }
    }
  });
}

void RankGroup::CopyFromFirst(google::protobuf::MessageLite& message) {
  if (!alone()) message.ParseFromString(FromFirst(message.SerializeAsString()));
}

// Call within Together.
void RankGroup::Broadcast(int rank, const at::Tensor& flat) {
  if (connection_->communicator != nullptr && !flat.is_cpu()) {
    connection_->communicator->Broadcast(flat, rank);
    connection_->communicator->Join();
    return;
  }
  c10d::BroadcastOptions options;
  options.rootRank = rank;
  std::vector<at::Tensor> sent = {flat.cpu()};
  connection_->gloo->broadcast(sent, options)->wait();
  if (!flat.is_cpu()) flat.copy_(sent.front());
}

void RankGroup::Sum(const at::Tensor& tensor) {
  if (alone()) return;
  Together("agree with the others", [&] {
    std::vector<at::Tensor> sums = {tensor};
    connection_->gloo->allreduce(sums)->wait();
  });
}

void RankGroup::AwaitDevice(const std::function<bool()>& ready) {
  using Clock = std::chrono::steady_clock;
  Communicator& communicator = *connection_->communicator;
  const auto begin = Clock::now();
  auto look = begin + kLookAtOthers;
  std::string fault;
  while (fault.empty() && !ready()) {
    std::this_thread::sleep_for(kLookAtDevice);
    const auto now = Clock::now();
    if (now < look) continue;
    look = now + kLookAtOthers;
    fault = communicator.Fault();
    if (fault.empty() && connection_->watch->gone()) fault = "its connection has ended";
    if (fault.empty() && now - begin > options_.timeout) {
      fault = absl::StrFormat("its GPU waits for theirs since %g s",
                              std::chrono::duration<double>(options_.timeout).count());
    }
  }
  if (fault.empty()) fault = communicator.Fault();
  if (fault.empty()) return;
  Fail("add up gradients", std::runtime_error(fault));
}

at::Tensor RankGroup::Fetch(const at::Tensor& tensor) {
  if (connection_->communicator != nullptr && !tensor.is_cpu()) {
    const c10::DeviceType type = tensor.device().type();
    c10::Event event(type);
    event.record(c10::impl::VirtualGuardImpl(type).getStream(tensor.device()));
    AwaitDevice([&event] { return event.query(); });
  }
  return tensor.to(at::kCPU);
}

void RankGroup::SendToFirst(int rank, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  Together("send to rank 0", [&] {
    std::vector<at::Tensor> sent = {tensor.detach().cpu().contiguous()};
    if (place_.rank == rank) {
      connection_->gloo->send(sent, /*dstRank=*/0, /*tag=*/0)->wait();
    } else {
      connection_->gloo->recv(sent, rank, /*tag=*/0)->wait();
      tensor.copy_(sent.front());
    }
  });
}

std::string RankGroup::FromFirst(const std::string& own) {
  if (alone()) return own;
  return Together("ask rank 0", [&] {
    std::vector<at::Tensor> size = {at::tensor({std::ssize(own)}, at::kLong)};
    connection_->gloo->broadcast(size)->wait();
    std::vector<at::Tensor> bytes = {AsTensor(own, size.front().item<int64_t>())};
    if (bytes.front().numel() > 0) connection_->gloo->broadcast(bytes)->wait();
    return AsString(bytes.front());
  });
}

// Call within Together.
std::vector<at::Tensor> RankGroup::Gather(const at::Tensor& own) {
  std::vector<at::Tensor> mine = {own};
  std::vector<std::vector<at::Tensor>> all(1);
  for (int rank = 0; rank < place_.size; ++rank) all[0].push_back(at::empty_like(own));
  connection_->gloo->allgather(all, mine)->wait();
  return all[0];
}

std::vector<std::string> RankGroup::FromAll(const std::string& own) {
  if (alone()) return {own};
  return Together("ask the others", [&] {
    std::vector<int64_t> sizes;
    for (const at::Tensor& size : Gather(at::tensor({std::ssize(own)}, at::kLong))) {
      sizes.push_back(size.item<int64_t>());
    }
    // Pad to one size, as the collective requires.
    const int64_t longest = std::max<int64_t>(*std::max_element(sizes.begin(), sizes.end()), 1);
    std::vector<std::string> texts;
    for (const at::Tensor& bytes : Gather(AsTensor(own, longest))) {
      texts.push_back(AsString(bytes.narrow(0, 0, sizes[texts.size()])));
    }
    return texts;
  });
}

at::Tensor RankGroup::JoinAll(const at::Tensor& own) {
  if (alone()) return own.to(at::kCPU, at::kFloat).flatten();
  const at::NoGradGuard no_grad;
  const at::Tensor flat = Fetch(own).to(at::kFloat).contiguous().flatten();
  return Together("exchange losses", [&] { return at::cat(Gather(flat)); });
}

void RankGroup::Await() {
  if (alone()) return;
  Together("wait for the others", [&] { connection_->gloo->barrier()->wait(); });
}

}  // namespace genesis
