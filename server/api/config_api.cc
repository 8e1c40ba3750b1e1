// Methods about the settings of the daemon.
#include "server/api/training_api.h"
#include "server/runtime_config.h"

namespace genesis {

void TrainingApi::GetConfig(const Caller&, const training::v1::GetConfigRequest&,
                            const Answer<training::v1::GetConfigResponse>& answer) {
  answer(parts_.config->Get());
}

void TrainingApi::ReloadConfig(const Caller&, const training::v1::ReloadConfigRequest& request,
                               const Answer<training::v1::ReloadConfigResponse>& answer) {
  parts_.config->Request(request.validate_only(), answer);
}

}  // namespace genesis
