#include "client/channel.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <string>

#include "tests/temp_dir.h"

namespace genesis {
namespace {

TEST(OpenChannelTest, RefusesWhatCannotBeMeant) {
  const auto fault = [](const DaemonAddress& address) {
    return std::string(OpenChannel(address).status().message());
  };
  DaemonAddress address;
  address.server = "10.0.0.1:1";
  address.token = "t";
  EXPECT_EQ(fault(address),
            "GENESIS_TOKEN: the token would travel unencrypted to 10.0.0.1:1; give --tls-ca with "
            "the authority of that daemon's certificate");
  address.server = "unix:/run/genesis.sock";
  EXPECT_TRUE(OpenChannel(address).ok());
  address.tls_cert = "c";
  EXPECT_EQ(fault(address),
            "--tls-cert and --tls-key: one is given without the other; give both or none");
  address.tls_key = "k";
  EXPECT_EQ(fault(address),
            "--tls-cert needs --tls-ca, the authority of the daemon's certificate; give it");
  address.tls_ca = "/nowhere/ca.pem";
  EXPECT_EQ(fault(address), "--tls-ca: /nowhere/ca.pem: no such file; check the path");
}

// A server on a unix socket with the given name, in its own folder.
class UnixServer {
 public:
  explicit UnixServer(const std::string& name) : path_(temp_.path() + "/" + name) {
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener, 1), 0);
    listener_ = listener;
  }
  ~UnixServer() { close(listener_); }
  // Returns true if a channel opened for the path as given connects to this server.
  bool IsDialed() const {
    DaemonAddress address;
    address.server = "unix:" + path_;
    const auto channel = OpenChannel(address);
    EXPECT_TRUE(channel.ok()) << channel.status();
    if (!channel.ok()) return false;
    (*channel)->GetState(/*try_to_connect=*/true);
    pollfd dialed = {listener_, POLLIN, 0};
    return poll(&dialed, 1, /*timeout=*/20'000) == 1;
  }

 private:
  const TempDir temp_;
  const std::string path_;
  int listener_ = -1;
};

TEST(OpenChannelTest, APathIsNotAUri) {
  for (const char* const name : {"plain.sock", "x#y", "a?b=c", "50%25", "100%", "a b",
                                 "\xc3\xa9~[1]", "p;q&r:s@t!u$v'w(x)*y+z=", "\"q\"\\", "\xff"}) {
    EXPECT_TRUE(UnixServer(name).IsDialed()) << name;
  }
}

TEST(OpenChannelTest, AUriStaysOne) {
  DaemonAddress address;
  address.server = "unix:///run/a%20b.sock";
  EXPECT_TRUE(OpenChannel(address).ok());
}

TEST(OpenChannelTest, RefusesACommaInASocketsPath) {
  DaemonAddress address;
  address.server = "unix:/run/a,b.sock";
  EXPECT_EQ(OpenChannel(address).status().message(),
            "the unix socket \"/run/a,b.sock\" has a comma, which gRPC takes for the end of an "
            "address; give it a path without one");
}

}  // namespace
}  // namespace genesis
