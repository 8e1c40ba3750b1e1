#include "trainer/distributed/rank_place.h"

#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace genesis {
namespace {

// Reads variables and keeps what is wrong with them.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  std::string Text(const std::string& name) const { return environment_(name).value_or(""); }

  // `fallback` where the variable is not set; without one it has to be.
  int Number(const std::string& name, int least, int most, std::optional<int> fallback) {
    const std::optional<std::string> text = environment_(name);
    if (!text && fallback) return *fallback;
    int value = 0;
    if (text && absl::SimpleAtoi(*text, &value) && value >= least && value <= most) return value;
    faults_.push_back(absl::StrCat(name, text ? absl::StrCat(" is \"", *text, "\"") : " is not set",
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
    // A launcher that binds gives each rank its own.
    if (gpus.size() == 1) return gpus.front();
    if (static_cast<size_t>(local_rank) < gpus.size()) return gpus[static_cast<size_t>(local_rank)];
    faults_.push_back(absl::StrCat("CUDA_VISIBLE_DEVICES is \"", visible, "\" and LOCAL_RANK is ",
                                   local_rank, "; accepted: a GPU for each rank of the host"));
    return "";
  }

  absl::Status status(int size) const {
    if (faults_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("WORLD_SIZE is ", size, ", so this is one of several ranks, but ",
                     absl::StrJoin(faults_, "; "),
                     ". torchrun sets them all; to train alone, unset WORLD_SIZE"));
  }

 private:
  const Environment& environment_;
  std::vector<std::string> faults_;
};

constexpr int kMaxRanks = 65536;

}  // namespace

absl::StatusOr<RankPlace> ReadRankPlace(const Environment& environment) {
  RankPlace place;
  const std::optional<std::string> size = environment("WORLD_SIZE");
  if (!size) return place;
  if (!absl::SimpleAtoi(*size, &place.size) || place.size < 1 || place.size > kMaxRanks) {
    return absl::InvalidArgumentError(absl::StrCat("WORLD_SIZE is \"", *size, "\"; accepted: 1 to ",
                                                   kMaxRanks, ", or not set to train alone"));
  }
  if (place.size == 1) return place;
  Variables variables(environment);
  place.rank = variables.Number("RANK", 0, place.size - 1, std::nullopt);
  place.local_size = variables.Number("LOCAL_WORLD_SIZE", 1, place.size, 1);
  place.local_rank = variables.Number("LOCAL_RANK", 0, place.size - 1, 0);
  place.gpu = variables.Gpu(place.local_rank);
  place.address = variables.Needed("MASTER_ADDR", "the host where rank 0 runs");
  place.port = static_cast<uint16_t>(
      variables.Number("MASTER_PORT", 1, std::numeric_limits<uint16_t>::max(), std::nullopt));
  place.agent_store = variables.Text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  place.attempt = absl::StrCat(variables.Text("TORCHELASTIC_RUN_ID"), "/",
                               variables.Text("TORCHELASTIC_RESTART_COUNT"));
  if (absl::Status status = variables.status(place.size); !status.ok()) return status;
  return place;
}

}  // namespace genesis
