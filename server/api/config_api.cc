// Methods for the settings of the daemon.
#include "server/api/runtime_config.h"
#include "server/api/training_api.h"

namespace genesis {

void TrainingApi::GetConfig(const Caller&, const training::v1::GetConfigRequest&,
                            const Callback<training::v1::GetConfigResponse>& callback) {
  callback(parts_.config->Get());
}

void TrainingApi::ReloadConfig(const Caller&, const training::v1::ReloadConfigRequest& request,
                               const Callback<training::v1::ReloadConfigResponse>& callback) {
  parts_.config->Request(request.validate_only(), callback);
}

}  // namespace genesis
