#include "server/http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "server/http/http_context.h"
#include "tests/server/http_client.h"

namespace genesis {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

HttpResponse Echo(const HttpRequest& request) {
  if (request.path == "/throw") throw std::runtime_error("broken on purpose");
  if (request.path == "/missing") return {.status = 404, .body = "nothing here"};
  if (request.path == "/large") return {.body = std::string(1 << 20, 'x')};
  return {.body = absl::StrCat(request.method, " ", request.path, " ", request.query)};
}

std::unique_ptr<HttpServer> StartEcho(HttpLimits limits = {}) {
  auto server = HttpServer::Start("127.0.0.1:0", Pages(Echo), limits);
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

TEST(HttpServer, AnswersAGetWithThePageAndItsLength) {
  const auto server = StartEcho();
  EXPECT_THAT(HttpExchange(server->port(), "GET", "/page?a=b"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("Content-Length: 13\r\n"),
                    HasSubstr("Content-Type: text/plain; charset=utf-8\r\n"),
                    EndsWith("\r\n\r\nGET /page a=b")));
}

TEST(HttpServer, AnswersAHeadWithTheLengthAndNoBody) {
  const auto server = StartEcho();
  EXPECT_THAT(HttpExchange(server->port(), "HEAD", "/large"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("Content-Length: 1048576\r\n"),
                    EndsWith("\r\n\r\n")));
}

TEST(HttpServer, SendsALargePageWhole) {
  const auto server = StartEcho();
  EXPECT_GT(HttpExchange(server->port(), "GET", "/large").size(), size_t{1 << 20});
}

TEST(HttpServer, PassesOnTheStatusOfThePage) {
  const auto server = StartEcho();
  EXPECT_THAT(HttpExchange(server->port(), "GET", "/missing"),
              AllOf(StartsWith("HTTP/1.1 404 Not Found\r\n"), EndsWith("nothing here")));
}

TEST(HttpServer, ServesManyRequestsOnOneConnection) {
  const auto server = StartEcho();
  const HttpClient client(server->port());
  for (int i = 0; i < 5; ++i) {
    client.Send(absl::StrCat("GET /", i, " HTTP/1.1\r\nHost: test\r\n\r\n"));
    EXPECT_THAT(client.ReadUntil(absl::StrCat("GET /", i, " ")), StartsWith("HTTP/1.1 200 OK"));
  }
}

TEST(HttpServer, ServesPipelinedRequestsInOrder) {
  const auto server = StartEcho();
  const HttpClient client(server->port());
  client.Send(
      "GET /first HTTP/1.1\r\nHost: test\r\n\r\n"
      "GET /second HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
  const std::string answers = client.ReadAll();
  EXPECT_LT(answers.find("GET /first"), answers.find("GET /second"));
  EXPECT_THAT(answers, HasSubstr("GET /second"));
}

TEST(HttpServer, ClosesAfterAnHttp10Request) {
  const auto server = StartEcho();
  const HttpClient client(server->port());
  client.Send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), AllOf(StartsWith("HTTP/1.0 200 OK\r\n"), EndsWith("GET / ")));
}

TEST(HttpServer, RefusesAHeaderThatIsTooLong) {
  const auto server = StartEcho({.max_header_bytes = 2048, .max_body_bytes = 2048});
  const HttpClient client(server->port());
  client.Send("GET / HTTP/1.1\r\nX-Long: " + std::string(100000, 'x') + "\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), AllOf(StartsWith("HTTP/1.1 431 "), HasSubstr("over 2048 bytes")));
}

TEST(HttpServer, RefusesAnEndlessTarget) {
  const auto server = StartEcho({.max_header_bytes = 2048, .max_body_bytes = 2048});
  const HttpClient client(server->port());
  client.Send("GET /" + std::string(100000, 'x'));
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 431 "));
}

TEST(HttpServer, RefusesABodyThatIsTooLong) {
  const auto server = StartEcho({.max_header_bytes = 2048, .max_body_bytes = 2048});
  const HttpClient client(server->port());
  client.Send("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 100000\r\n\r\n" +
              std::string(100000, 'x'));
  EXPECT_THAT(client.ReadAll(), AllOf(StartsWith("HTTP/1.1 413 "), HasSubstr("over 2048 bytes")));
}

TEST(HttpServer, RefusesAChunkedBodyThatIsTooLong) {
  const auto server = StartEcho({.max_header_bytes = 2048, .max_body_bytes = 2048});
  const HttpClient client(server->port());
  client.Send("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n" +
              std::string(0x1000, 'x'));
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 413 "));
}

TEST(HttpServer, AnswersWhatIsNotHttpWith400) {
  const auto server = StartEcho();
  for (const char* bytes :
       {"hello\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "GET\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", "\x16\x03\x01\x02\r\n"}) {
    const HttpClient client(server->port());
    client.Send(bytes);
    EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 400 Bad Request\r\n")) << bytes;
  }
}

TEST(HttpServer, AnswersAPageThatThrowsWith500AndKeepsItsReasonToItself) {
  const auto server = StartEcho();
  EXPECT_THAT(HttpExchange(server->port(), "GET", "/throw"),
              AllOf(StartsWith("HTTP/1.1 500 "), Not(HasSubstr("on purpose"))));
  EXPECT_THAT(HttpExchange(server->port(), "GET", "/"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServer, TwoHundredHalfOpenConnectionsDoNotDelayAnAnswer) {
  const auto server = StartEcho();
  std::vector<std::unique_ptr<HttpClient>> half_open;
  for (int i = 0; i < 200; ++i) {
    half_open.push_back(std::make_unique<HttpClient>(server->port()));
    ASSERT_TRUE(half_open.back()->connected());
    if (i % 2 == 0) half_open.back()->Send("GET /healthz HTT");
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(HttpExchange(server->port(), "GET", "/healthz"), StartsWith("HTTP/1.1 200 "));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST(HttpServer, OverTheCapGivesUpTheConnectionThatIsIdleLongest) {
  const auto server = StartEcho({.max_connections = 2});
  const HttpClient first(server->port()), second(server->port());
  for (const HttpClient* client : {&first, &second}) {
    client->Send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    EXPECT_THAT(client->ReadUntil("GET / "), StartsWith("HTTP/1.1 200 "));
  }
  EXPECT_THAT(HttpExchange(server->port(), "GET", "/"), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(first.ReadAll(), "") << "closed";
  second.Send("GET /again HTTP/1.1\r\nHost: test\r\n\r\n");
  EXPECT_THAT(second.ReadUntil("GET /again "), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServer, OverTheCapTellsAConnectionThatHasSentNothing) {
  const auto server = StartEcho({.max_connections = 2});
  const HttpClient first(server->port()), second(server->port());
  std::vector<std::unique_ptr<HttpClient>> later;
  for (int i = 0; i < 8; ++i) {
    later.push_back(std::make_unique<HttpClient>(server->port()));
    later.back()->Send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    EXPECT_THAT(later.back()->ReadUntil("GET / "), StartsWith("HTTP/1.1 200 "));
  }
  for (const HttpClient* client : {&first, &second}) {
    EXPECT_THAT(client->ReadAll(),
                AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("Connection: close"),
                      EndsWith("Too many connections are open (accepted: 2); try again\n")));
  }
}

// 14 of 16 connections are not reserved for probes.
TEST(HttpServer, AnswersEachOfManyThatConnectAtOnce) {
  constexpr size_t kClients = 60, kServed = 14;
  HttpHandlers handlers;
  absl::Mutex mutex;
  std::vector<Respond> waiting;
  handlers.handle = [&](const HttpRequest&, const Respond& respond) {
    const absl::MutexLock lock(&mutex);
    waiting.push_back(respond);
  };
  const auto server = HttpServer::Start("127.0.0.1:0", handlers, {.max_connections = 16});
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (size_t i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<HttpClient>((*server)->port()));
    clients.back()->Send("GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
  }
  std::vector<std::string> answers;
  std::vector<std::thread> readers;
  for (const auto& client : clients) {
    readers.emplace_back([&] {
      const std::string answer = client->ReadAll();
      const absl::MutexLock lock(&mutex);
      answers.push_back(answer);
    });
  }
  mutex.Lock();
  const auto refused = [&] { return answers.size() >= kClients - kServed; };
  mutex.Await(absl::Condition(&refused));
  for (const Respond& respond : std::exchange(waiting, {})) respond({.body = "served"});
  mutex.Unlock();
  for (std::thread& reader : readers) reader.join();
  EXPECT_THAT(answers, Contains(StartsWith("HTTP/1.1 200 ")).Times(kServed));
  EXPECT_THAT(answers, Contains(StartsWith("HTTP/1.1 503 ")).Times(kClients - kServed));
}

// Requests without a response take all slots except those reserved for probes.
TEST(HttpServer, AnswersProbesWhileEveryOtherPlaceIsTaken) {
  HttpHandlers handlers;
  handlers.handle = [](const HttpRequest& request, const Respond& respond) {
    if (request.path == "/healthz") respond({.body = "ok"});
  };
  handlers.is_probe = [](const HttpRequest& request) { return request.path == "/healthz"; };
  const auto server = HttpServer::Start("127.0.0.1:0", handlers, {.max_connections = 16});
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<std::unique_ptr<HttpClient>> busy;
  for (int i = 0; i < 14; ++i) {
    busy.push_back(std::make_unique<HttpClient>((*server)->port()));
    busy.back()->Send("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n");
  }
  for (int i = 0; i < 40; ++i) {
    busy.push_back(std::make_unique<HttpClient>((*server)->port()));
    EXPECT_THAT(HttpExchange((*server)->port(), "GET", "/healthz"), EndsWith("ok"));
  }
  EXPECT_THAT(HttpExchange((*server)->port(), "GET", "/slow"), StartsWith("HTTP/1.1 503 "));
}

TEST(HttpServer, ClosesAConnectionThatSendsNothingInTime) {
  const auto server = StartEcho({.read_timeout_s = 1});
  const HttpClient silent(server->port()), slow(server->port());
  slow.Send("GET / HTTP/1.1\r\n");
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_EQ(slow.ReadAll(), "");
}

TEST(HttpServer, SaysWhichAddressIsTaken) {
  const auto server = StartEcho();
  const std::string address = absl::StrCat("127.0.0.1:", server->port());
  const auto second = HttpServer::Start(address, Pages(Echo));
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()),
              StartsWith("cannot listen on " + address + ": Address already in use; "));
}

TEST(HttpServer, RefusesAnAddressThatIsNone) {
  for (const char* address :
       {"8080", "127.0.0.1:", ":8080", "127.0.0.1:http", "127.0.0.1:70000", "127.0.0.1:-1", ""}) {
    const auto server = HttpServer::Start(address, Pages(Echo));
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(std::string(server.status().message()), HasSubstr(address));
  }
}

TEST(HttpServer, RefusesAnAddressOfAnotherMachine) {
  const auto server = HttpServer::Start("192.0.2.1:8080", Pages(Echo));
  EXPECT_EQ(server.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(HttpServer, ListensOnANameOfThisMachine) {
  const auto server = HttpServer::Start("localhost:0", Pages(Echo));
  EXPECT_TRUE(server.ok()) << server.status();
}

TEST(HttpServer, StopClosesEveryConnectionAndFreesThePort) {
  auto server = StartEcho();
  const std::string address = absl::StrCat("127.0.0.1:", server->port());
  const HttpClient idle(server->port()), served(server->port());
  served.Send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
  served.ReadUntil("GET / ");
  server->Stop();
  server->Stop();
  EXPECT_EQ(idle.ReadAll(), "");
  EXPECT_EQ(served.ReadAll(), "");
  const auto next = HttpServer::Start(address, Pages(Echo));
  EXPECT_TRUE(next.ok()) << next.status();
}

TEST(HttpServer, HoldsNoSessionThatAsksAfterTheEnd) {
  class Session : public HttpSessionBase {
   public:
    void Close() override {}
    void Leave() override {}
    void CheckClient() override {}
  };
  HttpContext context(HttpHandlers(), HttpLimits(), nullptr);
  auto before = std::make_shared<Session>();
  auto after = std::make_shared<Session>();
  context.Hold(before);
  context.CloseAll();
  context.Hold(after);
  EXPECT_EQ(before.use_count(), 1);
  EXPECT_EQ(after.use_count(), 1);
}

// A pipelined request, which is not read yet, does not hide the end of the connection.
TEST(HttpServer, AHandlerThatWaitsLearnsThatItsClientIsGone) {
  absl::Mutex mutex;
  std::shared_ptr<const std::atomic<bool>> gone;
  HttpHandlers handlers;
  handlers.handle = [&](const HttpRequest& request, const Respond&) {
    absl::MutexLock lock(&mutex);
    gone = request.client_gone;
  };
  auto server = HttpServer::Start("127.0.0.1:0", handlers);
  ASSERT_TRUE(server.ok()) << server.status();
  const auto asks = [&] {
    absl::MutexLock lock(&mutex);
    mutex.Await(absl::Condition(
        +[](decltype(gone)* seen) { return *seen != nullptr; }, &gone));
    return std::exchange(gone, nullptr);
  };
  const HttpClient stays((*server)->port());
  stays.Send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
  const auto staying = asks();
  std::shared_ptr<const std::atomic<bool>> left;
  {
    const HttpClient leaves((*server)->port());
    leaves.Send("GET / HTTP/1.1\r\nHost: test\r\n\r\nGET /next HTTP/1.1\r\nHost: test\r\n\r\n");
    left = asks();
    EXPECT_FALSE(*left);
  }
  while (!*left) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_FALSE(*staying);
}

TEST(HttpServer, StopsWhileRequestsArrive) {
  for (int round = 0; round < 20; ++round) {
    auto server = StartEcho();
    std::thread client([port = server->port()] {
      for (int i = 0; i < 20; ++i) HttpExchange(port, "GET", "/large");
    });
    HttpExchange(server->port(), "GET", "/");
    server.reset();
    client.join();
  }
}

}  // namespace
}  // namespace genesis
