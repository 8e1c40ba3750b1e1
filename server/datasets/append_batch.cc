#include "server/datasets/append_batch.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/field_error.h"
#include "config/job/job_spec.h"

namespace genesis {
namespace {

using training::v1::AppendTrajectoriesRequest;

constexpr int64_t kMaxCapacity = int64_t{1} << 40;

absl::Status ToStatus(const std::vector<std::string>& faults) {
  if (faults.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(faults, "\n"));
}

// A collector of the errors of one message. Each error names its batch.
class BatchCheck {
 public:
  BatchCheck(const AppendTrajectoriesRequest& request, const AppendTarget& target)
      : request_(request), target_(target) {}

  absl::Status Check() {
    if (request_.batch_id().empty() || request_.batch_id().size() > kMaxBatchId) {
      return absl::InvalidArgumentError(absl::StrCat("batch_id has ", request_.batch_id().size(),
                                                     " bytes; accepted: 1 to ", kMaxBatchId));
    }
    if (!request_.dataset().empty() && request_.dataset() != target_.dataset) {
      Add(absl::StrCat("dataset is ", QuoteValue(request_.dataset()), "; accepted in this stream: ",
                       QuoteValue(target_.dataset), " or none; open a stream per dataset"));
    }
    Same("observation_size", request_.observation_size(), target_.layout.observation_size);
    Same("action_size", request_.action_size(), target_.layout.action_size);
    Same("capacity", request_.capacity(), target_.capacity);
    if (request_.rewards().empty()) {
      Add("rewards has no number; accepted: one for each of at least 1 transition");
      return ToStatus(faults_);
    }
    const ReplayLayout& layout = target_.layout;
    Column("observations", request_.observations_size(), layout.observation_size,
           "observation_size");
    Column("actions", request_.actions_size(), layout.action_size, "action_size");
    Column("next_observations", request_.next_observations_size(), layout.observation_size,
           "observation_size");
    Optional("terminals", request_.terminals_size());
    Optional("timeouts", request_.timeouts_size());
    Optional("priorities", request_.priorities_size());
    return ToStatus(faults_);
  }

 private:
  void Add(const std::string& fault) {
    faults_.push_back(absl::StrCat("batch ", QuoteValue(request_.batch_id()), ": ", fault));
  }

  void Same(const char* field, int64_t value, int64_t want) {
    if (value == 0 || value == want) return;
    Add(absl::StrCat(field, " is ", value, "; accepted in this stream: ",
                     want == 0 ? "none, as in the first message"
                               : absl::StrCat(want, ", as in the first message, or none")));
  }

  void Column(const char* field, int64_t size, int64_t width, const char* width_name) {
    const int64_t rewards = request_.rewards_size();
    if (size == rewards * width) return;
    Add(absl::StrCat(field, " has ", size, " numbers; accepted: ", rewards * width, " (", rewards,
                     " rewards x ", width_name, " ", width, ")"));
  }

  void Optional(const char* field, int64_t size) {
    if (size == 0 || size == request_.rewards_size()) return;
    Add(absl::StrCat(field, " has ", size, " values; accepted: ", request_.rewards_size(),
                     ", one per reward, or none"));
  }

  const AppendTrajectoriesRequest& request_;
  const AppendTarget& target_;
  std::vector<std::string> faults_;
};

}  // namespace

absl::StatusOr<AppendTarget> ReadTarget(const AppendTrajectoriesRequest& first) {
  std::vector<std::string> faults;
  std::string name_fault = NameFault("dataset", first.dataset());
  if (!name_fault.empty()) faults.push_back(std::move(name_fault));
  const auto check = [&](const char* field, int64_t value, int64_t least, int64_t most) {
    if (value >= least && value <= most) return;
    faults.push_back(absl::StrCat(field, " is ", value, "; accepted: ",
                                  least == 0 ? "0 (as before) or " : "", "1 to ", most));
  };
  check("observation_size", first.observation_size(), 1, kMaxReplayColumns);
  check("action_size", first.action_size(), 1, kMaxReplayColumns);
  check("capacity", first.capacity(), 0, kMaxCapacity);
  if (!faults.empty()) return ToStatus(faults);
  return AppendTarget{
      .dataset = first.dataset(),
      .layout = {.observation_size = first.observation_size(), .action_size = first.action_size()},
      .capacity = first.capacity()};
}

absl::StatusOr<std::vector<ReplayTransition>> ReadBatch(const AppendTrajectoriesRequest& request,
                                                        const AppendTarget& target) {
  if (absl::Status status = BatchCheck(request, target).Check(); !status.ok()) return status;
  const auto row = [](const auto& column, int64_t i, int64_t width) {
    const float* const first = column.data() + i * width;
    return std::vector<float>(first, first + width);
  };
  const ReplayLayout& layout = target.layout;
  std::vector<ReplayTransition> transitions(static_cast<size_t>(request.rewards_size()));
  for (int i = 0; i < request.rewards_size(); ++i) {
    ReplayTransition& transition = transitions[static_cast<size_t>(i)];
    transition.observation = row(request.observations(), i, layout.observation_size);
    transition.action = row(request.actions(), i, layout.action_size);
    transition.next_observation = row(request.next_observations(), i, layout.observation_size);
    transition.reward = request.rewards(i);
    if (!request.terminals().empty()) transition.terminal = request.terminals(i);
    if (!request.timeouts().empty()) transition.timeout = request.timeouts(i);
    if (!request.priorities().empty()) transition.priority = request.priorities(i);
  }
  // The writer checks again. The check here keeps an invalid first batch from creating a buffer.
  const absl::Status finite = CheckTransitions(layout, transitions);
  if (!finite.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch ", QuoteValue(request.batch_id()), ": ", finite.message()));
  }
  return transitions;
}

}  // namespace genesis
