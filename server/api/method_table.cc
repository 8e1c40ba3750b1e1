#include "server/api/method_table.h"

#include <cstdlib>

#include "absl/strings/strip.h"
#include "genesis/training/v1/training_service.pb.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

constexpr Role kViewer = Role::kViewer;
constexpr Role kSubmitter = Role::kSubmitter;
constexpr Role kAdmin = Role::kAdmin;

}  // namespace

const std::vector<MethodRow>& MethodTable() {
  static const auto& table = *new std::vector<MethodRow>{
      {"Train", kSubmitter, true, "POST", "/v1/jobs"},
      {"GetJob", kViewer, false, "GET", "/v1/jobs/{job_id}"},
      {"ListJobs", kViewer, false, "GET", "/v1/jobs"},
      {"WatchJob", kViewer, false, "GET", "/v1/jobs/{job_id}:watch"},
      {"WatchJobs", kViewer, false, "GET", "/v1/jobs:watch"},
      {"ListEvents", kViewer, false, "GET", "/v1/events"},
      {"PauseJob", kSubmitter, true, "POST", "/v1/jobs/{job_id}:pause"},
      {"ResumeJob", kSubmitter, true, "POST", "/v1/jobs/{job_id}:resume"},
      {"CancelJob", kSubmitter, true, "POST", "/v1/jobs/{job_id}:cancel"},
      {"DeleteJob", kSubmitter, true, "DELETE", "/v1/jobs/{job_id}"},
      {"UpdateJob", kSubmitter, true, "PATCH", "/v1/jobs/{job_id}"},
      {"Checkpoint", kSubmitter, true, "POST", "/v1/jobs/{job_id}:checkpoint"},
      {"ListCheckpoints", kViewer, false, "GET", "/v1/checkpoints"},
      {"GetCheckpoint", kViewer, false, "GET", "/v1/checkpoints/{checkpoint_id}"},
      {"DownloadCheckpoint", kViewer, false, "GET", "/v1/checkpoints/{checkpoint_id}:download"},
      {"DeleteCheckpoint", kSubmitter, true, "DELETE", "/v1/checkpoints/{checkpoint_id}"},
      {"ImportCheckpoint", kSubmitter, true, "POST", "/v1/checkpoints/{checkpoint_id}:import"},
      {"ListArtifacts", kViewer, false, "GET", "/v1/jobs/{job_id}/artifacts"},
      {"ReadArtifact", kViewer, false, "GET", "/v1/jobs/{job_id}/artifacts/{name}:read"},
      {"AppendTrajectories", kSubmitter, true, "POST", "/v1/datasets/{dataset}:append"},
      {"ListDatasets", kViewer, false, "GET", "/v1/datasets"},
      {"StartUpload", kSubmitter, true, "POST", "/v1/uploads"},
      {"WriteUpload", kSubmitter, false, "POST", "/v1/uploads/{sha256}:write"},
      {"DeleteDataset", kAdmin, true, "DELETE", "/v1/datasets/{name}"},
      {"Stats", kViewer, false, "GET", "/v1/stats"},
      {"GetServerInfo", kViewer, false, "GET", "/v1/server"},
      {"GetPrecisionPolicy", kViewer, false, "GET", "/v1/precision_policy"},
      {"SetPrecisionPolicy", kAdmin, true, "PUT", "/v1/precision_policy"},
      {"ListWorkers", kViewer, false, "GET", "/v1/workers"},
      {"DrainWorker", kAdmin, true, "POST", "/v1/workers/{worker_id}:drain"},
      {"GetConfig", kViewer, false, "GET", "/v1/config"},
      {"ReloadConfig", kAdmin, true, "POST", "/v1/config:reload"},
      {"BackupStore", kAdmin, true, "POST", "/v1/store:backup"},
      {"GetHistory", kViewer, false, "GET", "/v1/history"},
  };
  return table;
}

const MethodRow* FindMethod(const std::string& name) {
  for (const MethodRow& row : MethodTable()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

const google::protobuf::MethodDescriptor& DescriptorOf(const MethodRow& row) {
  const google::protobuf::ServiceDescriptor* const service =
      training::v1::TrainRequest::descriptor()->file()->FindServiceByName("TrainingService");
  const google::protobuf::MethodDescriptor* const method = service->FindMethodByName(row.name);
  if (method == nullptr) {
    spdlog::critical("defect: the method table's {} is not in training_service.proto", row.name);
    std::abort();
  }
  return *method;
}

bool CarriesFile(const google::protobuf::Descriptor& message) {
  const google::protobuf::FieldDescriptor* const content = message.FindFieldByName("content");
  return content != nullptr && content->type() == google::protobuf::FieldDescriptor::TYPE_BYTES;
}

const MethodRow& MethodOfRequest(const std::string& request_name) {
  const MethodRow* row = FindMethod(std::string(absl::StripSuffix(request_name, "Request")));
  if (row == nullptr) {
    spdlog::critical("defect: {} belongs to no method of the table", request_name);
    std::abort();
  }
  return *row;
}

}  // namespace genesis
