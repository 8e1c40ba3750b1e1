#include "client/channel.h"

#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace genesis
