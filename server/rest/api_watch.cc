#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "server/api/watch_feed.h"
#include "server/base/request_check.h"
#include "server/rest/api_error.h"
#include "server/rest/api_json.h"
#include "server/rest/api_streams.h"
#include "server/rest/request_reader.h"

namespace genesis {
namespace {

using training::v1::WatchJobRequest;
using training::v1::WatchJobResponse;

// The messages of a feed as lines of JSON, one for each Next. An error after the first message is
// sent as the last line, because the status line has already been sent.
//
// Threads: Write and Finish are called with the feed's lock held, so that lock is taken first.
class WatchBody final : public HttpBody,
                        public WatchSink,
                        public std::enable_shared_from_this<WatchBody> {
 public:
  WatchBody(const ApiStreamCall& call, JobManager* jobs, WatchJobRequest request, bool events)
      : threads_(call.threads),
        feed_(std::make_shared<WatchFeed>(this, call.call, jobs, std::move(request))),
        events_(events) {}
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
    threads_->Post([self = shared_from_this()] { self->feed_->Advance(); });
  }

  void Cancel() override {
    {
      absl::MutexLock lock(&mutex_);
      waiting_ = nullptr;
    }
    feed_->End(absl::CancelledError("the reader is gone"));
  }

  void Write(const WatchJobResponse& response) override {
    Deliver deliver;
    {
      absl::MutexLock lock(&mutex_);
      deliver = std::exchange(waiting_, nullptr);
    }
    if (deliver != nullptr) deliver(Line("job", ToJsonLine(response)));
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
    return events_ ? absl::StrCat("event: ", event, "\ndata: ", json, "\n") : json;
  }

  IoThreads* const threads_;
  const std::shared_ptr<WatchFeed> feed_;
  const bool events_;  // text/event-stream.
  absl::Mutex mutex_;
  Deliver waiting_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::string last_ ABSL_GUARDED_BY(mutex_);  // Last line, kept until requested.
};

}  // namespace

void ServeWatch(const ApiStreamCall& call, JobManager* jobs) {
  WatchJobRequest message;
  absl::Status status = ReadQuery(call.request.query, message);
  if (status.ok()) status = ReadPathFields(call.fields, message);
  if (status.ok()) status = CheckRequest(message);
  const bool events = absl::StrContains(call.request.Header("accept"), "text/event-stream");
  const auto body = std::make_shared<WatchBody>(call, jobs, message, events);
  if (status.ok()) status = body->Watch();
  if (!status.ok()) {
    call.call.Done(message.job_id(), status);
    return call.respond(ErrorResponse(status));
  }
  HttpResponse response{.content_type = events ? "text/event-stream" : "application/x-ndjson"};
  response.stream = body;
  call.respond(std::move(response));
}

}  // namespace genesis
