#include "base/text/field_error.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "base/text/text.h"
#include "base/text/utf8.h"
#include "google/rpc/error_details.pb.h"

namespace genesis {
namespace {

// Room for a quoted value and a sentence or two.
constexpr size_t kMaxFaultBytes = 1024;

}  // namespace

std::string FieldError::ToString(const std::string& in_file) const {
  std::string text = file.empty() ? in_file : file;
  if (line > 0) absl::StrAppend(&text, text.empty() ? "line " : ":", line, ":", column);
  if (!text.empty()) text += ": ";
  if (!path.empty()) absl::StrAppend(&text, path, value.empty() ? ": " : " is ");
  if (!value.empty()) absl::StrAppend(&text, value, "; accepted: ");
  return text + accepted;
}

absl::Status ToStatus(const std::vector<FieldError>& errors, const std::string& file) {
  const auto listed = absl::MakeConstSpan(errors).first(std::min(errors.size(), kMaxFaultsListed));
  std::string message =
      absl::StrJoin(listed, "\n", [&file](std::string* out, const FieldError& error) {
        out->append(BoundedText(error.ToString(file), kMaxFaultBytes));
      });
  if (listed.size() < errors.size()) {
    absl::StrAppend(&message, "\nand ", errors.size() - listed.size(), " more; fix these first");
  }
  absl::Status status = absl::InvalidArgumentError(message);
  google::rpc::BadRequest details;
  for (const FieldError& error : listed) {
    google::rpc::BadRequest::FieldViolation* violation = details.add_field_violations();
    violation->set_field(OneLine(error.path, kMaxNameBytes));
    violation->set_description(BoundedText(
        error.value.empty() ? error.accepted
                            : absl::StrCat("is ", error.value, "; accepted: ", error.accepted),
        kMaxFaultBytes));
  }
  status.SetPayload(kBadRequestType, absl::Cord(details.SerializeAsString()));
  return status;
}

std::string QuoteValue(absl::string_view text) {
  constexpr size_t kLongest = 120;
  constexpr size_t kLongestEscaped = 6 * kLongest;
  size_t end = std::min(text.size(), kLongest);
  // Do not split a character. Bytes that are not UTF-8 may be cut anywhere.
  for (int i = 0; i < 3 && IsInsideUtf8Character(text, end); ++i) --end;
  const std::string escaped = OneLine(
      absl::StrReplaceAll(text.substr(0, end), {{"\\", "\\\\"}, {"\"", "\\\""}}), kLongestEscaped);
  if (end == text.size()) return absl::StrCat("\"", escaped, "\"");
  return absl::StrCat("\"", escaped, "...\" (", text.size(), " bytes)");
}

std::string FormatNumber(double value) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  return std::string(buffer.data(), end);
}

}  // namespace genesis
