// The section distributed: several processes that train one job.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/text/enum_names.h"
#include "config/job/field_rules.h"
#include "config/job/job_sections.h"

namespace genesis {

using training::v1::DistributedSpec;
using training::v1::JobSpec;

namespace {

// Checks a job whose workers a cluster starts: it starts a fixed number of them, all or none.
void CheckSubmitted(const JobSpec& spec, Faults& faults) {
  const std::string launcher = ShortEnumName(LauncherOf(spec));
  if (spec.training().use_ddp() && spec.distributed().ranks() == 0) {
    faults.Add("distributed.ranks", "",
               absl::StrCat("required with training.use_ddp and distributed.launcher ", launcher,
                            ", for a cluster has no slots to count; give how many workers it is "
                            "asked for"));
  }
  if (spec.distributed().min_ranks() > 0) {
    faults.Add("distributed.min_ranks", "",
               absl::StrCat(spec.distributed().min_ranks(), " with distributed.launcher ", launcher,
                            ": a cluster gives all ranks or none; remove one of them"));
  }
}

}  // namespace

bool IsDistributed(const JobSpec& spec) {
  return spec.training().use_ddp() || spec.distributed().ranks() > 1;
}

int RanksOf(const JobSpec& spec, int slots) {
  if (spec.distributed().ranks() > 0) return spec.distributed().ranks();
  return spec.training().use_ddp() ? std::max(slots, 1) : 1;
}

int FewestRanksOf(const JobSpec& spec, int slots) {
  const int ranks = RanksOf(spec, slots);
  const int fewest = spec.distributed().min_ranks();
  return fewest > 0 ? std::min(fewest, ranks) : ranks;
}

training::v1::LauncherKind LauncherOf(const JobSpec& spec) {
  const training::v1::LauncherKind launcher = spec.distributed().launcher();
  return launcher == training::v1::LAUNCHER_KIND_UNSPECIFIED ? training::v1::LAUNCHER_KIND_LOCAL
                                                             : launcher;
}

bool IsSubmitted(const JobSpec& spec) {
  return LauncherOf(spec) != training::v1::LAUNCHER_KIND_LOCAL;
}

void FillDistributed(JobSpec& spec) {
  // A single-process job has no such section.
  if (!spec.has_distributed() && !spec.training().use_ddp()) return;
  FillDefaults(*spec.mutable_distributed());
}

void CheckDistributed(const JobSpec& spec, Faults& faults) {
  const DistributedSpec& distributed = spec.distributed();
  CheckRanges("distributed", distributed, faults);
  if (distributed.ranks() > 0 && distributed.min_ranks() > distributed.ranks()) {
    faults.Add("distributed.min_ranks", absl::StrCat(distributed.min_ranks()),
               absl::StrCat("at most distributed.ranks, ", distributed.ranks()));
  }
  if (distributed.min_ranks() > 0 && !IsDistributed(spec)) {
    faults.Add("distributed.min_ranks", "",
               absl::StrCat(distributed.min_ranks(),
                            " needs several ranks; give distributed.ranks, or remove "
                            "distributed.min_ranks"));
  }
  if (IsSubmitted(spec)) CheckSubmitted(spec, faults);
  const bool compressed =
      distributed.gradient_compression() == training::v1::GRADIENT_COMPRESSION_FP16 ||
      distributed.gradient_compression() == training::v1::GRADIENT_COMPRESSION_BF16;
  if (distributed.use_error_feedback() && !compressed) {
    faults.Add("distributed.use_error_feedback", "",
               "true needs distributed.gradient_compression FP16 or BF16; give one, or remove "
               "distributed.use_error_feedback");
  }
}

}  // namespace genesis
