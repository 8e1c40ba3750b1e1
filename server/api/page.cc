#include "server/api/page.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace genesis {
namespace {

constexpr int kDefaultSize = 100;
constexpr int kMaxSize = 1000;

// FNV-1a: the same in every process, unlike absl::Hash. It guards against mistakes, not malice: a
// forged token shows nothing that a query does not.
uint64_t Hash(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char each : bytes) {
    hash ^= static_cast<unsigned char>(each);
    hash *= 0x100000001b3ULL;
  }
  return hash;
}

// The request as one text: its type, and every field but those of the page, maps in order.
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

std::string TokenOf(const std::string& query, const std::string& place) {
  return absl::WebSafeBase64Escape(
      absl::StrCat(place, ".", absl::Hex(Hash(absl::StrCat(place, ".", query)))));
}

}  // namespace

absl::StatusOr<int> PageSize(int asked) {
  if (asked >= 0 && asked <= kMaxSize) return asked == 0 ? kDefaultSize : asked;
  return absl::InvalidArgumentError(
      absl::StrCat("page_size is ", asked, "; accepted: 1 to ", kMaxSize));
}

std::string MakePageToken(const google::protobuf::Message& request, const std::string& place) {
  return TokenOf(QueryText(request), place);
}

absl::StatusOr<std::string> ReadPageToken(const google::protobuf::Message& request) {
  const std::string token = request.GetReflection()->GetString(
      request, request.GetDescriptor()->FindFieldByName("page_token"));
  std::string text;
  if (absl::WebSafeBase64Unescape(token, &text)) {
    std::string place = text.substr(0, text.rfind('.'));
    if (TokenOf(QueryText(request), place) == token) return place;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("page_token is \"", absl::CHexEscape(token.substr(0, 100)),
                   "\"; accepted: next_page_token of the page before, with the other fields as "
                   "there"));
}

std::string PlaceOf(const std::vector<int64_t>& keys) { return absl::StrJoin(keys, ","); }

std::vector<int64_t> KeysOf(const std::string& place) {
  std::vector<int64_t> keys;
  for (const auto& part : absl::StrSplit(place, ',')) {
    int64_t key = 0;
    if (absl::SimpleAtoi(part, &key)) keys.push_back(key);
  }
  return keys;
}

}  // namespace genesis
