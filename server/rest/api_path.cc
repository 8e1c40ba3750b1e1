#include "server/rest/api_path.h"

#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/text/field_error.h"
#include "base/text/nearest.h"
#include "server/rest/api_error.h"
#include "server/rest/path_template.h"

namespace genesis {
namespace {

// Returns true if the method supports HEAD. Endless streams have no meaningful head.
bool AnswersHead(const MethodRow& row) {
  return row.verb == "GET" && (!DescriptorOf(row).server_streaming() || !row.response_body.empty());
}

HttpResponse NoSuchPath(const std::string& path) {
  std::vector<std::string> known;
  for (const MethodRow& row : MethodTable()) known.push_back(row.path);
  const std::string nearest = Nearest(path, known);
  return ErrorResponse(absl::NotFoundError(
      absl::StrCat("there is no ", QuoteValue(path), "; ",
                   nearest.empty() ? "" : absl::StrCat("did you mean ", nearest, "? "),
                   "/v1/openapi.json describes every path")));
}

}  // namespace

ApiMatch FindTarget(const std::string& verb, const std::string& path) {
  std::set<std::string> verbs;
  for (const MethodRow& row : MethodTable()) {
    const auto fields = MatchPath(row.path, path);
    if (!fields) continue;
    verbs.insert(row.verb);
    if (AnswersHead(row)) verbs.insert("HEAD");
    if (verb != row.verb && !(verb == "HEAD" && AnswersHead(row))) continue;
    ApiMatch match{.target = {.method = &row, .fields = {}}, .refusal = std::nullopt};
    for (const auto& [name, text] : *fields) {
      const absl::StatusOr<std::string> decoded = DecodePercent(text, /*plus_is_space=*/false);
      if (!decoded.ok()) return {.target = {}, .refusal = ErrorResponse(decoded.status())};
      match.target.fields[name] = *decoded;
    }
    return match;
  }
  if (verbs.empty()) return {.target = {}, .refusal = NoSuchPath(path)};
  const std::string allowed = absl::StrJoin(verbs, ", ");
  HttpResponse refusal = ErrorResponse(
      absl::UnimplementedError(absl::StrCat(verb, " is not for ", path, "; accepted: ", allowed)),
      405);
  refusal.headers = {{"Allow", allowed}};
  return {.target = {}, .refusal = refusal};
}

bool HasContentType(const HttpRequest& request, const std::string& type) {
  const std::vector<std::string> parts = absl::StrSplit(request.Header("content-type"), ';');
  return absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(parts[0]), type);
}

absl::Status CheckContentType(const HttpRequest& request,
                              const std::vector<std::string>& accepted) {
  for (const std::string& type : accepted) {
    if (HasContentType(request, type)) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("Content-Type is ", QuoteValue(request.Header("content-type")),
                   "; accepted for a body here: ", absl::StrJoin(accepted, " or ")));
}

absl::Status CheckOrigin(const HttpRequest& request) {
  const std::string origin = request.Header("origin");
  const std::string host = request.Header("host");
  if (origin.empty() || origin == "http://" + host || origin == "https://" + host) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat("Origin is ", QuoteValue(origin),
                                                  "; accepted: a page of ", QuoteValue(host),
                                                  " itself, or a program that sends no Origin"));
}

}  // namespace genesis
