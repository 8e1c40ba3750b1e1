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

absl::StatusOr<ListDatasetsResponse> ListPage(const std::string& root,
                                              const training::v1::ListDatasetsRequest& request) {
  const absl::StatusOr<int> page_size = PageSize(request.page_size());
  if (!page_size.ok()) return page_size.status();
  std::string after;
  if (!request.page_token().empty()) {
    absl::StatusOr<std::string> place = ReadPageToken(request);
    if (!place.ok()) return place.status();
    after = *std::move(place);
  }
  const absl::StatusOr<std::vector<std::string>> names = ListDatasetNames(root);
  if (!names.ok()) return names.status();
  ListDatasetsResponse response;
  for (auto name = std::upper_bound(names->begin(), names->end(), after); name != names->end();
       ++name) {
    if (response.datasets_size() == *page_size) {
      response.set_next_page_token(
          MakePageToken(request, response.datasets(*page_size - 1).name()));
      break;
    }
    absl::StatusOr<DatasetInfo> info = DescribeDataset(root, *name);
    if (absl::IsNotFound(info.status())) continue;  // Removed in the meantime.
    if (!info.ok()) return info.status();
    *response.add_datasets() = *std::move(info);
  }
  return response;
}

}  // namespace

void TrainingApi::ListDatasets(const Caller&, const training::v1::ListDatasetsRequest& request,
                               const Callback<ListDatasetsResponse>& callback) {
  parts_.datasets->Post(
      [root = parts_.datasets->root(), request, callback] { callback(ListPage(root, request)); });
}

void TrainingApi::DeleteDataset(const Caller&, const training::v1::DeleteDatasetRequest& request,
                                const Callback<training::v1::DeleteDatasetResponse>& callback) {
  const std::string& name = request.name();
  const std::string fault = DatasetNameFault(name);
  if (!fault.empty()) return callback(ToStatus({{"name", QuoteValue(name), fault}}));
  parts_.jobs->requests().JobThatNeedsDataset(
      name, [datasets = parts_.datasets, name, callback](const absl::StatusOr<std::string>& job) {
        if (!job.ok()) return callback(job.status());
        if (!job->empty()) {
          return callback(absl::FailedPreconditionError(
              absl::StrCat("job \"", *job, "\" has not ended and names dataset ", QuoteValue(name),
                           "; delete the dataset when the job has ended, or cancel the job")));
        }
        datasets->Post([datasets, name, callback] {
          const absl::Status removed =
              datasets->Remove(name, [&] { return RemoveDataset(datasets->root(), name); });
          if (!removed.ok()) return callback(removed);
          callback(training::v1::DeleteDatasetResponse());
        });
      });
}

}  // namespace genesis
