// ListWebhookDeliveries.
#include <utility>
#include <vector>

#include "base/timestamp.h"
#include "server/api/page.h"
#include "server/api/training_api.h"

namespace genesis {
namespace {

training::v1::WebhookDelivery Shown(const StoredDelivery& stored) {
  training::v1::WebhookDelivery delivery;
  delivery.set_endpoint(stored.endpoint);
  delivery.set_webhook_id(WebhookId(stored.event));
  delivery.set_type(EventType(stored.event));
  delivery.set_job_id(stored.event.job_id());
  *delivery.mutable_event_time() = stored.event.time();
  delivery.set_state(stored.next_attempt ? training::v1::WEBHOOK_DELIVERY_STATE_PENDING
                                         : training::v1::WEBHOOK_DELIVERY_STATE_DEAD);
  delivery.set_attempts(stored.attempts);
  if (stored.next_attempt) {
    *delivery.mutable_next_attempt_time() = ToTimestamp(*stored.next_attempt);
  }
  delivery.set_last_error(stored.error);
  return delivery;
}

}  // namespace

void TrainingApi::ListWebhookDeliveries(
    const Caller&, const training::v1::ListWebhookDeliveriesRequest& request,
    const Callback<training::v1::ListWebhookDeliveriesResponse>& callback) {
  const absl::StatusOr<int> size = PageSize(request.page_size());
  if (!size.ok()) return callback(size.status());
  const absl::StatusOr<int64_t> before = ReadPageNumber(request);
  if (!before.ok()) return callback(before.status());
  // One extra row shows whether there is a next page.
  absl::StatusOr<std::vector<StoredDelivery>> deliveries =
      parts_.jobs->view().WebhookDeliveries(*before, *size + 1);
  if (!deliveries.ok()) return callback(deliveries.status());
  training::v1::ListWebhookDeliveriesResponse response;
  if (deliveries->size() > static_cast<size_t>(*size)) {
    deliveries->resize(static_cast<size_t>(*size));
    response.set_next_page_token(MakePageToken(request, PlaceOf({deliveries->back().number})));
  }
  for (const StoredDelivery& each : *deliveries) *response.add_deliveries() = Shown(each);
  callback(response);
}

}  // namespace genesis
