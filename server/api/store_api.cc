// Methods for the store itself.
#include "server/api/training_api.h"

namespace genesis {

void TrainingApi::BackupStore(const Caller&, const training::v1::BackupStoreRequest&,
                              const Callback<training::v1::BackupStoreResponse>& callback) {
  parts_.backup->Start(callback);
}

}  // namespace genesis
