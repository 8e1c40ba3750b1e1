#include "trainer/distributed/rank_group.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/runtime/run_failure.h"

// As LibTorch was built; its CMake package would say so.
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace genesis {
namespace {

// Its layout was read with the names of Gloo alone (gloo_names/names.h).
#if defined(__x86_64__)
static_assert(sizeof(c10d::ProcessGroupGloo) == 488);
#endif

// As c10d's own for Gloo. Longer than a rank may take between two exchanges: loading its data,
// evaluating.
constexpr std::chrono::minutes kPatience{30};
constexpr int64_t kControlFlags = 4;

c10::intrusive_ptr<c10d::Store> ConnectStore(const RankPlace& place) {
  c10d::TCPStoreOptions options;
  options.port = place.port;
  options.isServer = place.rank == 0 && !place.agent_store;
  options.waitWorkers = false;
  options.timeout = kPatience;
  return c10::make_intrusive<c10d::TCPStore>(place.address, options);
}

// An exception of c10d or Gloo means that the group is no more.
template <typename Work>
auto Together(const RankPlace& place, const char* what, const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    throw RunFailure{
        training::v1::FAILURE_CAUSE_WORKER_EXIT,
        absl::StrCat(
            "rank ", place.rank, " of ", place.size, " cannot ", what,
            ": another rank has ended or cannot be reached; the log of the rank that ended "
            "first says why (",
            ExplainException(error).message, ")")};
  }
}

}  // namespace

struct RankGroup::Connection {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
};

RankGroup::RankGroup(const RankPlace& place)
    : RankGroup(place, Together(place, "find the others", [&] { return ConnectStore(place); })) {}

RankGroup::RankGroup(const RankPlace& place, const c10::intrusive_ptr<c10d::Store>& store)
    : place_(place), connection_(std::make_unique<Connection>()) {
  Together(place_, "join the others", [&] {
    connection_->store =
        c10::make_intrusive<c10d::PrefixStore>(absl::StrCat("genesis/", place_.attempt), store);
    connection_->gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
        connection_->store, place_.rank, place_.size,
        c10d::ProcessGroupGloo::Options::create_default(kPatience));
  });
}

RankGroup::~RankGroup() = default;

at::Tensor RankGroup::Average(const std::vector<at::Tensor>& gradients, const at::Tensor& loss) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  int64_t count = 1;
  for (const at::Tensor& gradient : gradients) {
    parts.push_back(gradient.reshape(-1));
    count += gradient.numel();
  }
  parts.push_back(loss.detach().to(at::kFloat).reshape(1));
  if (!buffer_.defined()) buffer_ = at::empty({count + kControlFlags}, at::kFloat);
  at::Tensor metrics = buffer_.narrow(0, 0, count);
  if (loss.is_cpu()) {
    at::cat_out(metrics, parts);
  } else {
    metrics.copy_(at::cat(parts));
  }
  float* const flags = buffer_.mutable_data_ptr<float>() + count;
  flags[0] = mine_.stop ? 1 : 0;
  flags[1] = mine_.checkpoint ? 1 : 0;
  flags[2] = mine_.time_is_up ? 1 : 0;
  flags[3] = static_cast<float>(mine_.seconds);

  Together(place_, "add up gradients", [&] {
    std::vector<at::Tensor> sums = {buffer_};
    connection_->gloo->allreduce(sums)->wait();
  });

  agreed_ = {.stop = flags[0] > 0,
             .checkpoint = flags[1] > 0,
             .time_is_up = flags[2] > 0,
             .seconds = flags[3] / place_.size};
  metrics.div_(place_.size);
  const at::Tensor means = metrics.to(loss.device());
  int64_t begin = 0;
  for (const at::Tensor& gradient : gradients) {
    gradient.copy_(means.narrow(0, begin, gradient.numel()).view(gradient.sizes()));
    begin += gradient.numel();
  }
  return means.select(0, begin).clone();
}

void RankGroup::CopyFromFirst(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  Together(place_, "take the weights of rank 0", [&] {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.numel() == 0) continue;
      std::vector<at::Tensor> sent = {tensor.detach().cpu().contiguous()};
      connection_->gloo->broadcast(sent)->wait();
      if (!first()) tensor.copy_(sent.front());
    }
  });
}

std::string RankGroup::NextKey() { return absl::StrCat("exchange/", ++exchanges_); }

std::string RankGroup::FromFirst(const std::string& own) {
  const std::string key = NextKey();
  return Together(place_, "ask rank 0", [&] {
    if (first()) {
      connection_->store->set(key, own);
      return own;
    }
    return connection_->store->get_to_str(key);
  });
}

std::vector<std::string> RankGroup::FromAll(const std::string& own) {
  const std::string key = NextKey();
  return Together(place_, "ask the others", [&] {
    connection_->store->set(absl::StrCat(key, "/", place_.rank), own);
    std::vector<std::string> all;
    for (int rank = 0; rank < place_.size; ++rank) {
      all.push_back(connection_->store->get_to_str(absl::StrCat(key, "/", rank)));
    }
    return all;
  });
}

void RankGroup::Await() {
  Together(place_, "wait for the others", [&] { connection_->gloo->barrier()->wait(); });
}

}  // namespace genesis
