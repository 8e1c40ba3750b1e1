#include "config/job/workload.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

namespace genesis {

std::string WorkloadKey(const training::v1::JobSpec& spec) {
  training::v1::JobSpec workload = spec;
  workload.clear_precision();
  workload.clear_checkpoint();
  workload.clear_evaluation();
  workload.clear_rehearsals();
  workload.clear_max_restarts();
  workload.clear_scheduling();
  workload.clear_trace();
  // Ranks train the same way with every launcher.
  if (workload.has_distributed()) workload.mutable_distributed()->clear_launcher();
  workload.mutable_training()->clear_time_limit_seconds();
  workload.mutable_training()->clear_target_loss();
  workload.mutable_training()->clear_ema_decay();
  std::string key;
  google::protobuf::io::StringOutputStream stream(&key);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  workload.SerializeToCodedStream(&coded);
  coded.Trim();
  return key;
}

}  // namespace genesis
