#include "trainer/worker/rank_run.h"
#include "trainer/run/training_run.h"

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
#include "trainer/cuda/cuda_plugin.h"
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

// Requires one version, because two may exchange different messages or round differently.
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

// Returns the first field that differs: "training.batch_size: 32 -> 64".
std::string Difference(const StartJob& first, const StartJob& other) {
  std::string text;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&text);
  differencer.Compare(first.spec(), other.spec());
  return OneLine(text.substr(0, text.find('\n')), kMaxMessageBytes);
}

// Returns one job for all ranks: that of rank 0, or that of a rank whose host allows no reduced
// precision, because any host can forbid it. Rank 0 decides where to resume from because other
// ranks may see a file later.
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

// Returns whether a feature is enabled, by its environment variable.
bool Wanted(const char* name, std::string* fault) {
  const std::string value = ProcessEnvironment(name).value_or("true");
  if (value != "true" && value != "false") {
    *fault = absl::StrCat(name, " is \"", OneLine(value, kMaxNameBytes),
                          "\"; accepted: exactly true or false");
  }
  return value == "true";
}

// Combines the job's settings with the environment: GENESIS_SHARED_MEMORY=false forces Gloo,
// GENESIS_NCCL=false exchanges gradients of GPUs through host memory. Sets `fault` if a value is
// neither true nor false.
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

// Runs the job. A `fault` of this rank's environment fails it here, after it has joined, so that
// the other ranks are notified.
Finished RunWith(RankGroup& ranks, const std::string& fault, const StartJob& start,
                 const training::v1::DeviceInfo& device, RunControl& control,
                 RunObserver& observer) {
  try {
    if (!fault.empty()) throw RunFailure{training::v1::FAILURE_CAUSE_CONFIG, fault};
    RequireOneVersion(ranks);
    StartJob job = Common(ranks, start);
    // One trace file is enough.
    if (!ranks.first()) job.mutable_spec()->clear_trace();
    return RunTraining(job, device, control, observer, ranks);
  } catch (const RunFailure& failure) {
    return FailedRun(failure);
  }
}

// Reports to the other ranks, which are still waiting, why this rank ends.
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

// Makes NCCL use Gloo's network interface. NCCL reads the variable when it first connects.
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
    // Printed here, because the observer of ranks other than rank 0 prints nothing.
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
