#include "trainer/distributed/rank_place.h"

#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text/field_error.h"
#include "trainer/distributed/slurm_lists.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {
namespace {

constexpr int kMaxRanks = 65536;
// Range of ports from which a Slurm job takes one by its number, so that two jobs on a host do not
// collide.
constexpr int64_t kFirstJobPort = 20000;
constexpr int64_t kJobPorts = 10000;

// A launcher of ranks: the variables that identify the rank of a process.
struct Launcher {
  const char* size;
  const char* rank;
  const char* local_rank;
  const char* local_size;
  const char* advice;  // How its ranks get the missing variables.
  bool slurm = false;  // Uses lists of hosts and tasks instead of local_size, and has a job number.
};

// In order of precedence: a launcher comes before those that may have started it, so if srun starts
// torchrun, the variables of torchrun count.
constexpr Launcher kLaunchers[] = {
    {"WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "torchrun sets them all"},
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "mpirun hands on what -x MASTER_ADDR=<host> names"},
    {"PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS",
     "mpiexec hands on what -genv MASTER_ADDR <host> names"},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE",
     "srun hands on the variables of the shell that calls it", /*slurm=*/true},
};

// A reader of variables that collects their errors.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  bool Has(const std::string& name) const { return environment_(name).has_value(); }
  std::string Text(const std::string& name) const { return environment_(name).value_or(""); }

  // Returns `fallback` if the variable is not set. Without a fallback the variable is required.
  int Number(const std::string& name, int least, int most, std::optional<int> fallback) {
    const std::optional<std::string> text = environment_(name);
    if (!text && fallback) return *fallback;
    int value = 0;
    if (text && absl::SimpleAtoi(*text, &value) && value >= least && value <= most) return value;
    faults_.push_back(absl::StrCat(name,
                                   text ? absl::StrCat(" is ", QuoteValue(*text)) : " is not set",
                                   "; accepted: ", least, " to ", most));
    return least;
  }

  std::string Needed(const std::string& name, const std::string& accepted) {
    const std::string text = Text(name);
    if (text.empty()) faults_.push_back(absl::StrCat(name, " is not set; accepted: ", accepted));
    return text;
  }

  std::string Gpu(int local_rank) {
    const std::string visible = Text("CUDA_VISIBLE_DEVICES");
    if (visible.empty()) return absl::StrCat(local_rank);
    const std::vector<std::string> gpus = absl::StrSplit(visible, ',');
    // A launcher that binds GPUs gives each rank its own.
    if (gpus.size() == 1) return gpus.front();
    if (static_cast<size_t>(local_rank) < gpus.size()) return gpus[static_cast<size_t>(local_rank)];
    faults_.push_back(absl::StrCat("CUDA_VISIBLE_DEVICES is ", QuoteValue(visible),
                                   " and LOCAL_RANK is ", local_rank,
                                   "; accepted: a GPU for each rank of the host"));
    return "";
  }

  absl::Status status(const Launcher& launcher, int size) const {
    if (faults_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(launcher.size, " is ", size, ", so this is one of several ranks, but ",
                     absl::StrJoin(faults_, "; "), ". ", launcher.advice,
                     "; to train alone, unset ", launcher.size));
  }

 private:
  const Environment& environment_;
  std::vector<std::string> faults_;
};

const Launcher* FindLauncher(const Variables& variables) {
  for (const Launcher& launcher : kLaunchers) {
    if (variables.Has(launcher.size)) return &launcher;
  }
  return nullptr;
}

// Sets where rank 0 serves the store, as far as the launcher defines it.
void FindStore(const Launcher& launcher, Variables& variables, RankPlace& place) {
  const int most = std::numeric_limits<uint16_t>::max();
  int64_t job = 0;
  if (launcher.slurm && absl::SimpleAtoi(variables.Text("SLURM_JOB_ID"), &job)) {
    const int port = static_cast<int>(kFirstJobPort + job % kJobPorts);
    place.port = static_cast<uint16_t>(variables.Number("MASTER_PORT", 1, most, port));
    place.address = variables.Text("MASTER_ADDR");
    if (place.address.empty()) place.address = FirstHost(variables.Text("SLURM_STEP_NODELIST"));
    place.attempt = absl::StrCat(
        "slurm-", job, "-", variables.Text("SLURM_STEP_ID"), "/",
        variables.Has("SLURM_RESTART_COUNT") ? variables.Text("SLURM_RESTART_COUNT") : "0");
    if (!place.address.empty()) return;
  }
  place.address = variables.Needed("MASTER_ADDR", "the host where rank 0 runs");
  place.port = static_cast<uint16_t>(variables.Number("MASTER_PORT", 1, most, std::nullopt));
  place.agent_store = variables.Text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  place.attempt = absl::StrCat(variables.Text("TORCHELASTIC_RUN_ID"), "/",
                               variables.Text("TORCHELASTIC_RESTART_COUNT"));
}

}  // namespace

void FailAs(const RankPlace& place, const char* task, const std::string& why) {
  throw RunFailure{
      training::v1::FAILURE_CAUSE_WORKER_EXIT,
      absl::StrCat("rank ", place.rank, " of ", place.size, " cannot ", task, ": ", why)};
}

absl::StatusOr<RankPlace> ReadRankPlace(const Environment& environment) {
  RankPlace place;
  Variables variables(environment);
  const Launcher* const launcher = FindLauncher(variables);
  if (launcher == nullptr) return place;
  place.size_variable = launcher->size;
  const std::string size = variables.Text(launcher->size);
  if (!absl::SimpleAtoi(size, &place.size) || place.size < 1 || place.size > kMaxRanks) {
    return absl::InvalidArgumentError(absl::StrCat(launcher->size, " is ", QuoteValue(size),
                                                   "; accepted: 1 to ", kMaxRanks,
                                                   ", or not set to train alone"));
  }
  if (place.size == 1) return place;
  place.rank = variables.Number(launcher->rank, 0, place.size - 1, std::nullopt);
  place.local_rank = variables.Number(launcher->local_rank, 0, place.size - 1, 0);
  place.local_size = launcher->slurm
                         ? TasksOfNode(variables.Text(launcher->local_size),
                                       variables.Number("SLURM_NODEID", 0, kMaxRanks, 0))
                         : variables.Number(launcher->local_size, 1, place.size, 1);
  place.gpu = variables.Gpu(place.local_rank);
  FindStore(*launcher, variables, place);
  if (absl::Status status = variables.status(*launcher, place.size); !status.ok()) return status;
  return place;
}

}  // namespace genesis
