// Tests of JWTs: the keys of an issuer, what a token must have, and hostile tokens.
#include <cjose/cjose.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rsa.h>
#include <sys/stat.h>

#include <array>
#include <cstdlib>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/api_gate.h"
#include "server/auth/json_web_token.h"
#include "server/auth/token_authenticator.h"
#include "tests/temp_dir.h"

namespace genesis {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr size_t kHalf = 32;  // Bytes of r and of s.

std::string Base64(const std::string& bytes) {
  return std::string(
      absl::StripSuffix(absl::StripSuffix(absl::WebSafeBase64Escape(bytes), "="), "="));
}

// A key pair of an issuer. The test ends if OpenSSL fails.
class Signer {
 public:
  explicit Signer(bool rsa, unsigned bits = 2048)
      : rsa_(rsa), key_(rsa ? EVP_RSA_gen(bits) : EVP_EC_gen("P-256"), &EVP_PKEY_free) {
    if (key_ == nullptr) abort();
  }

  // Returns the public key as a member of a JWK Set.
  Json Jwk(const std::string& id) const {
    if (rsa_) {
      return {{"kty", "RSA"},
              {"kid", id},
              {"n", Base64(Number(OSSL_PKEY_PARAM_RSA_N))},
              {"e", Base64(Number(OSSL_PKEY_PARAM_RSA_E))}};
    }
    return {{"kty", "EC"},
            {"crv", "P-256"},
            {"kid", id},
            {"x", Base64(Padded(Number(OSSL_PKEY_PARAM_EC_PUB_X)))},
            {"y", Base64(Padded(Number(OSSL_PKEY_PARAM_EC_PUB_Y)))}};
  }

  // Returns the signature of `text` as JWS has it, or for ECDSA in DER.
  std::string Sign(const std::string& text, bool der = false) const {
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                          &EVP_MD_CTX_free);
    EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key_.get());
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    size_t size = 0;
    EVP_DigestSign(context.get(), nullptr, &size, bytes, text.size());
    std::string signature(size, '\0');
    auto* out = reinterpret_cast<unsigned char*>(signature.data());
    if (EVP_DigestSign(context.get(), out, &size, bytes, text.size()) != 1) abort();
    signature.resize(size);
    if (rsa_ || der) return signature;
    const auto* in = reinterpret_cast<const unsigned char*>(signature.data());
    ECDSA_SIG* halves = d2i_ECDSA_SIG(nullptr, &in, static_cast<long>(size));
    std::string joined =
        Padded(Bytes(ECDSA_SIG_get0_r(halves))) + Padded(Bytes(ECDSA_SIG_get0_s(halves)));
    ECDSA_SIG_free(halves);
    return joined;
  }

  // Returns a token with exactly this header and these claims.
  std::string Token(const std::string& header, const std::string& claims) const {
    const std::string signed_text = absl::StrCat(Base64(header), ".", Base64(claims));
    return absl::StrCat(signed_text, ".", Base64(Sign(signed_text)));
  }

 private:
  static std::string Bytes(const BIGNUM* number) {
    std::string bytes(static_cast<size_t>(BN_num_bytes(number)), '\0');
    BN_bn2bin(number, reinterpret_cast<unsigned char*>(bytes.data()));
    return bytes;
  }
  static std::string Padded(const std::string& bytes) {
    return std::string(kHalf - bytes.size(), '\0') + bytes;
  }
  std::string Number(const char* name) const {
    BIGNUM* number = nullptr;
    if (EVP_PKEY_get_bn_param(key_.get(), name, &number) != 1) abort();
    std::string bytes = Bytes(number);
    BN_free(number);
    return bytes;
  }

  const bool rsa_;
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key_;
};

const Signer& Rsa() {
  static const Signer signer(true);
  return signer;
}
const Signer& Ec() {
  static const Signer signer(false);
  return signer;
}
// A key that the issuer does not have.
const Signer& Stranger() {
  static const Signer signer(true);
  return signer;
}

const char kRsaHeader[] = R"({"alg":"RS256","kid":"r","typ":"JWT"})";
const char kEcHeader[] = R"({"alg":"ES256","kid":"e"})";

std::string SetOf(const std::vector<Json>& keys) { return Json{{"keys", keys}}.dump(); }

class JwtTest : public testing::Test {
 protected:
  JwtTest() { WriteKeys(SetOf({Rsa().Jwk("r"), Ec().Jwk("e")})); }

  void WriteKeys(const std::string& text) { temp_.Write("jwks.json", text); }
  Settings SettingsOfTest() const {
    Settings settings;
    settings.auth.jwks_file = temp_.path() + "/jwks.json";
    settings.auth.jwt_issuer = "https://login.example.org";
    settings.auth.jwt_audience = "genesis";
    return settings;
  }
  // Returns valid claims, of which `changed` replaces some. A member that is null is removed.
  Json Claims(const Json& changed = Json::object()) const {
    const int64_t now = absl::ToUnixSeconds(now_);
    Json claims = {{"iss", "https://login.example.org"}, {"aud", "genesis"}, {"sub", "ann"},
                   {"genesis_role", "submitter"},        {"exp", now + 300}, {"iat", now}};
    claims.merge_patch(changed);
    return claims;
  }
  // Returns the claims' JSON with the number of `exp` written as `text`.
  std::string WithEnd(const std::string& text) const {
    return absl::StrReplaceAll(Claims({{"exp", "@"}}).dump(), {{"\"@\"", text}});
  }
  // Returns "ann submitter", or the error message.
  std::string Who(const std::string& token) const {
    const absl::StatusOr<JwtVerifier> verifier = JwtVerifier::Load(SettingsOfTest().auth);
    if (!verifier.ok()) return std::string(verifier.status().message());
    const absl::StatusOr<JwtSubject> subject = verifier->Verify(token, now_);
    if (subject.ok()) {
      return absl::StrCat(subject->name, " ", subject->role ? RoleName(*subject->role) : "no role");
    }
    EXPECT_TRUE(absl::IsUnauthenticated(subject.status()));
    return std::string(subject.status().message());
  }
  std::string WhoHas(const Json& changed) const {
    return Who(Rsa().Token(kRsaHeader, Claims(changed).dump()));
  }
  std::string KeyFault(const std::string& text) {
    WriteKeys(text);
    const absl::StatusOr<JwtVerifier> verifier = JwtVerifier::Load(SettingsOfTest().auth);
    EXPECT_TRUE(absl::IsInvalidArgument(verifier.status())) << text;
    return std::string(verifier.status().message());
  }

  const TempDir temp_;
  const absl::Time now_ = absl::FromUnixSeconds(1900000000);
};

TEST_F(JwtTest, BothAlgorithmsAreAccepted) {
  EXPECT_EQ(Who(Rsa().Token(kRsaHeader, Claims().dump())), "ann submitter");
  EXPECT_EQ(Who(Ec().Token(kEcHeader, Claims().dump())), "ann submitter");
}

TEST_F(JwtTest, ATokenSignedByCjoseIsAccepted) {
  cjose_err error = {};
  cjose_jwk_t* key = cjose_jwk_create_EC_random(CJOSE_JWK_EC_P_256, &error);
  char* text = cjose_jwk_to_json(key, /*priv=*/false, &error);
  WriteKeys(SetOf({Json::parse(text)}));
  cjose_get_dealloc()(text);
  cjose_header_t* header = cjose_header_new(&error);
  cjose_header_set(header, "alg", "ES256", &error);
  const std::string claims = Claims().dump();
  cjose_jws_t* jws = cjose_jws_sign(key, header, reinterpret_cast<const uint8_t*>(claims.data()),
                                    claims.size(), &error);
  const char* token = nullptr;
  ASSERT_TRUE(cjose_jws_export(jws, &token, &error)) << error.message;
  EXPECT_EQ(Who(token), "ann submitter");
  cjose_jws_release(jws);
  cjose_header_release(header);
  cjose_jwk_release(key);
}

TEST_F(JwtTest, ClaimsInTheirFormsAreAccepted) {
  EXPECT_EQ(WhoHas({{"aud", {"other", "genesis"}}}), "ann submitter");
  EXPECT_EQ(WhoHas({{"genesis_role", {"staff", "viewer", "admin"}}}), "ann admin");
  EXPECT_EQ(WhoHas({{"genesis_role", {"worker", 7}}}), "ann no role");
  EXPECT_EQ(WhoHas({{"genesis_role", "admins"}}), "ann no role");
  EXPECT_EQ(WhoHas({{"genesis_role", nullptr}, {"iat", nullptr}}), "ann no role");
  EXPECT_EQ(WhoHas({{"sub", "system:serviceaccount:ml:trainer"}}),
            "system:serviceaccount:ml:trainer submitter");
  EXPECT_EQ(WhoHas({{"sub", std::string(255, 'x')}}), std::string(255, 'x') + " submitter");
  EXPECT_EQ(WhoHas({{"note", std::string(4000, 'x')}}), "ann submitter");
}

TEST_F(JwtTest, ClocksMayDifferByAMinute) {
  const int64_t now = absl::ToUnixSeconds(now_);
  EXPECT_EQ(WhoHas({{"exp", now - 59}}), "ann submitter");
  EXPECT_EQ(WhoHas({{"exp", now - 60}}),
            "the JWT expired at 2030-03-17T17:45:40Z; get a new one from its issuer");
  EXPECT_EQ(WhoHas({{"nbf", now + 60}, {"iat", now + 60}}), "ann submitter");
  EXPECT_THAT(WhoHas({{"nbf", now + 61}}),
              HasSubstr("is not valid before 2030-03-17T17:47:41Z (nbf)"));
  EXPECT_THAT(WhoHas({{"iat", now + 61}}), HasSubstr("(iat); wait, or set the clocks"));
}

TEST_F(JwtTest, HostileTokensAreRefused) {
  const std::string claims = Claims().dump();
  const std::string good = Rsa().Token(kRsaHeader, claims);
  const std::vector<std::string> parts = absl::StrSplit(good, '.');
  const std::string good_ec = Ec().Token(kEcHeader, claims);
  const std::string ec_text = good_ec.substr(0, good_ec.rfind('.'));
  // The public key as the secret of an HMAC.
  const std::string hmac_text =
      absl::StrCat(Base64(R"({"alg":"HS256","kid":"r"})"), ".", Base64(claims));
  const std::string secret = Rsa().Jwk("r").dump();
  std::array<unsigned char, 32> digest = {};
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(hmac_text.data()), hmac_text.size(), digest.data(),
       nullptr);
  const std::string hmac(digest.begin(), digest.end());
  const Json stranger_jwk = Stranger().Jwk("r");
  const auto header = [](const Json& more) {
    Json all = {{"alg", "RS256"}, {"kid", "r"}};
    all.update(more);
    return all.dump();
  };
  const auto rsa = [&](const std::string& text) { return Rsa().Token(text, claims); };
  const auto own = [](const std::string& text) { return Rsa().Token(kRsaHeader, text); };
  const auto nested = [](size_t levels) {
    return absl::StrCat(std::string(levels, '['), std::string(levels, ']'));
  };
  struct Row {
    const char* what;
    std::string token;
    const char* error;
  };
  const Row rows[] = {
      {"alg none", absl::StrCat(Base64(R"({"alg":"none"})"), ".", parts[1], "."), "another alg"},
      {"alg None signed", rsa(R"({"alg":"None","kid":"r"})"), "another alg"},
      {"HS256 by the public key", absl::StrCat(hmac_text, ".", Base64(hmac)), "another alg"},
      {"PS256", rsa(header({{"alg", "PS256"}})), "another alg"},
      {"RS512", rsa(header({{"alg", "RS512"}})), "another alg"},
      {"no alg", rsa(R"({"kid":"r"})"), "another alg"},
      {"alg a list", rsa(R"({"alg":["RS256"],"kid":"r"})"), "another alg"},
      {"two algs", rsa(R"({"alg":"none","alg":"RS256","kid":"r"})"), "cannot be read"},
      {"RS256 with an EC key", rsa(header({{"kid", "e"}})), "its key is not for"},
      {"ES256 with an RSA key", Ec().Token(R"({"alg":"ES256","kid":"r"})", claims),
       "its key is not for"},
      {"no kid", rsa(R"({"alg":"RS256"})"), "names no key"},
      {"unknown kid", rsa(header({{"kid", "q"}})), "names no key"},
      {"kid a path", rsa(header({{"kid", "../../dev/null"}})), "names no key"},
      {"kid a number", rsa(header({{"kid", 0}})), "names no key"},
      {"crit", rsa(header({{"crit", {"exp"}}})), "crit"},
      {"typ", rsa(header({{"typ", "secevent+jwt"}})), "typ"},
      {"jwk of a stranger", Stranger().Token(header({{"jwk", stranger_jwk}}), claims),
       "wrong signature"},
      {"jku of a stranger", Stranger().Token(header({{"jku", "https://evil.example"}}), claims),
       "wrong signature"},
      {"x5u of a stranger", Stranger().Token(header({{"x5u", "file:///etc/passwd"}}), claims),
       "wrong signature"},
      {"x5c of a stranger", Stranger().Token(header({{"x5c", {"AAAA"}}}), claims),
       "wrong signature"},
      {"cut signature", good.substr(0, good.size() - 4), "wrong signature"},
      {"no signature", absl::StrCat(parts[0], ".", parts[1], "."), "wrong signature"},
      {"other claims",
       absl::StrCat(parts[0], ".", Base64(Claims({{"sub", "root"}}).dump()), ".", parts[2]),
       "wrong signature"},
      {"other header",
       absl::StrCat(Base64(header({{"typ", "at+jwt"}})), ".", parts[1], ".", parts[2]),
       "wrong signature"},
      {"ECDSA in DER", absl::StrCat(ec_text, ".", Base64(Ec().Sign(ec_text, /*der=*/true))),
       "wrong signature"},
      {"r = s = 0", absl::StrCat(ec_text, ".", Base64(std::string(64, '\0'))), "wrong signature"},
      {"r and s with zeros before",
       absl::StrCat(ec_text, ".",
                    Base64(std::string(1, '\0') + Ec().Sign(ec_text).substr(0, kHalf) +
                           std::string(1, '\0') + Ec().Sign(ec_text).substr(kHalf))),
       "wrong signature"},
      {"padding", absl::StrCat(good, "=="), "cannot be read"},
      {"a space", absl::StrCat(parts[0], ". ", parts[1], ".", parts[2]), "wrong signature"},
      {"a newline in the header", absl::StrCat("\n", good), "cannot be read"},
      {"four parts", absl::StrCat(good, ".x"), "cannot be read"},
      {"two parts", absl::StrCat(parts[0], ".", parts[1]), "cannot be read"},
      {"nothing", "..", "cannot be read"},
      {"a header that is a list", rsa(R"(["RS256"])"), "cannot be read"},
      {"a deep header", rsa(absl::StrCat(R"({"alg":"RS256","kid":"r","x":)", nested(1000), "}")),
       "cannot be read"},
      {"1 MB", own(absl::StrCat(R"({"x":")", std::string(1 << 20, 'x'), R"("})")), "too long"},
      {"one byte too long", absl::StrCat(good, std::string(8193 - good.size(), 'A')), "too long"},
      {"deep claims", own(absl::StrCat(R"({"x":)", nested(1000), "}")), "unusable claims"},
      {"claims that are a list", own("[]"), "unusable claims"},
      {"claims that are no JSON", own("{"), "unusable claims"},
      {"claims not in UTF-8", own("{\"sub\":\"\xff\"}"), "unusable claims"},
      {"two subjects", own(absl::StrCat(R"({"sub":"eve",)", claims.substr(1))), "unusable claims"},
      {"a repeated name inside", own(absl::StrCat(R"({"x":{"a":1,"a":2},)", claims.substr(1))),
       "unusable claims"},
      {"no exp", own(Claims({{"exp", nullptr}}).dump()), "has no exp"},
      {"exp a string", own(WithEnd("\"1900000300\"")), "unusable exp"},
      {"exp a float", own(WithEnd("1900000300.5")), "unusable exp"},
      {"exp negative", own(WithEnd("-1")), "unusable exp"},
      {"exp 1e308", own(WithEnd("1e308")), "unusable exp"},
      {"exp 1e999", own(WithEnd("1e999")), "unusable claims"},
      {"exp 2^64-1", own(WithEnd("18446744073709551615")), "unusable exp"},
      {"exp true", own(WithEnd("true")), "unusable exp"},
      {"exp 0", own(WithEnd("0")), "expired at 1970-01-01T00:00:00Z"},
      {"nbf a string", own(Claims({{"nbf", "0"}}).dump()), "unusable nbf"},
      {"no iss", own(Claims({{"iss", nullptr}}).dump()), "another issuer"},
      {"iss with a slash", own(Claims({{"iss", "https://login.example.org/"}}).dump()),
       "another issuer"},
      {"iss a list", own(Claims({{"iss", {"https://login.example.org"}}}).dump()),
       "another issuer"},
      {"no aud", own(Claims({{"aud", nullptr}}).dump()), "another audience"},
      {"aud of another", own(Claims({{"aud", "genesis2"}}).dump()), "another audience"},
      {"aud of others", own(Claims({{"aud", {"a", "b"}}}).dump()), "another audience"},
      {"aud an object", own(Claims({{"aud", {{"genesis", 1}}}}).dump()), "another audience"},
      {"no sub", own(Claims({{"sub", nullptr}}).dump()), "no usable claim sub"},
      {"an empty sub", own(Claims({{"sub", ""}}).dump()), "no usable claim sub"},
      {"sub a number", own(Claims({{"sub", 7}}).dump()), "no usable claim sub"},
      {"a newline in sub", own(Claims({{"sub", "ann\nroot"}}).dump()), "no usable claim sub"},
      {"a NUL in sub", own(Claims({{"sub", std::string("ann\0", 4)}}).dump()),
       "no usable claim sub"},
      {"bidirectional text in sub", own(Claims({{"sub", "ann\u202e"}}).dump()),
       "no usable claim sub"},
      {"a long sub", own(Claims({{"sub", std::string(256, 'x')}}).dump()), "no usable claim sub"},
  };
  for (const Row& row : rows) {
    const std::string error = Who(row.token);
    EXPECT_THAT(error, HasSubstr(row.error)) << row.what;
    EXPECT_THAT(error, testing::MatchesRegex("the JWT [^\n]*[;:][^\n]*")) << row.what;
    EXPECT_THAT(error, Not(HasSubstr("root"))) << row.what;
  }
}

TEST_F(JwtTest, AnyChangedByteIsRefused) {
  const std::string good = Ec().Token(kEcHeader, Claims().dump());
  // The last character of each part has bits that no byte uses.
  for (size_t i = 0; i < good.size(); ++i) {
    if (good[i] == '.' || i + 1 == good.size() || good[i + 1] == '.') continue;
    std::string changed = good;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    EXPECT_THAT(Who(changed), HasSubstr("the JWT ")) << i;
  }
}

TEST_F(JwtTest, ASingleKeyNeedsNoKid) {
  WriteKeys(SetOf({Rsa().Jwk("r")}));
  EXPECT_EQ(Who(Rsa().Token(R"({"alg":"RS256"})", Claims().dump())), "ann submitter");
  EXPECT_THAT(Who(Rsa().Token(R"({"alg":"RS256","kid":"q"})", Claims().dump())),
              HasSubstr("names no key"));
  Json nameless = Rsa().Jwk("r");
  nameless.erase("kid");
  WriteKeys(SetOf({nameless}));
  EXPECT_EQ(Who(Rsa().Token(R"({"alg":"RS256","kid":"q"})", Claims().dump())), "ann submitter");
}

TEST_F(JwtTest, KeysForOtherUsesAreIgnored) {
  const auto with = [](const char* members) {
    Json key = Rsa().Jwk("r");
    key.update(Json::parse(members));
    return SetOf({key, Ec().Jwk("e")});
  };
  const std::string token = Rsa().Token(kRsaHeader, Claims().dump());
  for (const char* members : {R"({"use":"enc"})", R"({"alg":"RSA-OAEP"})", R"({"alg":"HS256"})",
                              R"({"kty":"oct"})", R"({"key_ops":["encrypt"]})"}) {
    WriteKeys(with(members));
    EXPECT_THAT(Who(token), HasSubstr("names no key")) << members;
  }
  WriteKeys(with(R"({"use":"sig"})"));
  EXPECT_EQ(Who(token), "ann submitter");
  WriteKeys(with(R"({"key_ops":["verify"]})"));
  EXPECT_EQ(Who(token), "ann submitter");
}

TEST_F(JwtTest, UnusableKeyFilesAreRefused) {
  const Json rsa = Rsa().Jwk("r");
  for (const char* text : {"", "{}", "[]", "{\"keys\":{}}", "{\"keys\":[],\"keys\":[]}",
                           "-----BEGIN PUBLIC KEY-----"}) {
    EXPECT_THAT(KeyFault(text), HasSubstr("is not a JWK Set")) << text;
  }
  EXPECT_THAT(KeyFault(R"({"keys":[{"kty":"oct","k":"AAAA"},{"kty":"OKP"},7]})"),
              HasSubstr("has no key for RS256 or ES256"));
  EXPECT_THAT(KeyFault(SetOf(std::vector<Json>(101, rsa))),
              HasSubstr("has 101 keys; accepted: at most 100"));
  EXPECT_THAT(KeyFault(SetOf({rsa, rsa})), HasSubstr("\"r\" occurs twice"));
  EXPECT_THAT(KeyFault(SetOf({Signer(true, 1024).Jwk("weak")})),
              HasSubstr("the key \"weak\" has 1024 bits; accepted: at least 2048"));
  // Zeros before the modulus add no bits.
  Json padded = Signer(true, 1024).Jwk("weak");
  std::string modulus;
  absl::WebSafeBase64Unescape(padded["n"].get<std::string>(), &modulus);
  padded["n"] = Base64(std::string(128, '\0') + modulus);
  EXPECT_THAT(KeyFault(SetOf({padded})), HasSubstr("has 1024 bits"));
  Json open = rsa;
  for (const char* exponent : {"AQ", "AAAB", "AQAA", "", "A A"}) {
    open["e"] = exponent;  // With the exponent 1, everybody could sign.
    EXPECT_THAT(KeyFault(SetOf({open})), HasSubstr("has an unusable e or n")) << exponent;
  }
  open["d"] = "AQAB";
  EXPECT_THAT(KeyFault(SetOf({open})), HasSubstr("is a private key"));
  Json point = Ec().Jwk("e");
  point["y"] = point["x"];
  EXPECT_THAT(KeyFault(SetOf({point})), HasSubstr("the key \"e\" cannot be read"));
}

class JwtCallerTest : public JwtTest {
 protected:
  TokenAuthenticator Load(const std::string& token_lines) {
    Settings settings = SettingsOfTest();
    if (!token_lines.empty()) {
      settings.auth.tokens_file = temp_.path() + "/tokens";
      temp_.Write("tokens", token_lines);
      chmod(settings.auth.tokens_file.c_str(), 0600);
    }
    return TokenAuthenticator(LoadRules(settings).value());
  }
  static std::string Token(Json claims, absl::Duration life = absl::Minutes(5)) {
    claims["iat"] = absl::ToUnixSeconds(absl::Now());
    claims["exp"] = absl::ToUnixSeconds(absl::Now() + life);
    return Rsa().Token(kRsaHeader, claims.dump());
  }
  static std::string Caller(const TokenAuthenticator& authenticator, const std::string& token) {
    const auto caller = authenticator.Authenticate({"Bearer " + token, "", "ipv4:127.0.0.1:1"});
    if (!caller.ok()) return std::string(caller.status().message());
    return absl::StrCat(caller->name, " ", RoleName(caller->role));
  }
};

TEST_F(JwtCallerTest, HasANameOfItsOwnAndARoleFromTheFile) {
  const TokenAuthenticator authenticator =
      Load(absl::StrCat("ann admin ", FormatTokenHash(HashToken("ta")), "\njwt:bot worker\n"));
  EXPECT_EQ(Caller(authenticator, "ta"), "ann admin");
  EXPECT_EQ(Caller(authenticator, Token(Claims())), "jwt:ann submitter");
  EXPECT_EQ(Caller(authenticator, Token(Claims({{"sub", "bot"}, {"genesis_role", "admin"}}))),
            "jwt:bot worker");
  EXPECT_THAT(Caller(authenticator, Token(Claims({{"genesis_role", nullptr}}))),
              HasSubstr("the JWT of \"jwt:ann\" gives no role; accepted: the claim"));
  EXPECT_THAT(Caller(authenticator, "tb"),
              HasSubstr("a JWT of auth.jwt_issuer, or one whose line stands in auth.tokens_file"));
}

TEST_F(JwtCallerTest, NeedsATokenAlsoOnTheUnixSocket) {
  const TokenAuthenticator authenticator = Load("");
  EXPECT_EQ(Caller(authenticator, "tb"),
            "the token is not known; accepted: a JWT of auth.jwt_issuer");
  for (const char* peer : {"unix:", "ipv4:127.0.0.1:1"}) {
    EXPECT_THAT(authenticator.Authenticate({"", "", peer}).status().message(),
                HasSubstr("no token; send authorization: Bearer TOKEN"));
  }
}

TEST_F(JwtCallerTest, RotatedKeysReplaceTheOldOnes) {
  TokenAuthenticator authenticator = Load("");
  const std::string old_token = Token(Claims());
  EXPECT_EQ(Caller(authenticator, old_token), "jwt:ann submitter");
  WriteKeys(SetOf({Ec().Jwk("e")}));
  authenticator.Replace(LoadRules(SettingsOfTest()).value());
  EXPECT_THAT(Caller(authenticator, old_token), HasSubstr("names no key of auth.jwks_file"));
  Json claims = Claims();
  claims["exp"] = absl::ToUnixSeconds(absl::Now()) + 60;
  claims["iat"] = absl::ToUnixSeconds(absl::Now());
  EXPECT_EQ(Caller(authenticator, Ec().Token(kEcHeader, claims.dump())), "jwt:ann submitter");
}

TEST_F(JwtCallerTest, AStreamEndsWhenTheTokenExpires) {
  const TokenAuthenticator authenticator = Load("");
  Metrics metrics("stable", "1");
  const ApiGate gate(&authenticator, nullptr, &metrics);
  // Accepted for two or three seconds more because of the skew.
  const ApiCall call(&gate, MethodOfRequest("ListJobsRequest"), "grpc",
                     {"Bearer " + Token(Claims(), absl::Seconds(-57)), "", "ipv4:127.0.0.1:1"});
  ASSERT_TRUE(call.admission().ok()) << call.admission();
  EXPECT_TRUE(call.StillAdmitted().ok());
  absl::SleepFor(absl::Seconds(3.2));
  EXPECT_THAT(call.StillAdmitted().message(), HasSubstr("the JWT expired at"));
}

}  // namespace
}  // namespace genesis
