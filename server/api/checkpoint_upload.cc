#include "server/api/checkpoint_upload.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "server/base/answer_once.h"
#include "server/base/guard.h"

namespace genesis {

absl::Status CheckpointUpload::Begin(const CheckpointImport::Announced& announced) {
  if (jobs_->queries().GetCheckpoint(Caller(), announced.id).ok()) {
    return absl::AlreadyExistsError(
        absl::StrCat("checkpoint ", QuoteValue(announced.id), " exists; choose another id"));
  }
  absl::Status room =
      jobs_->admission().CheckRoom(owner_, announced.size_bytes,
                                   absl::StrCat("checkpoint ", QuoteValue(announced.id), " of ",
                                                announced.size_bytes, " bytes"));
  if (!room.ok()) return room;
  auto import = CheckpointImport::Begin(files_, announced);
  if (!import.ok()) return import.status();
  import_ = *std::move(import);
  return absl::OkStatus();
}

void CheckpointUpload::Write(std::string content, std::function<void(const absl::Status&)> done) {
  files_->Post([import = import_, content = std::move(content), done = std::move(done)] {
    const absl::Status written =
        GuardedStatus("ImportCheckpoint", [&] { return import->Write(content); });
    if (!written.ok()) import->End();
    done(written);
  });
}

void CheckpointUpload::Finish(const Callback<training::v1::Checkpoint>& first) {
  files_->PostLong([jobs = jobs_, files = files_, owner = owner_, import = import_,
                    callback = AnswerOnce(first)] {
    absl::StatusOr<training::v1::Checkpoint> published = import->Publish();
    if (!published.ok()) {
      import->End();
      return callback(published.status());
    }
    published->set_owner(owner);
    jobs->checkpoints().Record(
        *published,
        [files, import, callback](const absl::StatusOr<training::v1::Checkpoint>& recorded) {
          // A file without a record would never be removed.
          if (!recorded.ok()) files->Post([import] { import->Withdraw(); });
          import->End();
          callback(recorded);
        });
  });
}

}  // namespace genesis
