#include "server/rpc/connection_acceptor.h"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

// Counts connections by their outcome, as reported on the acceptor's thread.
class Tally {
 public:
  ~Tally() {
    for (const int fd : taken_) close(fd);
  }
  void Take(int fd) {
    absl::MutexLock lock(&mutex_);
    taken_.push_back(fd);
  }
  // Records the refusal. After Hold, returns only once Release has been called.
  void Refuse(const std::string& reason) {
    absl::MutexLock lock(&mutex_);
    refused_.push_back(reason);
    mutex_.Await(absl::Condition(&released_));
  }
  void Hold() {
    absl::MutexLock lock(&mutex_);
    released_ = false;
  }
  void Release() {
    absl::MutexLock lock(&mutex_);
    released_ = true;
  }
  // Waits for `seen` connections. Returns the number still open and the reasons of refusals.
  std::pair<int, std::vector<std::string>> After(size_t seen) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return taken_.size() + closed_ + refused_.size() >= seen;
    };
    EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&enough), absl::Seconds(60)));
    return {static_cast<int>(taken_.size()), refused_};
  }
  // Closes a connection, as gRPC does when a client has disconnected.
  void CloseOne() {
    absl::MutexLock lock(&mutex_);
    close(taken_.back());
    taken_.pop_back();
    ++closed_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<int> taken_ ABSL_GUARDED_BY(mutex_);
  size_t closed_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> refused_ ABSL_GUARDED_BY(mutex_);
  bool released_ ABSL_GUARDED_BY(mutex_) = true;
};

void ConnectTo(int port, int fd) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
}

int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ConnectTo(port, fd);
  return fd;
}

class AcceptorTest : public testing::Test {
 protected:
  void Start(int most) {
    acceptor_ = std::make_unique<ConnectionAcceptor>(
        most, [this](const std::string& reason) { tally_.Refuse(reason); });
    ListenSockets sockets = ListenSockets::Tcp("127.0.0.1:0").value();
    port_ = sockets.port();
    acceptor_->Add(std::move(sockets), [this](int fd) { tally_.Take(fd); });
    acceptor_->Start();
  }
  void TearDown() override {
    acceptor_->Stop();
    for (const int fd : clients_) close(fd);
  }
  void ConnectClient() { clients_.push_back(Connect(port_)); }

  Tally tally_;
  int port_ = 0;
  std::vector<int> clients_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;
};

TEST_F(AcceptorTest, ClosesWhatIsTooMuchAndTakesTheNextOnceOneHasGone) {
  Start(2);
  for (int i = 0; i < 3; ++i) ConnectClient();
  EXPECT_EQ(tally_.After(3), std::make_pair(2, std::vector<std::string>{"max_connections"}));
  char byte = 0;
  EXPECT_LE(recv(clients_[2], &byte, 1, 0), 0);
  tally_.CloseOne();
  ConnectClient();
  EXPECT_EQ(tally_.After(4), std::make_pair(2, std::vector<std::string>{"max_connections"}));
}

TEST_F(AcceptorTest, EndsTheConnectionOfOnePeerWithWhatItHasSent) {
  Start(4);
  for (int i = 0; i < 2; ++i) ConnectClient();
  EXPECT_EQ(tally_.After(2).first, 2);
  ASSERT_EQ(send(clients_[0], "xyz", 3, MSG_NOSIGNAL), 3);
  sockaddr_in own = {};
  socklen_t length = sizeof(own);
  getsockname(clients_[0], reinterpret_cast<sockaddr*>(&own), &length);
  const std::string peer = absl::StrCat("ipv4:127.0.0.1:", ntohs(own.sin_port));
  EXPECT_FALSE(acceptor_->Close("ipv4:127.0.0.1:1"));
  EXPECT_TRUE(acceptor_->Close(peer));
  EXPECT_FALSE(acceptor_->Close(peer)) << "it is ended once";
  char byte = 0;
  EXPECT_LE(recv(clients_[0], &byte, 1, 0), 0);
  EXPECT_EQ(recv(clients_[1], &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN) << "the other is open";
}

TEST_F(AcceptorTest, CountsARefusalBeforeItsClientCanSeeIt) {
  Start(1);
  ConnectClient();
  EXPECT_EQ(tally_.After(1).first, 1);
  tally_.Hold();
  ConnectClient();
  EXPECT_EQ(tally_.After(2).second.size(), 1u);
  char byte = 0;
  EXPECT_EQ(recv(clients_[1], &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  tally_.Release();
  EXPECT_LE(recv(clients_[1], &byte, 1, 0), 0);
}

TEST_F(AcceptorTest, LeavesAQuarterOfTheHandlesAlone) {
  Start(1000);
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit small = before;
  small.rlim_cur = 100;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &small), 0);
  // Each connection takes two descriptors here: the client's and the accepted one.
  for (int i = 0; i < 40; ++i) ConnectClient();
  const auto [taken, refused] = tally_.After(40);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_THAT(refused, testing::Each("file_handles"));
  EXPECT_GE(taken, 15);
  EXPECT_LE(taken, 36);
}

// Uses up all file descriptors of the process until it is destroyed.
class NoHandles {
 public:
  NoHandles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit small = before_;
    small.rlim_cur = 100;
    setrlimit(RLIMIT_NOFILE, &small);
    for (int fd = dup(0); fd >= 0; fd = dup(0)) used_.push_back(fd);
  }
  ~NoHandles() {
    for (const int fd : used_) close(fd);
    setrlimit(RLIMIT_NOFILE, &before_);
  }

 private:
  rlimit before_ = {};
  std::vector<int> used_;
};

TEST_F(AcceptorTest, TellsClientsWhenNoHandleIsLeftAndServesThemOnceThereIs) {
  Start(1000);
  std::vector<int> sockets;
  for (int i = 0; i < 3; ++i) sockets.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  clients_ = sockets;
  {
    const NoHandles none;
    for (const int fd : sockets) ConnectTo(port_, fd);
    EXPECT_EQ(tally_.After(3), std::make_pair(0, std::vector<std::string>(3, "file_handles")));
  }
  ConnectClient();
  EXPECT_EQ(tally_.After(4).first, 1);
}

TEST(ListenSocketsTest, TwoProcessesDoNotShareAPort) {
  const ListenSockets first = ListenSockets::Tcp("127.0.0.1:0").value();
  const std::string address = absl::StrCat("127.0.0.1:", first.port());
  EXPECT_EQ(ListenSockets::Tcp(address).status().message(),
            absl::StrCat("cannot listen on ", address,
                         ": Address already in use; stop what uses it, or choose another with "
                         "--grpc-listen"));
}

TEST(ListenSocketsTest, LocalhostIsEveryAddressOfThatName) {
  const ListenSockets sockets = ListenSockets::Tcp("localhost:0").value();
  EXPECT_GE(sockets.fds().size(), 1u);
  close(Connect(sockets.port()));
}

TEST(ListenSocketsTest, AUnixPathHasALimit) {
  const TempDir dir;
  const std::string path = dir.path() + "/" + std::string(108, 'x');
  EXPECT_THAT(std::string(ListenSockets::Unix(path, 0600).status().message()),
              testing::HasSubstr("at most 107 fit; choose another with --grpc-unix-socket"));
}

}  // namespace
}  // namespace genesis
