#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "server/api/fleet_feed.h"
#include "server/api/subject.h"
#include "server/api/watch_feed.h"
#include "server/api/weights_feed.h"
#include "server/base/request_check.h"
#include "server/rest/api_error.h"
#include "server/rest/api_json.h"
#include "server/rest/api_path.h"
#include "server/rest/api_streams.h"
#include "server/rest/request_reader.h"

namespace genesis {
namespace {

// The messages of a watch as the body of a response, one for each Next, as lines of JSON or as
// text/event-stream. `Feed`: WatchFeed, FleetFeed or WeightsFeed. An error after the first message
// is sent as the last message, because the status line has already been sent.
//
// Threads: Write and Finish are called with the feed's lock held, so that lock is taken first.
template <typename Feed>
class WatchBody final : public HttpBody,
                        public WatchSink<typename Feed::Response>,
                        public std::enable_shared_from_this<WatchBody<Feed>> {
 public:
  // `event`: name of a message in text/event-stream; null for lines of JSON.
  WatchBody(const ApiStreamCall& call, const ApiParts& parts, typename Feed::Request request,
            const char* event)
      : threads_(call.threads),
        feed_(std::make_shared<Feed>(this, call.call, parts, std::move(request))),
        event_(event) {}
  ~WatchBody() override { feed_->Detach(); }

  absl::Status Watch() { return feed_->Watch(); }

  void Next(Deliver deliver) override {
    bool finished = false;
    std::string last;
    {
      absl::MutexLock lock(&mutex_);
      finished = finished_;
      last = std::exchange(last_, "");
      if (!finished) waiting_ = deliver;
    }
    if (finished) return deliver(last);
    threads_->Post([self = this->shared_from_this()] { self->feed_->Advance(); });
  }

  void Cancel() override {
    {
      absl::MutexLock lock(&mutex_);
      waiting_ = nullptr;
    }
    feed_->End(absl::CancelledError("the reader is gone"));
  }

  void Write(const typename Feed::Response& response) override {
    Deliver deliver;
    {
      absl::MutexLock lock(&mutex_);
      deliver = std::exchange(waiting_, nullptr);
    }
    if (deliver != nullptr) deliver(Line(event_, ToJsonLine(response)));
  }

  void Finish(const absl::Status& status) override {
    const bool quiet = status.ok() || absl::IsCancelled(status);
    const std::string last =
        quiet ? "" : Line("error", ErrorJson(status, HttpStatusOf(status.code())));
    Deliver deliver;
    {
      absl::MutexLock lock(&mutex_);
      // Set while the waiting request is taken, so that later requests receive the end.
      finished_ = true;
      deliver = std::exchange(waiting_, nullptr);
      if (deliver == nullptr) last_ = last;
    }
    if (deliver != nullptr) deliver(last);
  }

 private:
  std::string Line(const char* event, const std::string& json) const {
    return event_ != nullptr ? absl::StrCat("event: ", event, "\ndata: ", json, "\n") : json;
  }

  IoThreads* const threads_;
  const std::shared_ptr<Feed> feed_;
  const char* const event_;
  absl::Mutex mutex_;
  Deliver waiting_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::string last_ ABSL_GUARDED_BY(mutex_);  // Last line, kept until requested.
};

template <typename Feed>
void ServeFeed(const ApiStreamCall& call, const ApiParts& parts, const char* event) {
  typename Feed::Request message;
  absl::Status status = ReadQuery(call.request.query, message);
  if (status.ok()) status = ReadPathFields(call.fields, message);
  if (status.ok()) status = CheckRequest(message);
  const bool events = absl::StrContains(call.request.Header("accept"), "text/event-stream");
  const auto body =
      std::make_shared<WatchBody<Feed>>(call, parts, message, events ? event : nullptr);
  if (status.ok()) status = body->Watch();
  if (!status.ok()) {
    call.call.Done(SubjectOf(message), status);
    return call.respond(ErrorResponse(status));
  }
  HttpResponse response{.content_type = events ? "text/event-stream" : kJsonLines};
  response.stream = body;
  call.respond(std::move(response));
}

}  // namespace

void ServeWatch(const ApiStreamCall& call, const ApiParts& parts) {
  ServeFeed<WatchFeed>(call, parts, "job");
}

void ServeFleetWatch(const ApiStreamCall& call, const ApiParts& parts) {
  ServeFeed<FleetFeed>(call, parts, "jobs");
}

void ServeWeightsWatch(const ApiStreamCall& call, const ApiParts& parts) {
  ServeFeed<WeightsFeed>(call, parts, "weights");
}

}  // namespace genesis
