#include "server/api/method_table.h"

#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/strip.h"
#include "genesis/training/v1/training_service.pb.h"
#include "google/api/annotations.pb.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

constexpr Role kViewer = Role::kViewer;
constexpr Role kSubmitter = Role::kSubmitter;
constexpr Role kAdmin = Role::kAdmin;

// Sets the HTTP form of a row from the method's option google.api.http.
void ReadRoute(MethodRow& row) {
  using google::api::HttpRule;
  const HttpRule& rule = DescriptorOf(row).options().GetExtension(google::api::http);
  const std::map<HttpRule::PatternCase, std::pair<const char*, const std::string*>> patterns = {
      {HttpRule::kGet, {"GET", &rule.get()}},
      {HttpRule::kPut, {"PUT", &rule.put()}},
      {HttpRule::kPost, {"POST", &rule.post()}},
      {HttpRule::kPatch, {"PATCH", &rule.patch()}},
      {HttpRule::kDelete, {"DELETE", &rule.delete_()}}};
  const auto pattern = patterns.find(rule.pattern_case());
  if (pattern == patterns.end()) {
    spdlog::critical("defect: {} has no google.api.http in training_service.proto", row.name);
    std::abort();
  }
  row.verb = pattern->second.first;
  row.path = *pattern->second.second;
  row.body = rule.body();
  row.response_body = rule.response_body();
}

}  // namespace

const std::vector<MethodRow>& MethodTable() {
  static const auto& table = *[] {
    auto* const rows = new std::vector<MethodRow>{
        {"Train", kSubmitter, true},
        {"GetJob", kViewer, false},
        {"ListJobs", kViewer, false},
        {"WatchJob", kViewer, false},
        {"WatchJobs", kViewer, false},
        {"ListEvents", kViewer, false},
        {"PauseJob", kSubmitter, true},
        {"ResumeJob", kSubmitter, true},
        {"CancelJob", kSubmitter, true},
        {"DeleteJob", kSubmitter, true},
        {"UpdateJob", kSubmitter, true},
        {"ReportMetrics", kSubmitter, true},
        {"LeaseEvaluation", kSubmitter, false},
        {"CreateSweep", kSubmitter, true},
        {"GetSweep", kViewer, false},
        {"ListSweeps", kViewer, false},
        {"CancelSweep", kSubmitter, true},
        {"Checkpoint", kSubmitter, true},
        {"ListCheckpoints", kViewer, false},
        {"GetCheckpoint", kViewer, false},
        {"DownloadCheckpoint", kViewer, false},
        {"WatchWeights", kViewer, false},
        {"Predict", kSubmitter, false},
        {"DeleteCheckpoint", kSubmitter, true},
        {"ImportCheckpoint", kSubmitter, true},
        {"ListArtifacts", kViewer, false},
        {"ReadArtifact", kViewer, false},
        {"AppendTrajectories", kSubmitter, true},
        {"ListDatasets", kViewer, false},
        {"StartUpload", kSubmitter, true},
        {"WriteUpload", kSubmitter, false},
        {"DeleteDataset", kSubmitter, true},
        {"Stats", kViewer, false},
        {"GetServerInfo", kViewer, false},
        {"GetPrecisionPolicy", kViewer, false},
        {"SetPrecisionPolicy", kAdmin, true},
        {"ListWorkers", kViewer, false},
        {"DrainWorker", kAdmin, true},
        {"GetConfig", kViewer, false},
        {"ReloadConfig", kAdmin, true},
        {"BackupStore", kAdmin, true},
        {"GetHistory", kViewer, false},
        {"GetCurves", kViewer, false},
        {"ListWebhookDeliveries", kAdmin, false},
        {"CreateLoginCode", kViewer, true},
    };
    for (MethodRow& row : *rows) ReadRoute(row);
    return rows;
  }();
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

const MethodRow& MethodOfRequest(const std::string& request_name) {
  const MethodRow* row = FindMethod(std::string(absl::StripSuffix(request_name, "Request")));
  if (row == nullptr) {
    spdlog::critical("defect: {} belongs to no method of the table", request_name);
    std::abort();
  }
  return *row;
}

}  // namespace genesis
