// Methods for datasets, except the streaming one.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"
#include "server/api/page.h"
#include "server/api/training_api.h"
#include "server/datasets/dataset_folder.h"

namespace genesis {
namespace {

using training::v1::DatasetInfo;
using training::v1::ListDatasetsResponse;

absl::StatusOr<ListDatasetsResponse> ListPage(const DatasetOwners& owners, const Caller& caller,
                                              const training::v1::ListDatasetsRequest& request) {
  const absl::StatusOr<int> page_size = PageSize(request.page_size());
  if (!page_size.ok()) return page_size.status();
  std::string after;
  if (!request.page_token().empty()) {
    absl::StatusOr<std::string> place = ReadPageToken(request);
    if (!place.ok()) return place.status();
    after = *std::move(place);
  }
  const absl::StatusOr<std::vector<std::string>> names = ListDatasetNames(owners.root());
  if (!names.ok()) return names.status();
  ListDatasetsResponse response;
  for (auto name = std::upper_bound(names->begin(), names->end(), after); name != names->end();
       ++name) {
    if (!owners.Sees(caller, *name)) continue;
    if (response.datasets_size() == *page_size) {
      response.set_next_page_token(
          MakePageToken(request, response.datasets(*page_size - 1).name()));
      break;
    }
    absl::StatusOr<DatasetInfo> info = DescribeDataset(owners.root(), *name);
    if (absl::IsNotFound(info.status())) continue;  // Removed in the meantime.
    if (!info.ok()) return info.status();
    for (std::string& owner : owners.Of(caller, *name)) info->add_owners(std::move(owner));
    *response.add_datasets() = *std::move(info);
  }
  return response;
}

// Returns OK if `exists` is OK and the caller may delete the dataset. Forgets a missing dataset.
absl::Status CheckDeletion(DatasetOwners& owners, const Caller& caller, const std::string& name,
                           const absl::Status& exists) {
  if (!exists.ok() && !absl::IsNotFound(exists)) return exists;
  const absl::Status allowed = owners.CheckChange(caller, name);
  // An operator removed the dataset and left the record of its owners.
  if (!exists.ok() && allowed.ok()) owners.Forget(name);
  return exists.ok() ? allowed : exists;
}

}  // namespace

void TrainingApi::ListDatasets(const Caller& caller,
                               const training::v1::ListDatasetsRequest& request,
                               const Callback<ListDatasetsResponse>& callback) {
  parts_.datasets->Post([owners = parts_.owners, caller, request, callback] {
    callback(ListPage(*owners, caller, request));
  });
}

void TrainingApi::DeleteDataset(const Caller& caller,
                                const training::v1::DeleteDatasetRequest& request,
                                const Callback<training::v1::DeleteDatasetResponse>& callback) {
  const std::string& name = request.name();
  const std::string fault = DatasetNameFault(name);
  if (!fault.empty()) return callback(ToStatus({{"name", QuoteValue(name), fault}}));
  const auto remove = [datasets = parts_.datasets, owners = parts_.owners, caller, name, callback] {
    const absl::Status removed =
        // Another call of the caller may have ended its ownership, so Delete checks it again.
        datasets->Remove(name, [&] {
          return owners->Delete(caller, name, [&] { return RemoveDataset(owners->root(), name); });
        });
    if (!removed.ok()) return callback(removed);
    callback(training::v1::DeleteDatasetResponse());
  };
  parts_.datasets->Post([parts = parts_, caller, name, callback, remove] {
    const absl::Status exists = DescribeDataset(parts.owners->root(), name).status();
    if (absl::IsNotFound(exists)) {
      const absl::Status incomplete = parts.uploads->RemoveIncomplete(caller, name);
      if (incomplete.ok()) return callback(training::v1::DeleteDatasetResponse());
      if (!absl::IsNotFound(incomplete)) return callback(incomplete);
    }
    const absl::Status allowed = CheckDeletion(*parts.owners, caller, name, exists);
    if (!allowed.ok()) return callback(allowed);
    parts.jobs->requests().JobThatNeedsDataset(
        caller, name,
        [datasets = parts.datasets, name, callback,
         remove](const absl::StatusOr<std::string>& job) {
          if (!job.ok()) return callback(job.status());
          if (job->empty()) return datasets->Post(remove);
          callback(absl::FailedPreconditionError(
              absl::StrCat(*job, " has not ended and names dataset ", QuoteValue(name),
                           "; delete the dataset when the job has ended, or cancel the job")));
        });
  });
}

}  // namespace genesis
