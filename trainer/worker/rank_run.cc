#include "trainer/worker/rank_run.h"

#include <torch/version.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/environment.h"
#include "base/local_address.h"
#include "base/program_dir.h"
#include "base/text/text.h"
#include "base/version.h"
#include "google/protobuf/util/message_differencer.h"
#include "trainer/accel/cuda_plugin.h"
#include "trainer/distributed/rank_group.h"
#include "trainer/distributed/rank_proof.h"
#include "trainer/runtime/run_failure.h"
#include "trainer/worker/daemon_store.h"

namespace genesis {
namespace {

using training::v1::Finished;
using training::v1::StartJob;

bool IsFp32(const StartJob& start) {
  return start.precision().mode() == training::v1::PRECISION_MODE_FP32;
}

// Programs of two versions may exchange other things, or round otherwise.
void RequireOneVersion(RankGroup& ranks) {
  const std::string own =
      absl::StrCat("genesis-worker ", kVersion, " with LibTorch ", TORCH_VERSION);
  const std::vector<std::string> all = ranks.FromAll(own);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all.front()) continue;
    throw RunFailure{
        training::v1::FAILURE_CAUSE_CONFIG,
        absl::StrCat("rank ", rank, " is ", OneLine(all[rank], kMaxNameBytes), " and rank 0 is ",
                     OneLine(all.front(), kMaxNameBytes), "; all ranks need the same version")};
  }
}

// The first field that differs: "training.batch_size: 32 -> 64".
std::string Difference(const StartJob& first, const StartJob& other) {
  std::string text;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&text);
  differencer.Compare(first.spec(), other.spec());
  return OneLine(text.substr(0, text.find('\n')), kMaxMessageBytes);
}

// One job for all ranks: as rank 0 was given it, or a rank on a host that allows no reduced
// precision, for any no wins. Where to resume from is what rank 0 sees: another may see a file
// later.
StartJob Common(RankGroup& ranks, const StartJob& own) {
  StartJob common;
  StartJob first;
  int rank = 0;
  for (const std::string& text : ranks.FromAll(own.SerializeAsString())) {
    StartJob told;
    told.ParseFromString(text);
    if (!common.has_spec()) common = first = told;
    if (const std::string difference = Difference(first, told); !difference.empty()) {
      throw RunFailure{training::v1::FAILURE_CAUSE_CONFIG,
                       absl::StrCat("rank ", rank, " was given another job than rank 0 (",
                                    difference, "); give all ranks the same job file")};
    }
    if (IsFp32(told) && !IsFp32(common)) {
      common = told;
      auto& precision = *common.mutable_precision();
      precision.set_reason(absl::StrCat(precision.reason(), " (rank ", rank, ")"));
    }
    ++rank;
  }
  *common.mutable_resume_from() = first.resume_from();
  return common;
}

// A variable of the environment that switches something off.
bool Wanted(const char* name, std::string* fault) {
  const std::string value = ProcessEnvironment(name).value_or("true");
  if (value != "true" && value != "false") {
    *fault = absl::StrCat(name, " is \"", OneLine(value, kMaxNameBytes),
                          "\"; accepted: exactly true or false");
  }
  return value == "true";
}

// As the job says, and the environment: GENESIS_SHARED_MEMORY=false keeps to Gloo,
// GENESIS_NCCL=false keeps gradients of GPUs to memory of the host. Sets `fault` for another value.
RankOptions RankOptionsOf(const training::v1::JobSpec& spec, const training::v1::DeviceInfo& device,
                          std::string* fault) {
  RankOptions options;
  const double seconds = spec.distributed().timeout_seconds();
  if (seconds > 0) options.timeout = std::chrono::milliseconds(std::llround(1000 * seconds));
  options.shared_memory = Wanted("GENESIS_SHARED_MEMORY", fault);
  if (!Wanted("GENESIS_NCCL", fault)) {
    options.no_communicator = "GENESIS_NCCL is false";
  } else if (device.cuda()) {
    options.communicators = NcclCommunicators(ProgramDir(), &options.no_communicator);
  }
  return options;
}

// A `fault` of this rank's environment fails it here, among the others, so that they hear of it.
Finished RunWith(RankGroup& ranks, const std::string& fault, const StartJob& start,
                 const training::v1::DeviceInfo& device, RunControl& control,
                 RunObserver& observer) {
  try {
    if (!fault.empty()) throw RunFailure{training::v1::FAILURE_CAUSE_CONFIG, fault};
    RequireOneVersion(ranks);
    StartJob job = Common(ranks, start);
    // One file of it is enough.
    if (!ranks.first()) job.mutable_spec()->clear_trace();
    return RunTraining(job, device, control, observer, &ranks);
  } catch (const RunFailure& failure) {
    return FailedRun(failure);
  }
}

// Tells the others, who are still waiting, why this rank ends.
void TellOwnFault(RankGroup& ranks, const Finished& finished) {
  const bool own_fault = finished.outcome() == Finished::OUTCOME_FAILED &&
                         finished.failure().cause() != training::v1::FAILURE_CAUSE_WORKER_EXIT;
  if (own_fault) ranks.TellFailure(finished.failure().message());
}

RankPlace PlaceOf(const training::v1::RankAssignment& rank, const std::string& daemon_host) {
  RankPlace place;
  place.rank = rank.rank();
  place.size = rank.size();
  place.local_rank = rank.local_rank();
  place.local_size = rank.local_size();
  place.listen = rank.address();
  if (!place.listen.empty()) return place;
  const absl::StatusOr<std::string> address = LocalAddressTo(daemon_host);
  if (!address.ok()) {
    throw RunFailure{training::v1::FAILURE_CAUSE_CONFIG,
                     absl::StrCat("rank ", rank.rank(), " has no address for the other ranks: ",
                                  address.status().message())};
  }
  place.listen = *address;
  return place;
}

// NCCL listens where Gloo does; it reads the variable when it first connects.
void KeepNcclTo(const std::string& address) {
  const std::string interface = InterfaceOf(address);
  if (!interface.empty()) setenv("NCCL_SOCKET_IFNAME", ("=" + interface).c_str(), /*overwrite=*/0);
}

}  // namespace

Finished RunRank(const StartJob& start, const RankPlace& place,
                 const training::v1::DeviceInfo& device, RunControl& control,
                 RunObserver& observer) {
  try {
    std::string fault;
    RankOptions options = RankOptionsOf(start.spec(), device, &fault);
    // The observer of a rank that is not the first says nothing.
    options.tell = [&place](const std::string& line) {
      std::cout << "rank " << place.rank << ": " << line << std::endl;
    };
    RankGroup ranks(place, options);
    const Finished finished = RunWith(ranks, fault, start, device, control, observer);
    TellOwnFault(ranks, finished);
    return finished;
  } catch (const RunFailure& failure) {
    return FailedRun(failure);
  }
}

Finished RunGangRank(const StartJob& start, const std::shared_ptr<RankStoreClient>& store,
                     const std::string& daemon_host, const training::v1::DeviceInfo& device,
                     RunControl& control, RunObserver& observer) {
  try {
    const training::v1::RankAssignment& rank = start.rank();
    const RankPlace place = PlaceOf(rank, daemon_host);
    observer.OnLog(absl::StrCat("rank ", place.rank, " of ", place.size, ", at ", place.listen));
    std::string fault;
    RankOptions options = RankOptionsOf(start.spec(), device, &fault);
    options.tell = [&observer](const std::string& line) { observer.OnLog(line); };
    if (options.communicators != nullptr) KeepNcclTo(place.listen);
    RankGroup ranks(place, c10::make_intrusive<DaemonStore>(store, options.timeout), options);
    ProveSecret(ranks, rank.secret(), {rank.devices().begin(), rank.devices().end()});
    const Finished finished = RunWith(ranks, fault, start, device, control, observer);
    TellOwnFault(ranks, finished);
    return finished;
  } catch (const RunFailure& failure) {
    return FailedRun(failure);
  }
}

}  // namespace genesis
