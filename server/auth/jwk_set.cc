#include "server/auth/jwk_set.h"

#include <cjose/jws.h>
#include <openssl/err.h>

#include <algorithm>
#include <bit>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text/field_error.h"

namespace genesis {
namespace {

constexpr int kMaxLevels = 16;
constexpr size_t kMaxKeys = 100;
constexpr int kMinRsaBits = 2048;
// An ES256 signature has 64 bytes (RFC 7518, 3.4). cjose would accept zeros before each half.
constexpr size_t kEs256Characters = 86;

absl::Status InvalidSet(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("auth.jwks_file: ", path, ": ", what));
}

// Returns the member `name` if it is a string; otherwise "".
std::string TextOf(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

bool Decode(absl::string_view text, std::string* bytes) {
  // WebSafeBase64Unescape alone would skip spaces and accept padding.
  return std::all_of(
             text.begin(), text.end(),
             [](unsigned char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; }) &&
         absl::WebSafeBase64Unescape(text, bytes);
}

// Returns the algorithm that a key is for, or "" if the daemon does not use such keys.
std::string AlgorithmOf(const Json& key) {
  const std::string type = TextOf(key, "kty");
  std::string algorithm;
  if (type == "RSA") algorithm = "RS256";
  if (type == "EC" && TextOf(key, "crv") == "P-256") algorithm = "ES256";
  const auto operations = key.find("key_ops");
  const bool verifies = operations == key.end() || std::find(operations->begin(), operations->end(),
                                                             "verify") != operations->end();
  const bool signs = (!key.contains("use") || TextOf(key, "use") == "sig") && verifies;
  const bool suits = !key.contains("alg") || TextOf(key, "alg") == algorithm;
  return signs && suits ? algorithm : "";
}

int RsaBits(const Json& key) {
  std::string modulus;
  if (!Decode(TextOf(key, "n"), &modulus)) return 0;
  const size_t first = std::min(modulus.find_first_not_of('\0'), modulus.size());
  if (first == modulus.size()) return 0;
  return static_cast<int>(8 * (modulus.size() - first)) -
         std::countl_zero(static_cast<unsigned char>(modulus[first]));
}

// Returns true if the last bit of a number is set.
bool IsOdd(const Json& key, const char* name) {
  std::string bytes;
  return Decode(TextOf(key, name), &bytes) && !bytes.empty() &&
         (static_cast<unsigned char>(bytes.back()) & 1U) != 0;
}

// Returns why an RSA key is not accepted; "" if it is. With the exponent 1, everybody can sign.
std::string RsaFault(const Json& key) {
  if (RsaBits(key) < kMinRsaBits) {
    return absl::StrCat("has ", RsaBits(key), " bits; accepted: at least ", kMinRsaBits);
  }
  std::string exponent;
  const bool decoded = Decode(TextOf(key, "e"), &exponent);
  exponent.erase(0, std::min(exponent.find_first_not_of('\0'), exponent.size()));
  if (!decoded || exponent.empty() || exponent == "\x01" || !IsOdd(key, "e") || !IsOdd(key, "n")) {
    return "has an unusable e or n; accepted: odd numbers, e at least 3";
  }
  return "";
}

struct ReleaseJose {
  void operator()(cjose_jws_t* jws) const { cjose_jws_release(jws); }
};

}  // namespace

absl::Status InvalidJwt(absl::string_view what) {
  return absl::UnauthenticatedError(absl::StrCat("the JWT ", what));
}

std::optional<Json> ParseJsonObject(const std::string& text) {
  bool fits = true;
  std::vector<std::set<std::string>> names;
  const auto check = [&](int level, Json::parse_event_t event, const Json& value) {
    fits = fits && level <= kMaxLevels;
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end) names.pop_back();
    if (event == Json::parse_event_t::key) {
      fits = names.back().insert(value.get<std::string>()).second && fits;
    }
    return true;
  };
  Json object = Json::parse(text, check, /*allow_exceptions=*/false);
  if (!fits || !object.is_object()) return std::nullopt;
  return object;
}

std::optional<Json> DecodeJwtPart(absl::string_view part) {
  std::string text;
  return Decode(part, &text) ? ParseJsonObject(text) : std::nullopt;
}

absl::StatusOr<JwkSet> JwkSet::Parse(const std::string& text, const std::string& path) {
  const std::optional<Json> document = ParseJsonObject(text);
  const auto list = document ? document->find("keys") : Json::const_iterator();
  if (!document || list == document->end() || !list->is_array()) {
    return InvalidSet(path, "is not a JWK Set; accepted: a JSON object with a list \"keys\"");
  }
  if (list->size() > kMaxKeys) {
    return InvalidSet(path,
                      absl::StrCat("has ", list->size(), " keys; accepted: at most ", kMaxKeys));
  }
  JwkSet set;
  for (const Json& each : *list) {
    const std::string algorithm = each.is_object() ? AlgorithmOf(each) : "";
    if (algorithm.empty()) continue;
    const std::string id = TextOf(each, "kid");
    const std::string place = absl::StrCat("the key ", QuoteValue(id));
    if (each.contains("d")) {
      return InvalidSet(path, absl::StrCat(place,
                                           " is a private key; accepted: public keys; "
                                           "replace it, because the issuer alone may have it"));
    }
    if (const std::string fault = algorithm == "RS256" ? RsaFault(each) : ""; !fault.empty()) {
      return InvalidSet(path, absl::StrCat(place, " ", fault));
    }
    if (std::any_of(set.keys_.begin(), set.keys_.end(),
                    [&](const Key& key) { return key.id == id; })) {
      return InvalidSet(path, absl::StrCat(place, " occurs twice; give each key its own kid"));
    }
    cjose_err ignored = {};
    const std::string key_text = each.dump();
    cjose_jwk_t* key = cjose_jwk_import(key_text.data(), key_text.size(), &ignored);
    ERR_clear_error();
    if (key == nullptr) {
      return InvalidSet(path, absl::StrCat(place, " cannot be read; fetch the file again"));
    }
    set.keys_.push_back({id, algorithm, {key, [](const cjose_jwk_t* last) {
                                           cjose_jwk_release(const_cast<cjose_jwk_t*>(last));
                                         }}});
  }
  if (set.keys_.empty()) {
    return InvalidSet(path,
                      "has no key for RS256 or ES256; accepted: at least one, with use \"sig\"");
  }
  return set;
}

const JwkSet::Key* JwkSet::Find(const Json& header) const {
  const bool named = header.contains("kid");
  if (keys_.size() == 1 && (!named || keys_.front().id.empty())) return &keys_.front();
  for (const Key& key : keys_) {
    if (named && header["kid"] == key.id) return &key;
  }
  return nullptr;
}

absl::Status JwkSet::Verify(const std::string& token) const {
  const std::vector<absl::string_view> parts = absl::StrSplit(token, '.');
  std::string signature;
  const std::optional<Json> header = DecodeJwtPart(parts[0]);
  if (!header || parts.size() != 3 || !Decode(parts[2], &signature)) {
    return InvalidJwt(
        "cannot be read; accepted: header, claims and signature as RFC 7519 has them");
  }
  const std::string algorithm = TextOf(*header, "alg");
  if (algorithm != "RS256" && algorithm != "ES256") {
    return InvalidJwt("has another alg; accepted: RS256 or ES256");
  }
  if (header->contains("crit")) {
    return InvalidJwt("has a header crit; accepted: none, because no extension is known here");
  }
  // RFC 7515, 4.1.9: "application/" may be left out.
  const std::string full_type = absl::AsciiStrToLower(TextOf(*header, "typ"));
  const absl::string_view type = absl::StripPrefix(full_type, "application/");
  if (header->contains("typ") && type != "jwt" && type != "at+jwt") {
    return InvalidJwt("has another typ; accepted: JWT, at+jwt or none");
  }
  const Key* key = Find(*header);
  if (key == nullptr) {
    return InvalidJwt(
        "names no key of auth.jwks_file by its kid; accepted: a current key of the issuer: "
        "get a new token, or ask an admin to fetch the keys again");
  }
  if (key->algorithm != algorithm) {
    return InvalidJwt(
        "has an alg that its key is not for; accepted: RS256 for RSA, ES256 for P-256");
  }
  cjose_err ignored = {};
  const std::unique_ptr<cjose_jws_t, ReleaseJose> jws(
      cjose_jws_import(token.data(), token.size(), &ignored));
  const bool verified = (algorithm != "ES256" || parts[2].size() == kEs256Characters) &&
                        jws != nullptr && cjose_jws_verify(jws.get(), key->key.get(), &ignored);
  ERR_clear_error();
  if (verified) return absl::OkStatus();
  return InvalidJwt("has a wrong signature; accepted: one by a key of auth.jwks_file");
}

}  // namespace genesis
