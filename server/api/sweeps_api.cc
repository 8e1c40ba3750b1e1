// Methods for sweeps.
#include "server/api/page.h"
#include "server/api/training_api.h"

namespace genesis {
namespace {

using training::v1::Sweep;

// Returns a callback that wraps the sweep in `Response` and passes it to `callback`.
template <typename Response>
Callback<Sweep> AnswerWithSweep(const Callback<Response>& callback) {
  return [callback](const absl::StatusOr<Sweep>& sweep) {
    if (!sweep.ok()) return callback(sweep.status());
    Response response;
    *response.mutable_sweep() = *sweep;
    callback(response);
  };
}

}  // namespace

void TrainingApi::CreateSweep(const Caller& caller, const training::v1::CreateSweepRequest& request,
                              const Callback<training::v1::CreateSweepResponse>& callback) {
  parts_.sweeps->Create(caller, request, AnswerWithSweep(callback));
}

void TrainingApi::GetSweep(const Caller& caller, const training::v1::GetSweepRequest& request,
                           const Callback<training::v1::GetSweepResponse>& callback) {
  AnswerWithSweep(callback)(parts_.sweeps->Get(caller, request.sweep_id()));
}

void TrainingApi::ListSweeps(const Caller& caller, const training::v1::ListSweepsRequest& request,
                             const Callback<training::v1::ListSweepsResponse>& callback) {
  const absl::StatusOr<int> size = PageSize(request.page_size());
  if (!size.ok()) return callback(size.status());
  const absl::StatusOr<int64_t> before = ReadPageNumber(request);
  if (!before.ok()) return callback(before.status());
  absl::StatusOr<std::vector<StoredSweep>> sweeps = parts_.sweeps->List(caller, *before, *size + 1);
  if (!sweeps.ok()) return callback(sweeps.status());
  training::v1::ListSweepsResponse response;
  if (static_cast<int>(sweeps->size()) > *size) {
    sweeps->pop_back();
    response.set_next_page_token(MakePageToken(request, PlaceOf({sweeps->back().ordinal})));
  }
  for (StoredSweep& each : *sweeps) {
    // A page has to fit into one message.
    each.sweep.mutable_spec()->clear_job();
    each.sweep.mutable_spec()->clear_parameters();
    *response.add_sweeps() = std::move(each.sweep);
  }
  callback(response);
}

void TrainingApi::CancelSweep(const Caller& caller, const training::v1::CancelSweepRequest& request,
                              const Callback<training::v1::CancelSweepResponse>& callback) {
  parts_.sweeps->Cancel(caller, request.sweep_id(), AnswerWithSweep(callback));
}

}  // namespace genesis
