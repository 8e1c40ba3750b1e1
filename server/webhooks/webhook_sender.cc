#include "server/webhooks/webhook_sender.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/steady_time.h"
#include "server/api/event_filter.h"
#include "server/base/guard.h"
#include "server/base/http_transfer.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

// Maximum open requests to one endpoint. A slow endpoint does not delay others.
constexpr size_t kMaxOpen = 8;
// Maximum deliveries that wait for one endpoint. Further events stay in the store's events.
constexpr int64_t kMaxWaiting = 10000;
constexpr int64_t kPage = 256;
// A cursor is stored alone if a restart would otherwise examine more events than this again.
constexpr int64_t kMaxExaminedAgain = 1000;
constexpr int64_t kPollMilliseconds = 200;
// Minimum time between two writes, to limit the load on the writer thread.
constexpr absl::Duration kWritePause = absl::Milliseconds(50);
constexpr absl::Duration kRetryPause = absl::Seconds(1);
constexpr absl::Duration kCountPause = absl::Seconds(1);

}  // namespace

WebhookSender::WebhookSender(ReaderPool* readers, JobManager* jobs, Metrics* metrics)
    : readers_(readers),
      jobs_(jobs),
      metrics_(metrics),
      multi_(InitializeCurl() ? curl_multi_init() : nullptr, &curl_multi_cleanup) {}

void WebhookSender::Replace(std::vector<WebhookEndpoint> endpoints) {
  if (endpoints.empty() && !thread_.joinable()) return;
  for (const WebhookEndpoint& each : endpoints) metrics_->AddWebhookEndpoint(each.name);
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    next_endpoints_ = std::move(endpoints);
  }
  if (thread_.joinable()) {
    curl_multi_wakeup(multi_.get());
  } else {
    thread_ = std::thread([this] { Loop(); });
  }
}

void WebhookSender::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  curl_multi_wakeup(multi_.get());
  if (thread_.joinable()) thread_.join();
}

void WebhookSender::Loop() {
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) break;
    }
    const absl::Status status = Guarded("webhooks", [this] { Round(); });
    if (!status.ok()) next_write_ = SteadyNow() + kRetryPause;
    const int64_t pause = absl::ToInt64Milliseconds(next_write_ - SteadyNow());
    curl_multi_poll(multi_.get(), nullptr, 0,
                    pause > 0 ? static_cast<int>(std::min(pause, kPollMilliseconds))
                              : static_cast<int>(kPollMilliseconds),
                    nullptr);
  }
  for (const auto& [number, delivery] : open_) {
    curl_multi_remove_handle(multi_.get(), delivery->handle());
  }
  // The writer thread stops later. Without this write, accepted events would be sent again. An open
  // write may still fail; the stored cursors must then not pass its events, so nothing is written.
  if (posted_ == nullptr && !changes_.attempts.empty()) {
    changes_.now = absl::Now();
    jobs_->Write(
        [changes = changes_](Database& database) { return WriteWebhooks(database, changes); },
        [](const absl::Status&) {});
  }
}

void WebhookSender::Round() {
  int running = 0;
  curl_multi_perform(multi_.get(), &running);
  FinishTransfers(absl::Now());
  TakeEndpoints();
  if (!SettleWrite() || SteadyNow() < next_write_) return;
  const absl::Status status = Advance();
  if (!status.ok()) next_write_ = SteadyNow() + kRetryPause;
  if (status.code() == told_.code()) return;
  if (status.ok()) {
    spdlog::info("webhooks are sent again");
  } else {
    spdlog::error("cannot send webhooks; trying again every second: {}", status.ToString());
  }
  told_ = status;
}

// Reads new events, starts the deliveries that are due, and writes what has changed.
absl::Status WebhookSender::Advance() {
  if (!stored_cursors_) {
    if (absl::Status status = LoadCursors(); !status.ok()) return status;
  }
  // A new endpoint begins at the newest event.
  std::map<std::string, int64_t> cursors;
  for (const auto& [name, endpoint] : endpoints_) {
    const auto known = changes_.cursors.find(name);
    cursors[name] = known != changes_.cursors.end() ? known->second : jobs_->view().LastSequence();
  }
  changes_.cursors = std::move(cursors);
  absl::Status status = CountWaiting(absl::Now());
  if (status.ok() && changes_.added.empty()) status = CollectEvents();
  if (status.ok()) status = StartDue(absl::Now());
  if (status.ok() && MustWrite()) PostWrite();
  return status;
}

void WebhookSender::TakeEndpoints() {
  absl::MutexLock lock(&mutex_);
  if (!next_endpoints_) return;
  endpoints_.clear();
  for (WebhookEndpoint& each : *next_endpoints_) endpoints_[each.name] = std::move(each);
  next_endpoints_.reset();
}

// Applies the result of the posted write. Returns false while that write is open.
bool WebhookSender::SettleWrite() {
  if (posted_ == nullptr) return true;
  std::optional<absl::Status> written;
  {
    absl::MutexLock lock(&mutex_);
    written = std::exchange(written_, std::nullopt);
  }
  if (!written) return false;
  if (written->ok()) {
    stored_cursors_ = posted_->cursors;
    for (const WebhookAttempt& each : posted_->attempts) ended_.erase(each.number);
  } else {
    // The store's status is logged by the writer.
    changes_.added = posted_->added;
    changes_.attempts.insert(changes_.attempts.begin(), posted_->attempts.begin(),
                             posted_->attempts.end());
    next_write_ = SteadyNow() + kRetryPause;
  }
  posted_ = nullptr;
  return true;
}

absl::Status WebhookSender::LoadCursors() {
  absl::StatusOr<ReaderPool::Lease> lease = readers_->Borrow();
  if (!lease.ok()) return lease.status();
  const absl::StatusOr<std::map<std::string, int64_t>> cursors = ReadWebhookCursors(**lease);
  if (!cursors.ok()) return cursors.status();
  stored_cursors_ = changes_.cursors = *cursors;
  return absl::OkStatus();
}

absl::Status WebhookSender::CollectEvents() {
  for (auto& [name, cursor] : changes_.cursors) {
    if (waiting_[name].count >= kMaxWaiting) continue;
    const WebhookEndpoint& endpoint = endpoints_.at(name);
    const absl::StatusOr<EventPage> page =
        EventsAfter(jobs_->event_log(), jobs_->view(), endpoint.filter, cursor, kPage,
                    /*skip_dropped=*/true);
    if (!page.ok()) return page.status();
    cursor = page->cursor;
    for (const training::v1::JobEvent& event : page->events) {
      if (!endpoint.types.contains(EventType(event))) continue;
      changes_.added.push_back({name, event});
      ++waiting_[name].count;
    }
  }
  return absl::OkStatus();
}

absl::Status WebhookSender::CountWaiting(absl::Time now) {
  if (SteadyNow() < next_count_) return absl::OkStatus();
  next_count_ = SteadyNow() + kCountPause;
  absl::StatusOr<ReaderPool::Lease> lease = readers_->Borrow();
  if (!lease.ok()) return lease.status();
  absl::StatusOr<std::map<std::string, WaitingDeliveries>> waiting =
      CountWaitingDeliveries(**lease);
  if (!waiting.ok()) return waiting.status();
  waiting_ = *std::move(waiting);
  absl::Time oldest = now;
  for (const auto& [name, of_endpoint] : waiting_) oldest = std::min(oldest, of_endpoint.oldest);
  metrics_->SetOldestWebhook(absl::ToDoubleSeconds(now - oldest));
  return absl::OkStatus();
}

absl::Status WebhookSender::StartDue(absl::Time now) {
  absl::StatusOr<ReaderPool::Lease> lease = readers_->Borrow();
  if (!lease.ok()) return lease.status();
  for (const auto& [name, endpoint] : endpoints_) {
    if (waiting_[name].count == 0) continue;
    const auto of_endpoint = [&name = name](const auto& each) { return each.second == name; };
    const auto ended =
        static_cast<size_t>(std::count_if(ended_.begin(), ended_.end(), of_endpoint));
    auto open = static_cast<size_t>(std::count_if(
        open_.begin(), open_.end(),
        [&name = name](const auto& each) { return each.second->delivery().endpoint == name; }));
    if (open >= kMaxOpen) continue;
    absl::StatusOr<std::vector<StoredDelivery>> due =
        ReadDueDeliveries(**lease, name, now, static_cast<int64_t>(kMaxOpen + open + ended));
    if (!due.ok()) return due.status();
    for (StoredDelivery& each : *due) {
      const int64_t number = each.number;
      if (open >= kMaxOpen || open_.contains(number) || ended_.contains(number)) continue;
      auto delivery = std::make_unique<Delivery>(endpoint, std::move(each), now);
      if (curl_multi_add_handle(multi_.get(), delivery->handle()) != CURLM_OK) {
        return absl::ResourceExhaustedError(
            "libcurl cannot start a request; the next attempt is in a second");
      }
      open_[number] = std::move(delivery);
      ++open;
    }
  }
  return absl::OkStatus();
}

void WebhookSender::FinishTransfers(absl::Time now) {
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_.get(), &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode code = message->data.result;
    char* context = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &context);
    const auto& delivery = *reinterpret_cast<const Delivery*>(context);
    const int64_t number = delivery.delivery().number;
    const double random = std::uniform_real_distribution<double>()(random_);
    const WebhookAttempt attempt = delivery.Finish(code, now, random);
    Note(delivery, attempt);
    changes_.attempts.push_back(attempt);
    ended_[number] = delivery.delivery().endpoint;
    curl_multi_remove_handle(multi_.get(), delivery.handle());
    open_.erase(number);
  }
}

// Counts and logs the result of an attempt.
void WebhookSender::Note(const Delivery& delivery, const WebhookAttempt& attempt) {
  const StoredDelivery& stored = delivery.delivery();
  const auto endpoint = endpoints_.find(stored.endpoint);
  if (endpoint == endpoints_.end()) return;
  const std::string where = endpoint->first + " (" + endpoint->second.origin + ")";
  metrics_->WebhookAttempted(stored.endpoint, attempt.delivered      ? "delivered"
                                              : attempt.next_attempt ? "failed"
                                                                     : "dead");
  if (attempt.delivered) {
    if (failing_.erase(stored.endpoint) != 0)
      spdlog::info("webhook {} accepts events again", where);
    return;
  }
  if (!attempt.next_attempt) {
    spdlog::warn("webhook {} did not accept {} of job {}, which is not sent again: {}", where,
                 WebhookId(stored.event), stored.event.job_id(), attempt.error);
  } else if (failing_.insert(stored.endpoint).second) {
    spdlog::warn("webhook {} did not accept {} of job {}, which is sent again for 24 hours: {}",
                 where, WebhookId(stored.event), stored.event.job_id(), attempt.error);
  }
}

bool WebhookSender::MustWrite() const {
  if (!changes_.added.empty() || !changes_.attempts.empty()) return true;
  if (changes_.cursors.size() != stored_cursors_->size()) return true;
  return std::any_of(changes_.cursors.begin(), changes_.cursors.end(), [this](const auto& each) {
    const auto stored = stored_cursors_->find(each.first);
    return stored == stored_cursors_->end() || each.second - stored->second >= kMaxExaminedAgain;
  });
}

void WebhookSender::PostWrite() {
  changes_.now = absl::Now();
  posted_ = std::make_shared<const WebhookChanges>(
      WebhookChanges{changes_.cursors, std::exchange(changes_.added, {}),
                     std::exchange(changes_.attempts, {}), changes_.now});
  next_write_ = SteadyNow() + kWritePause;
  jobs_->Write(
      [changes = posted_](Database& database) { return WriteWebhooks(database, *changes); },
      [this](const absl::Status& status) {
        {
          absl::MutexLock lock(&mutex_);
          written_ = status;
        }
        curl_multi_wakeup(multi_.get());
      });
}

}  // namespace genesis
