// The section distributed: how several processes train one job.
#include "config/job/field_rules.h"
#include "config/job/job_sections.h"

namespace genesis {

using training::v1::DistributedSpec;
using training::v1::JobSpec;

void FillDistributed(JobSpec& spec) {
  // A job of one process says nothing of it.
  if (!spec.has_distributed() && !spec.training().use_ddp()) return;
  FillDefaults(*spec.mutable_distributed());
}

void CheckDistributed(const JobSpec& spec, Faults& faults) {
  const DistributedSpec& distributed = spec.distributed();
  CheckRanges("distributed", distributed, faults);
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
