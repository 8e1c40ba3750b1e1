// Tests of the tokens file, the callers that it defines, and the gate in front of every method.
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/api_gate.h"
#include "server/auth/token_authenticator.h"
#include "server/auth/token_file.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Line(const std::string& name, const std::string& role, const std::string& token) {
  return absl::StrCat(name, " ", role, " ", FormatTokenHash(HashToken(token)), "\n");
}

std::string Fault(const std::string& text) {
  const absl::StatusOr<TokenFile> file = ParseTokenFile(text, "t");
  EXPECT_TRUE(absl::IsInvalidArgument(file.status())) << text;
  return std::string(file.status().message());
}

TEST(TokenFileTest, HasTokensAndCertificates) {
  const absl::StatusOr<TokenFile> file = ParseTokenFile(
      absl::StrCat("# people\n\n", Line("ann", "admin", "a"), "\t", Line("ben", "viewer", "b"),
                   "cn:build.example.org  submitter\r\n"),
      "t");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->tokens.size(), 2u);
  EXPECT_EQ(file->tokens[1].name, "ben");
  EXPECT_EQ(file->tokens[1].role, Role::kViewer);
  ASSERT_EQ(file->certificates.size(), 1u);
  EXPECT_EQ(file->certificates[0].name, "build.example.org");
  EXPECT_EQ(file->certificates[0].role, Role::kSubmitter);
}

TEST(TokenFileTest, TellsEveryFaultWithItsLineAndNoSecret) {
  const std::string text = Fault(
      "ann admin genesis_secretInTheWrongPlace\nben boss sha256:0\n-x admin y\n"
      "ann genesis_alone\n");
  EXPECT_THAT(
      text, HasSubstr("t:1: the third word is no hash of a token; accepted: NAME ROLE "
                      "sha256:SALT:DIGEST as genesisctl token prints it, cn:NAME ROLE or jwt:NAME "
                      "ROLE"));
  EXPECT_THAT(text, HasSubstr("t:2: the second word is no role; accepted: viewer, submitter, "
                              "admin or worker"));
  EXPECT_THAT(text, HasSubstr("t:3: the name is \"-x\"; accepted: 1 to 63 letters"));
  EXPECT_THAT(text, HasSubstr("t:4: has 2 words; accepted: NAME ROLE"));
  EXPECT_THAT(text, Not(HasSubstr("genesis_")));
}

TEST(TokenFileTest, WithNobodyInItIsRefused) {
  EXPECT_THAT(Fault(""), HasSubstr("holds no entry"));
  EXPECT_THAT(Fault("# nobody\n"), HasSubstr("holds no entry"));
}

TEST(TokenFileTest, HasAtMost1000Entries) {
  std::string text;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&text, "cn:c", i, " viewer\n");
  EXPECT_TRUE(ParseTokenFile(text, "t").ok());
  EXPECT_THAT(Fault(text + "cn:more viewer\n"), HasSubstr("has 1001 entries"));
}

TEST(TokenFileTest, ModeDecidesWhetherItIsRead) {
  const TempDir dir;
  dir.Write("tokens", "cn:a viewer\n");
  const std::string path = dir.path() + "/tokens";
  for (const mode_t mode : {0600, 0640, 0440, 0400}) {
    chmod(path.c_str(), mode);
    EXPECT_TRUE(LoadTokenFile(path).ok()) << mode;
  }
  for (const mode_t mode : {0644, 0660, 0604, 0602, 0620}) {
    chmod(path.c_str(), mode);
    EXPECT_THAT(LoadTokenFile(path).status().message(), HasSubstr("others may read or change it"))
        << mode;
  }
}

class AuthenticatorTest : public testing::Test {
 protected:
  static TokenAuthenticator::Rules Rules(bool tokens, bool certificates) {
    TokenAuthenticator::Rules rules;
    rules.certificates = certificates;
    rules.certificate_role = Role::kViewer;
    if (tokens) {
      rules.file =
          ParseTokenFile(absl::StrCat(Line("ann", "admin", "ta"), Line("ben", "submitter", "tb"),
                                      Line("ben", "submitter", "tb2"), "cn:carol admin\n"),
                         "t")
              .value();
    }
    return rules;
  }
  static Credentials Token(const std::string& header) { return {header, "", "ipv4:127.0.0.1:1"}; }
  static Credentials Certificate(const std::string& name) { return {"", name, "ipv4:127.0.0.1:1"}; }
  // Returns the caller's name and role, "ann admin", or the error code.
  static std::string Who(const TokenAuthenticator& authenticator, const Credentials& credentials) {
    const absl::StatusOr<Caller> caller = authenticator.Authenticate(credentials);
    if (!caller.ok()) return absl::StatusCodeToString(caller.status().code());
    return absl::StrCat(caller->name, " ", RoleName(caller->role));
  }
};

TEST_F(AuthenticatorTest, KnowsTokens) {
  const TokenAuthenticator authenticator(Rules(true, false));
  EXPECT_EQ(Who(authenticator, Token("Bearer ta")), "ann admin");
  EXPECT_EQ(Who(authenticator, Token("bearer tb")), "ben submitter");
  EXPECT_EQ(Who(authenticator, Token("Bearer tb2")), "ben submitter");
  for (const char* other : {"", "Bearer", "Bearer ", "Bearer t", "Bearer taa", "Bearer  ta", "ta",
                            "Basic ta", "Bearer ta "}) {
    EXPECT_EQ(Who(authenticator, Token(other)), "UNAUTHENTICATED") << other;
  }
  // Without a client CA, the certificate has not been verified.
  EXPECT_EQ(Who(authenticator, Certificate("carol")), "UNAUTHENTICATED");
}

TEST_F(AuthenticatorTest, KnowsCertificates) {
  const TokenAuthenticator both(Rules(true, true));
  EXPECT_EQ(Who(both, Certificate("carol")), "carol admin");
  EXPECT_EQ(Who(both, Certificate("dave")), "dave viewer");
  EXPECT_EQ(Who(both, Token("Bearer ta")), "ann admin");
  EXPECT_EQ(Who(both, Certificate("")), "UNAUTHENTICATED");
  EXPECT_EQ(Who(both, Certificate("jwt:ann")), "UNAUTHENTICATED") << "that owner has JWTs";
  // A certificate does not replace a wrong token.
  EXPECT_EQ(Who(both, {"Bearer wrong", "carol", ""}), "UNAUTHENTICATED");
  const TokenAuthenticator alone(Rules(false, true));
  EXPECT_EQ(Who(alone, Certificate("dave")), "dave viewer");
  EXPECT_EQ(Who(alone, Token("Bearer ta")), "UNAUTHENTICATED");
}

TEST_F(AuthenticatorTest, TheUnixSocketNeedsATokenWhereThereAreTokens) {
  const Credentials local = {"", "", "unix:"};
  EXPECT_EQ(Who(TokenAuthenticator(Rules(true, true)), local), "UNAUTHENTICATED");
  EXPECT_EQ(Who(TokenAuthenticator(Rules(false, true)), local), "unix-socket admin");
}

TEST_F(AuthenticatorTest, WithoutRulesEverybodyIsAdmin) {
  EXPECT_EQ(Who(TokenAuthenticator(Rules(false, false)), Token("")), "anonymous admin");
}

TEST_F(AuthenticatorTest, RulesCanBeReplaced) {
  TokenAuthenticator authenticator(Rules(true, false));
  TokenAuthenticator::Rules next;
  next.file = ParseTokenFile(Line("eve", "viewer", "te"), "t").value();
  authenticator.Replace(next);
  EXPECT_EQ(Who(authenticator, Token("Bearer ta")), "UNAUTHENTICATED");
  EXPECT_EQ(Who(authenticator, Token("Bearer te")), "eve viewer");
}

TEST_F(AuthenticatorTest, TheGateAsksForTheRoleAndSaysWhoLacksIt) {
  const TokenAuthenticator authenticator(Rules(true, false));
  Metrics metrics("stable", "1");
  const ApiGate gate(&authenticator, nullptr, &metrics);
  const MethodRow& reload = MethodOfRequest("ReloadConfigRequest");
  Caller caller;
  EXPECT_TRUE(gate.Admit(reload, Token("Bearer ta"), &caller).ok());
  EXPECT_EQ(caller.name, "ann");
  const absl::Status refused = gate.Admit(reload, Token("Bearer tb"), &caller);
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_EQ(refused.message(),
            "ReloadConfig needs the role admin; \"ben\" has submitter: call as another, or ask an "
            "admin for more");
  EXPECT_EQ(caller.name, "ben");
  EXPECT_TRUE(absl::IsUnauthenticated(gate.Admit(reload, Token("Bearer x"), &caller)));
  EXPECT_EQ(caller.name, "");
  EXPECT_EQ(caller.role, Role::kViewer);
}

}  // namespace
}  // namespace genesis
