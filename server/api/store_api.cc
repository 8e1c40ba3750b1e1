// Methods about the store itself.
#include "server/api/training_api.h"

namespace genesis {

void TrainingApi::BackupStore(const Caller&, const training::v1::BackupStoreRequest&,
                              const Answer<training::v1::BackupStoreResponse>& answer) {
  parts_.backup->Start(answer);
}

}  // namespace genesis
