// Tests of the codes and sessions by which browsers sign in.
#include "server/auth/browser_sessions.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/api_gate.h"
#include "server/auth/token_authenticator.h"

namespace genesis {
namespace {

using testing::HasSubstr;
using testing::Not;

const absl::Time kSignInTime = absl::FromUnixSeconds(1'800'000'000);

Caller SigningIn(const std::string& name) {
  Caller caller{name, Role::kViewer, ""};
  caller.credentials = std::make_shared<const Credentials>();
  return caller;
}

TEST(BrowserSessionsTest, ACodeWorksOnceWithinAMinute) {
  BrowserSessions sessions;
  const auto code = sessions.NewCode(SigningIn("ann"), kSignInTime);
  ASSERT_TRUE(code.ok()) << code.status();
  EXPECT_EQ(code->text.size(), 22u) << "128 bits in base64";
  EXPECT_EQ(code->end, kSignInTime + absl::Minutes(1));
  const auto session = sessions.Exchange(code->text, kSignInTime + absl::Seconds(59));
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ(session->end, kSignInTime + absl::Seconds(59) + absl::Hours(12));

  const absl::Status used = sessions.Exchange(code->text, kSignInTime).status();
  const auto late = sessions.NewCode(SigningIn("ann"), kSignInTime);
  const absl::Status expired =
      sessions.Exchange(late->text, kSignInTime + absl::Minutes(1)).status();
  const absl::Status wrong = sessions.Exchange("AAAAAAAAAAAAAAAAAAAAAA", kSignInTime).status();
  EXPECT_EQ(used.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(used, expired) << "the text must not say which";
  EXPECT_EQ(used, wrong);
  EXPECT_FALSE(sessions.Exchange(late->text, kSignInTime).ok()) << "an expired code stays used";
}

TEST(BrowserSessionsTest, ASessionEndsAfterTwelveHoursOrWhenItIsEnded) {
  BrowserSessions sessions;
  const auto begin = [&] {
    return sessions.Exchange(sessions.NewCode(SigningIn("ann"), kSignInTime)->text, kSignInTime)
        ->text;
  };
  const std::string one = begin(), other = begin();
  EXPECT_EQ(sessions.Find(one, kSignInTime + absl::Hours(12) - absl::Seconds(1))->name, "ann");
  EXPECT_FALSE(sessions.Find(one, kSignInTime + absl::Hours(12)).has_value());
  sessions.End(one);
  EXPECT_EQ(sessions.ended(), 1u);
  EXPECT_FALSE(sessions.Find(one, kSignInTime).has_value());
  EXPECT_TRUE(sessions.Find(other, kSignInTime).has_value());
  sessions.End("unknown");
  EXPECT_EQ(sessions.ended(), 1u);
}

TEST(BrowserSessionsTest, CodesOfOneCallerReplaceItsOwnAlone) {
  BrowserSessions sessions;
  const std::string of_ben = sessions.NewCode(SigningIn("ben"), kSignInTime)->text;
  std::vector<std::string> codes;
  for (size_t i = 0; i <= BrowserSessions::kMaxOfCaller; ++i) {
    const absl::Time time = kSignInTime + absl::Milliseconds(i);
    codes.push_back(sessions.NewCode(SigningIn("ann"), time)->text);
  }
  EXPECT_FALSE(sessions.Exchange(codes.front(), kSignInTime).ok()) << "the oldest made room";
  EXPECT_TRUE(sessions.Exchange(codes[1], kSignInTime).ok());
  EXPECT_TRUE(sessions.Exchange(codes.back(), kSignInTime).ok());
  EXPECT_TRUE(sessions.Exchange(of_ben, kSignInTime).ok());
}

TEST(BrowserSessionsTest, CodesOfAllCallersAreBoundedUntilTheyExpire) {
  BrowserSessions sessions;
  for (size_t i = 0; i < BrowserSessions::kMaxOfAll; ++i) {
    ASSERT_TRUE(sessions.NewCode(SigningIn(absl::StrCat("caller-", i)), kSignInTime).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(sessions.NewCode(SigningIn("ann"), kSignInTime).status()));
  EXPECT_TRUE(sessions.NewCode(SigningIn("ann"), kSignInTime + absl::Minutes(1)).ok());
}

class BrowserSessionTest : public testing::Test {
 protected:
  static std::string Line(const std::string& name, const std::string& role,
                          const std::string& token) {
    return absl::StrCat(name, " ", role, " ", FormatTokenHash(HashToken(token)), "\n");
  }
  static TokenAuthenticator::Rules Rules(const std::string& lines) {
    TokenAuthenticator::Rules rules;
    rules.file = ParseTokenFile(lines, "t").value();
    return rules;
  }
  static Credentials Bearer(const std::string& token) {
    return {absl::StrCat("Bearer ", token), "", "ipv4:127.0.0.1:1"};
  }
  static Caller CallerOf(const TokenAuthenticator& authenticator, const Credentials& credentials) {
    Caller caller = authenticator.Authenticate(credentials).value();
    caller.credentials = std::make_shared<const Credentials>(credentials);
    return caller;
  }
  static std::string SessionOf(TokenAuthenticator& authenticator, const Credentials& credentials) {
    const auto code = authenticator.NewLoginCode(CallerOf(authenticator, credentials));
    return authenticator.StartSession(code->text).value().text;
  }
  // Returns the caller's name and role, "ann admin", or the error code.
  static std::string Who(const TokenAuthenticator& authenticator, const Credentials& credentials) {
    const absl::StatusOr<Caller> caller = authenticator.Authenticate(credentials);
    if (!caller.ok()) return absl::StatusCodeToString(caller.status().code());
    return absl::StrCat(caller->name, " ", RoleName(caller->role));
  }

  TokenAuthenticator authenticator_{
      Rules(Line("ann", "admin", "ta") + Line("ben", "submitter", "tb"))};
};

TEST_F(BrowserSessionTest, IsItsCallerAndIsNotTheCallersToken) {
  const std::string session = SessionOf(authenticator_, Bearer("tb"));
  EXPECT_EQ(Who(authenticator_, Bearer(session)), "ben submitter");
  EXPECT_THAT(session, Not(HasSubstr("tb")));
  const absl::Time end = authenticator_.Authenticate(Bearer(session))->end;
  EXPECT_LE(end, absl::Now() + absl::Hours(12));
  EXPECT_EQ(Who(authenticator_, Bearer(session + "x")), "UNAUTHENTICATED");
}

TEST_F(BrowserSessionTest, EndsWithTheTokenOfItsCallerAndIsNoOtherCaller) {
  const std::string session = SessionOf(authenticator_, Bearer("tb"));
  authenticator_.Replace(Rules(Line("ann", "admin", "ta")));
  const absl::Status revoked = authenticator_.Authenticate(Bearer(session)).status();
  EXPECT_TRUE(absl::IsUnauthenticated(revoked));
  EXPECT_THAT(std::string(revoked.message()), HasSubstr("the session has ended"));
  authenticator_.Replace(Rules(Line("eve", "submitter", "tb")));
  EXPECT_EQ(Who(authenticator_, Bearer(session)), "UNAUTHENTICATED") << "the token changed hands";
}

TEST_F(BrowserSessionTest, IsNeverOfAHigherRoleThanAtItsBeginAndFollowsALowerOne) {
  const std::string session = SessionOf(authenticator_, Bearer("tb"));
  authenticator_.Replace(Rules(Line("ben", "admin", "tb")));
  EXPECT_EQ(Who(authenticator_, Bearer("tb")), "ben admin");
  EXPECT_EQ(Who(authenticator_, Bearer(session)), "ben submitter");
  authenticator_.Replace(Rules(Line("ben", "viewer", "tb")));
  EXPECT_EQ(Who(authenticator_, Bearer(session)), "ben viewer");
  authenticator_.Replace(Rules(Line("ben", "worker", "tb")));
  EXPECT_EQ(Who(authenticator_, Bearer(session)), "ben worker") << "which may call no method";
}

TEST_F(BrowserSessionTest, GetsNoCodeItself) {
  const std::string session = SessionOf(authenticator_, Bearer("ta"));
  const auto code = authenticator_.NewLoginCode(CallerOf(authenticator_, Bearer(session)));
  EXPECT_TRUE(absl::IsPermissionDenied(code.status())) << code.status();
}

TEST_F(BrowserSessionTest, ThatIsEndedEndsOpenStreams) {
  const std::string session = SessionOf(authenticator_, Bearer("tb"));
  Metrics metrics("stable", "1");
  const ApiGate gate(&authenticator_, nullptr, &metrics);
  const MethodRow& watch = *FindMethod("WatchJobs");
  const ApiCall call(&gate, watch, "http", Bearer(session));
  EXPECT_TRUE(call.StillAdmitted().ok());
  authenticator_.EndSession("Bearer tb");
  EXPECT_TRUE(call.StillAdmitted().ok()) << "a token is not a session";
  EXPECT_EQ(Who(authenticator_, Bearer("tb")), "ben submitter");
  authenticator_.EndSession("Bearer " + session);
  EXPECT_TRUE(absl::IsUnauthenticated(call.StillAdmitted()));
}

TEST_F(BrowserSessionTest, StandsForACertificateToo) {
  TokenAuthenticator::Rules rules = Rules("cn:carol admin\n");
  rules.certificates = true;
  authenticator_.Replace(rules);
  const std::string session = SessionOf(authenticator_, {"", "carol", "ipv4:127.0.0.1:1"});
  EXPECT_EQ(Who(authenticator_, Bearer(session)), "carol admin");
  rules.file.reset();
  authenticator_.Replace(rules);
  EXPECT_EQ(Who(authenticator_, Bearer(session)), "carol submitter");
}

TEST_F(BrowserSessionTest, OfADaemonThatAsksForNoTokenNeedsNoCode) {
  TokenAuthenticator open{TokenAuthenticator::Rules()};
  const auto code = open.NewLoginCode(CallerOf(open, Credentials()));
  ASSERT_TRUE(code.ok());
  EXPECT_EQ(code->text, "");
}

}  // namespace
}  // namespace genesis
