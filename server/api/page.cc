#include "server/api/page.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstdlib>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text/field_error.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

constexpr int kDefaultSize = 100;
constexpr int kMaxSize = 1000;

constexpr size_t kKeyBytes = 32;
constexpr size_t kTagBytes = 32;  // SHA-256.

// Returns the key, created for the first token. Aborts if OpenSSL returns no random bytes.
const std::array<unsigned char, kKeyBytes>& Key() {
  static const auto& key = *[] {
    auto* made = new std::array<unsigned char, kKeyBytes>;
    if (RAND_bytes(made->data(), kKeyBytes) != 1) {
      spdlog::critical("no random bytes for the key of page tokens");
      std::abort();
    }
    return made;
  }();
  return key;
}

std::string TagOf(const std::string& bytes) {
  std::string tag(kTagBytes, '\0');
  HMAC(EVP_sha256(), Key().data(), kKeyBytes, reinterpret_cast<const unsigned char*>(bytes.data()),
       bytes.size(), reinterpret_cast<unsigned char*>(tag.data()), nullptr);
  return tag;
}

// Serializes the request: its type and all fields except those of the page, with maps in order.
std::string QueryText(const google::protobuf::Message& request) {
  const std::unique_ptr<google::protobuf::Message> query(request.New());
  query->CopyFrom(request);
  for (const char* name : {"page_size", "page_token"}) {
    query->GetReflection()->ClearField(query.get(), query->GetDescriptor()->FindFieldByName(name));
  }
  std::string text = query->GetDescriptor()->full_name();
  google::protobuf::io::StringOutputStream stream(&text);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  query->SerializeToCodedStream(&coded);
  coded.Trim();
  return text;
}

// Signs both texts. The length of `place` comes first, so that no other split has the same tag.
std::string TagOf(const std::string& query, const std::string& place) {
  return TagOf(absl::StrCat(place.size(), ".", place, query));
}

absl::Status NoToken(const std::string& token) {
  return absl::InvalidArgumentError(absl::StrCat(
      "page_token is ", QuoteValue(token),
      "; accepted: next_page_token of the page before, with the other fields as there; "
      "a token of another query or from before a restart is invalid: start the list again"));
}

}  // namespace

absl::StatusOr<int> PageSize(int asked) {
  if (asked >= 0 && asked <= kMaxSize) return asked == 0 ? kDefaultSize : asked;
  return absl::InvalidArgumentError(
      absl::StrCat("page_size is ", asked, "; accepted: 1 to ", kMaxSize));
}

std::string MakePageToken(const google::protobuf::Message& request, const std::string& place) {
  return absl::WebSafeBase64Escape(TagOf(QueryText(request), place) + place);
}

absl::StatusOr<std::string> ReadPageToken(const google::protobuf::Message& request) {
  const std::string token = request.GetReflection()->GetString(
      request, request.GetDescriptor()->FindFieldByName("page_token"));
  std::string text;
  if (!absl::WebSafeBase64Unescape(token, &text) || text.size() < kTagBytes) return NoToken(token);
  std::string place = text.substr(kTagBytes);
  const std::string tag = TagOf(QueryText(request), place);
  if (CRYPTO_memcmp(tag.data(), text.data(), kTagBytes) != 0) return NoToken(token);
  return place;
}

std::string PlaceOf(const std::vector<int64_t>& keys) { return absl::StrJoin(keys, ","); }

template <size_t Count>
absl::StatusOr<std::array<int64_t, Count>> ReadPageKeys(const google::protobuf::Message& request) {
  const absl::StatusOr<std::string> place = ReadPageToken(request);
  if (!place.ok()) return place.status();
  const std::vector<absl::string_view> parts = absl::StrSplit(*place, ',');
  std::array<int64_t, Count> keys = {};
  bool sound = parts.size() == Count;
  for (size_t i = 0; sound && i < Count; ++i) sound = absl::SimpleAtoi(parts[i], &keys[i]);
  // The token is authentic but malformed: a bug, but no reason to abort.
  if (!sound) return absl::InternalError("a page token of ours does not fit its method");
  return keys;
}

template absl::StatusOr<std::array<int64_t, 1>> ReadPageKeys<1>(const google::protobuf::Message&);
template absl::StatusOr<std::array<int64_t, 2>> ReadPageKeys<2>(const google::protobuf::Message&);

}  // namespace genesis
