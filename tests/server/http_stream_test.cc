// Tests of late responses, streamed bodies in both directions, and clients that disconnect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/http/http_server.h"
#include "tests/server/http_client.h"

namespace genesis {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// An event for which another thread can wait.
class Signal {
 public:
  void Set() {
    const std::lock_guard<std::mutex> lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  bool Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [this] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

// Delivers pieces in order, each from its own thread, and then the end or an error.
class PiecesBody final : public HttpBody {
 public:
  PiecesBody(std::vector<std::string> pieces, absl::Status end)
      : pieces_(std::move(pieces)), end_(std::move(end)) {}
  ~PiecesBody() override {
    for (std::thread& thread : threads_) thread.join();
  }
  void Next(Deliver deliver) override {
    absl::StatusOr<std::string> piece = std::string();
    if (at_ < pieces_.size()) {
      piece = pieces_[at_++];
    } else if (!end_.ok()) {
      piece = end_;
    }
    threads_.emplace_back([deliver = std::move(deliver), piece] { deliver(piece); });
  }
  void Cancel() override {}

 private:
  const std::vector<std::string> pieces_;
  const absl::Status end_;
  size_t at_ = 0;
  std::vector<std::thread> threads_;
};

// Never delivers a piece. Signals when it is cancelled.
class SilentBody final : public HttpBody {
 public:
  explicit SilentBody(Signal* cancelled) : cancelled_(cancelled) {}
  void Next(Deliver) override {}
  void Cancel() override { cancelled_->Set(); }

 private:
  Signal* const cancelled_;
};

// Responds with the size of the body, but refuses it at a piece that contains an 'x'.
class CountingUpload final : public HttpUpload {
 public:
  CountingUpload(Respond respond, Signal* cancelled)
      : respond_(std::move(respond)), cancelled_(cancelled) {}
  void OnPiece(std::string piece, std::function<void()> more) override {
    size_ += piece.size();
    if (piece.find('x') != std::string::npos) return respond_({.status = 400, .body = "an x"});
    std::thread(std::move(more)).join();
  }
  void OnEnd() override { respond_({.body = absl::StrCat("took ", size_)}); }
  void OnCancel() override { cancelled_->Set(); }

 private:
  const Respond respond_;
  Signal* const cancelled_;
  size_t size_ = 0;
};

class HttpStream : public testing::Test {
 protected:
  HttpStream() {
    HttpHandlers handlers;
    handlers.handle = [this](const HttpRequest& request, const Respond& respond) {
      Handle(request, respond);
    };
    handlers.upload = [this](const HttpRequest& request, const Respond& respond) {
      HttpUploadStart start;
      if (request.path == "/upload") {
        start.upload = std::make_shared<CountingUpload>(respond, &cancelled_);
      } else if (request.path == "/forbidden") {
        start.refusal = HttpResponse{.status = 403, .body = "not you"};
      }
      return start;
    };
    auto server = HttpServer::Start("127.0.0.1:0", std::move(handlers), limits_);
    EXPECT_TRUE(server.ok()) << server.status();
    if (server.ok()) server_ = *std::move(server);
  }
  ~HttpStream() override {
    for (std::thread& thread : threads_) thread.join();
  }

  void Handle(const HttpRequest& request, const Respond& respond) {
    if (request.path == "/never") {
      kept_.push_back(respond);
      asked_.Set();
    } else if (request.path == "/silent") {
      HttpResponse response;
      response.stream = std::make_shared<SilentBody>(&cancelled_);
      respond(std::move(response));
    } else if (request.path == "/later") {
      threads_.emplace_back([respond, body = request.body] { respond({.body = "later " + body}); });
    } else {
      HttpResponse response;
      const bool broken = request.path == "/broken";
      response.stream = std::make_shared<PiecesBody>(
          std::vector<std::string>{"one,", "two,", "three"},
          broken ? absl::DataLossError("broken on purpose") : absl::OkStatus());
      if (request.path == "/sized") response.stream_length = 13;
      if (request.path == "/too-short") response.stream_length = 99;
      respond(std::move(response));
    }
  }

  std::string Post(const std::string& path, const std::string& body,
                   const std::string& header = "") const {
    const HttpClient client(server_->port());
    client.Send(absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n",
                             header, "Content-Length: ", body.size(), "\r\n\r\n", body));
    return client.ReadAll();
  }

  HttpLimits limits_;
  Signal cancelled_;
  Signal asked_;
  std::vector<Respond> kept_;
  std::vector<std::thread> threads_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpStream, AnAnswerMayComeLaterFromAnyThread) {
  EXPECT_THAT(Post("/later", "hello"), AllOf(StartsWith("HTTP/1.1 200"), EndsWith("later hello")));
}

TEST_F(HttpStream, ABodyWithoutALengthIsSentInChunks) {
  EXPECT_THAT(HttpExchange(server_->port(), "GET", "/"),
              AllOf(HasSubstr("Transfer-Encoding: chunked\r\n"),
                    EndsWith("\r\n\r\n4\r\none,\r\n4\r\ntwo,\r\n5\r\nthree\r\n0\r\n\r\n")));
}

TEST_F(HttpStream, ABodyOfKnownLengthKeepsTheConnection) {
  const HttpClient client(server_->port());
  for (int i = 0; i < 2; ++i) {
    client.Send("GET /sized HTTP/1.1\r\nHost: test\r\n\r\n");
    EXPECT_THAT(client.ReadUntil("three"),
                AllOf(HasSubstr("Content-Length: 13\r\n"), EndsWith("\r\n\r\none,two,three")));
  }
}

TEST_F(HttpStream, AnHttp10ClientGetsTheBodyUpToTheEndOfTheConnection) {
  const HttpClient client(server_->port());
  client.Send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_THAT(client.ReadAll(),
              AllOf(Not(HasSubstr("chunked")), EndsWith("\r\n\r\none,two,three")));
}

TEST_F(HttpStream, AFaultOrAWrongLengthBreaksTheBodyOffVisibly) {
  EXPECT_THAT(HttpExchange(server_->port(), "GET", "/broken"),
              AllOf(HasSubstr("three\r\n"), Not(HasSubstr("0\r\n\r\n"))));
  EXPECT_THAT(HttpExchange(server_->port(), "GET", "/too-short"),
              AllOf(HasSubstr("Content-Length: 99\r\n"), EndsWith("one,two,three")));
}

TEST_F(HttpStream, TheMakerIsToldWhenTheReaderIsGone) {
  {
    const HttpClient client(server_->port());
    client.Send("GET /silent HTTP/1.1\r\nHost: test\r\n\r\n");
    client.ReadUntil("\r\n\r\n");
  }
  EXPECT_TRUE(cancelled_.Wait());
}

TEST_F(HttpStream, TheMakerIsToldWhenTheServerStops) {
  const HttpClient client(server_->port());
  client.Send("GET /silent HTTP/1.1\r\nHost: test\r\n\r\n");
  client.ReadUntil("\r\n\r\n");
  server_->Stop();
  EXPECT_TRUE(cancelled_.Wait());
}

TEST_F(HttpStream, AnAnswerAfterTheServersEndGoesNowhere) {
  const HttpClient client(server_->port());
  client.Send("GET /never HTTP/1.1\r\nHost: test\r\n\r\n");
  ASSERT_TRUE(asked_.Wait());
  server_->Stop();
  EXPECT_EQ(client.ReadAll(), "");
  kept_[0]({.body = "too late"});
  server_.reset();
  kept_[0]({.body = "later still"});
}

TEST_F(HttpStream, AnUploadIsTakenPieceByPiece) {
  EXPECT_THAT(Post("/upload", std::string(3000000, 'a')), EndsWith("took 3000000"));
  EXPECT_THAT(Post("/upload", ""), EndsWith("took 0"));
  const HttpClient client(server_->port());
  client.Send(
      "POST /upload HTTP/1.1\r\nHost: test\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
      "\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), EndsWith("took 7"));
}

TEST_F(HttpStream, AnUploadThatIsRefusedHalfwayIsAnsweredAndTheConnectionClosed) {
  EXPECT_THAT(Post("/upload", std::string(100000, 'x')),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("Connection: close"), EndsWith("an x")));
}

TEST_F(HttpStream, ARefusalComesBeforeTheBody) {
  const HttpClient client(server_->port());
  client.Send(
      "POST /forbidden HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\n"
      "Content-Length: 1000000\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), AllOf(StartsWith("HTTP/1.1 403"), EndsWith("not you")));
}

TEST_F(HttpStream, AClientThatAsksForLeaveGetsIt) {
  const HttpClient client(server_->port());
  client.Send(
      "POST /later HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nConnection: close\r\n"
      "Content-Length: 2\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("ok");
  EXPECT_THAT(client.ReadAll(), EndsWith("later ok"));
}

TEST_F(HttpStream, TheTakerIsToldWhenTheSenderIsGone) {
  {
    const HttpClient client(server_->port());
    client.Send("POST /upload HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\n\r\nabc");
  }
  EXPECT_TRUE(cancelled_.Wait());
}

TEST(HttpBodies, TakeABoundedAmountOfMemoryTogether) {
  HttpLimits limits;
  limits.max_bodies_bytes = 1000;
  auto server = HttpServer::Start(
      "127.0.0.1:0",
      Pages([](const HttpRequest& request) { return HttpResponse{.body = request.body}; }), limits);
  ASSERT_TRUE(server.ok()) << server.status();
  auto first = std::make_unique<HttpClient>((*server)->port());
  first->Send(
      "POST / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 900\r\n\r\n");
  first->ReadUntil("100 Continue\r\n\r\n");
  const auto post = [&] {
    const HttpClient client((*server)->port());
    client.Send(
        "POST / HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: 200\r\n\r\n" +
        std::string(200, 'a'));
    return client.ReadAll();
  };
  EXPECT_THAT(post(), StartsWith("HTTP/1.1 503"));
  first.reset();
  // The server notices the free slot only through its own socket, so repeat the request.
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::string answer;
  while (answer.rfind("HTTP/1.1 200", 0) != 0 && std::chrono::steady_clock::now() < give_up) {
    answer = post();
  }
  EXPECT_THAT(answer, EndsWith(std::string(200, 'a')));
}

}  // namespace
}  // namespace genesis
