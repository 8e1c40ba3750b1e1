#include "config/field_error.h"

#include <array>
#include <charconv>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/rpc/error_details.pb.h"

namespace genesis {

std::string FieldError::ToString(const std::string& in_file) const {
  std::string text = file.empty() ? in_file : file;
  if (line > 0) absl::StrAppend(&text, text.empty() ? "line " : ":", line, ":", column);
  if (!text.empty()) text += ": ";
  if (!path.empty()) absl::StrAppend(&text, path, value.empty() ? ": " : " is ");
  if (!value.empty()) absl::StrAppend(&text, value, "; accepted: ");
  return text + accepted;
}

absl::Status ToStatus(const std::vector<FieldError>& errors, const std::string& file) {
  absl::Status status = absl::InvalidArgumentError(absl::StrJoin(
      errors, "\n",
      [&file](std::string* out, const FieldError& error) { out->append(error.ToString(file)); }));
  google::rpc::BadRequest details;
  for (const FieldError& error : errors) {
    google::rpc::BadRequest::FieldViolation* violation = details.add_field_violations();
    violation->set_field(error.path);
    violation->set_description(
        error.value.empty() ? error.accepted
                            : absl::StrCat("is ", error.value, "; accepted: ", error.accepted));
  }
  status.SetPayload(kBadRequestType, absl::Cord(details.SerializeAsString()));
  return status;
}

std::string QuoteValue(absl::string_view text) {
  constexpr size_t kLongest = 120;
  if (text.size() <= kLongest) return absl::StrCat("\"", absl::Utf8SafeCEscape(text), "\"");
  // A multi-byte character is not cut in two: continuation bytes are 10xxxxxx.
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text.substr(0, end)), "...\" (", text.size(),
                      " bytes)");
}

std::string FormatNumber(double value) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return std::string(buffer.data(), end);
}

}  // namespace genesis
