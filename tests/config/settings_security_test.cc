// Tests of who can reach the daemon: settings that are refused, and what --insecure allows.
#include <map>

#include "config/settings/settings.h"
#include "config/settings/settings_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

LoadedSettings LoadSecure(const std::vector<std::string>& args,
                          const std::map<std::string, std::string>& variables = {}) {
  const Environment environment = [variables](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
  return LoadSettings(args, environment, "/opt/genesis/bin");
}

std::vector<std::string> SecurityErrors(const LoadedSettings& loaded) {
  std::vector<std::string> errors;
  for (const FieldError& error : loaded.errors) errors.push_back(error.ToString());
  return errors;
}

const std::vector<std::string> kTls = {"--tls-certificate-file=c.pem", "--tls-key-file=k.pem"};

std::vector<std::string> With(std::vector<std::string> flags, const std::string& one) {
  flags.push_back(one);
  return flags;
}

TEST(OpenAddressTest, NeedsTlsAndSomethingThatAsksWhoCalls) {
  for (const char* address : {"--grpc-listen=0.0.0.0:1", "--http-listen=[::]:1"}) {
    EXPECT_EQ(SecurityErrors(LoadSecure({address})).size(), 1u);
    EXPECT_EQ(SecurityErrors(LoadSecure(With(kTls, address))).size(), 1u);
    EXPECT_EQ(SecurityErrors(LoadSecure({"--auth-tokens-file=t", address})).size(), 1u);
    EXPECT_THAT(SecurityErrors(LoadSecure(With(With(kTls, address), "--auth-tokens-file=t"))),
                IsEmpty());
    EXPECT_THAT(SecurityErrors(LoadSecure(With(With(kTls, address), "--tls-client-ca-file=ca"))),
                IsEmpty());
    EXPECT_THAT(SecurityErrors(LoadSecure({kTls[0], kTls[1], address, "--auth-jwks-file=k",
                                           "--auth-jwt-issuer=i", "--auth-jwt-audience=a"})),
                IsEmpty());
  }
}

TEST(OpenAddressTest, IsServedWhenInsecureIsSpelledOutAndSaysSo) {
  const LoadedSettings open = LoadSecure({"--grpc-listen=0.0.0.0:1", "--insecure"});
  EXPECT_THAT(SecurityErrors(open), IsEmpty());
  EXPECT_THAT(InsecureNotes(open.settings),
              ElementsAre(HasSubstr("everybody who reaches grpc.listen 0.0.0.0:1 may do "
                                    "everything")));
  const LoadedSettings clear =
      LoadSecure({"--http-listen=0.0.0.0:1", "--auth-tokens-file=t", "--insecure"});
  EXPECT_THAT(SecurityErrors(clear), IsEmpty());
  EXPECT_THAT(InsecureNotes(clear.settings), ElementsAre(HasSubstr("is not encrypted")));
  EXPECT_THAT(InsecureNotes(LoadSecure({"--insecure"}).settings), IsEmpty());
  EXPECT_THAT(
      InsecureNotes(
          LoadSecure(With(With(kTls, "--grpc-listen=0.0.0.0:1"), "--auth-tokens-file=t")).settings),
      IsEmpty());
}

TEST(OpenAddressTest, InsecureIsAFlagAndNothingElse) {
  EXPECT_EQ(SecurityErrors(LoadSecure({"--grpc-listen=0.0.0.0:1"}, {{"GENESIS_INSECURE", "true"}}))
                .size(),
            1u);
  EXPECT_EQ(FindByKey("insecure"), nullptr);
}

TEST(TlsSettingsTest, NeedBothHalves) {
  EXPECT_THAT(SecurityErrors(LoadSecure({"--tls-certificate-file=c"})),
              ElementsAre("tls.key_file: required with tls.certificate_file; give the file of its "
                          "key"));
  EXPECT_THAT(SecurityErrors(LoadSecure({"--tls-key-file=k"})),
              ElementsAre(HasSubstr("tls.certificate_file: required with tls.key_file")));
  EXPECT_THAT(SecurityErrors(LoadSecure({"--tls-client-ca-file=a"})),
              ElementsAre(HasSubstr("tls.certificate_file: required with tls.client_ca_file")));
}

TEST(JwtSettingsTest, NeedIssuerAndAudience) {
  EXPECT_THAT(SecurityErrors(LoadSecure({"--auth-jwks-file=k", "--auth-jwt-owner-claim="})),
              ElementsAre("auth.jwt_issuer: required with auth.jwks_file; give the text that "
                          "accepted JWTs have",
                          HasSubstr("auth.jwt_audience: required"),
                          HasSubstr("owner-claim: required")));
  const std::vector<std::string> jwt = {"--auth-jwks-file=k", "--auth-jwt-issuer=i",
                                        "--auth-jwt-audience=a"};
  EXPECT_THAT(SecurityErrors(LoadSecure(jwt)), IsEmpty());
  EXPECT_THAT(SecurityErrors(LoadSecure({"--auth-jwt-issuer=i"})),
              ElementsAre(HasSubstr("auth.jwks_file: required with auth.jwt_issuer")));
  EXPECT_THAT(SecurityErrors(LoadSecure({"--auth-jwt-role-claim=two words"})),
              ElementsAre("--auth-jwt-role-claim is \"two words\"; accepted: printable characters "
                          "without spaces"));
}

TEST(OtlpEndpointTest, ARefusedOneDoesNotShowItsPassword) {
  EXPECT_THAT(SecurityErrors(LoadSecure({"--otlp-endpoint=http://ann:pa@ss@host:1/x"})),
              ElementsAre(HasSubstr("--otlp-endpoint is \"http://...@host:1/x\"; accepted: ")));
  EXPECT_THAT(SecurityErrors(LoadSecure({"--otlp-endpoint=ftp://host/a@b"})),
              ElementsAre(HasSubstr("\"ftp://host/a@b\"")));
}

TEST(UnixSocketModeTest, IsOctalAndTheOwners) {
  EXPECT_EQ(LoadSecure({"--grpc-unix-socket-mode=0660"}).settings.grpc.unix_socket_mode, 0660);
  EXPECT_EQ(LoadSecure({}).settings.grpc.unix_socket_mode, 0600);
  for (const char* bad : {"0777", "60", "0060", "rw", "", "0668", "-0600"}) {
    EXPECT_THAT(SecurityErrors(LoadSecure({std::string("--grpc-unix-socket-mode=") + bad})),
                ElementsAre(HasSubstr("accepted: 0600 to 0666 in octal, such as 0660")))
        << bad;
  }
}

TEST(ReloadTest, ReadsTheSameSourcesAgain) {
  const LoadedSettings first = LoadSecure({"--queue-max-jobs=7"}, {{"GENESIS_LOG_LEVEL", "debug"}});
  const LoadedSettings second = first.again();
  EXPECT_EQ(second.settings.queue.max_jobs, 7);
  EXPECT_EQ(second.settings.log.level, "debug");
}

}  // namespace
}  // namespace genesis
