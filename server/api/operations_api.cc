// Methods for operators.
#include "base/timestamp.h"
#include "server/api/runtime_config.h"
#include "server/api/training_api.h"
#include "server/auth/token_authenticator.h"

namespace genesis {

void TrainingApi::Stats(const Caller& caller, const training::v1::StatsRequest& request,
                        const Callback<training::v1::StatsResponse>& callback) {
  callback(parts_.jobs->queries().Stats(caller, request));
}

void TrainingApi::GetPrecisionPolicy(
    const Caller&, const training::v1::GetPrecisionPolicyRequest&,
    const Callback<training::v1::GetPrecisionPolicyResponse>& callback) {
  training::v1::GetPrecisionPolicyResponse response;
  *response.mutable_policy() = parts_.jobs->precision().policy();
  const PrecisionGate gate = parts_.jobs->precision().gate();
  response.set_reduced_precision_enabled(gate.enabled);
  response.set_reason(gate.reason);
  callback(response);
}

void TrainingApi::SetPrecisionPolicy(
    const Caller& caller, const training::v1::SetPrecisionPolicyRequest& request,
    const Callback<training::v1::SetPrecisionPolicyResponse>& callback) {
  parts_.jobs->precision().SetPolicy(request, caller, callback);
}

void TrainingApi::GetServerInfo(const Caller& caller, const training::v1::GetServerInfoRequest&,
                                const Callback<training::v1::GetServerInfoResponse>& callback) {
  training::v1::GetServerInfoResponse response = parts_.info();
  response.set_caller(caller.name);
  response.set_caller_role(RoleName(caller.role));
  callback(response);
}

void TrainingApi::CreateLoginCode(const Caller& caller, const training::v1::CreateLoginCodeRequest&,
                                  const Callback<training::v1::CreateLoginCodeResponse>& callback) {
  training::v1::CreateLoginCodeResponse response;
  const absl::StatusOr<BrowserSessions::Secret> code = parts_.authenticator->NewLoginCode(caller);
  if (!code.ok()) return callback(code.status());
  response.set_code(code->text);
  if (!code->text.empty()) *response.mutable_expire_time() = ToTimestamp(code->end);
  callback(response);
}

void TrainingApi::ListWorkers(const Caller& caller, const training::v1::ListWorkersRequest&,
                              const Callback<training::v1::ListWorkersResponse>& callback) {
  training::v1::ListWorkersResponse response;
  for (const training::v1::WorkerInfo& worker : parts_.pool->workers()) {
    *response.add_workers() = worker;
    const bool seen =
        worker.job_id().empty() || parts_.jobs->queries().Get(caller, worker.job_id()).ok();
    if (!seen) response.mutable_workers()->rbegin()->clear_job_id();
  }
  for (const training::v1::DeviceStatus& device : parts_.pool->devices()) {
    *response.add_devices() = device;
  }
  callback(response);
}

void TrainingApi::DrainWorker(const Caller&, const training::v1::DrainWorkerRequest& request,
                              const Callback<training::v1::DrainWorkerResponse>& callback) {
  parts_.jobs->requests().DrainWorker(request.worker_id(), callback);
}

void TrainingApi::GetConfig(const Caller&, const training::v1::GetConfigRequest&,
                            const Callback<training::v1::GetConfigResponse>& callback) {
  callback(parts_.config->Get());
}

void TrainingApi::ReloadConfig(const Caller&, const training::v1::ReloadConfigRequest& request,
                               const Callback<training::v1::ReloadConfigResponse>& callback) {
  parts_.config->Request(request.validate_only(), callback);
}

void TrainingApi::BackupStore(const Caller&, const training::v1::BackupStoreRequest&,
                              const Callback<training::v1::BackupStoreResponse>& callback) {
  parts_.backup->Start(callback);
}

}  // namespace genesis
