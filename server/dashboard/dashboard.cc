#include "server/dashboard/dashboard.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/files/sha256.h"
#include "server/dashboard/dashboard_files.h"
#include "server/http/accept.h"

namespace genesis {
namespace {

constexpr char kFolder[] = "/dashboard/";
constexpr char kPage[] = "index.html";
// uPlot sizes its parts through the CSSOM, which style-src does not restrict.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

struct Prepared {
  std::string content_type;
  std::string content;
  std::string compressed;  // Empty if it could not be compressed.
  std::string etag;
};

std::string ContentTypeOf(const std::string& name) {
  if (absl::EndsWith(name, ".html")) return "text/html; charset=utf-8";
  if (absl::EndsWith(name, ".css")) return "text/css; charset=utf-8";
  if (absl::EndsWith(name, ".svg")) return "image/svg+xml";
  return "text/javascript; charset=utf-8";
}

const std::map<std::string, Prepared>& PreparedFiles() {
  static const auto* const files = [] {
    auto* const made = new std::map<std::string, Prepared>();
    for (const EmbeddedFile& file : DashboardFiles()) {
      const std::string name(file.name);
      std::string content(file.content);
      std::string compressed = Gzip(content).value_or("");
      // Weak, because both encodings have it.
      std::string etag = absl::StrCat("W/\"", Sha256Hex(content).substr(0, 16), "\"");
      made->emplace(name, Prepared{ContentTypeOf(name), std::move(content),
                                   std::move(compressed), std::move(etag)});
    }
    return made;
  }();
  return *files;
}

HttpResponse ResponseOf(const Prepared& file, const HttpRequest& request) {
  HttpResponse response{.content_type = file.content_type,
                        .headers = {{"ETag", file.etag},
                                    {"Cache-Control", "no-cache"},
                                    {"Vary", "Accept, Accept-Encoding"},
                                    {"Content-Security-Policy", kPolicy},
                                    {"Referrer-Policy", "no-referrer"}}};
  if (absl::StrContains(request.Header("if-none-match"), file.etag)) {
    response.status = 304;
  } else if (!file.compressed.empty() && AcceptsGzip(request.Header("accept-encoding"))) {
    response.headers.emplace_back("Content-Encoding", "gzip");
    response.body = file.compressed;
  } else {
    response.body = file.content;
  }
  return response;
}

}  // namespace

std::optional<HttpResponse> DashboardResponse(const HttpRequest& request) {
  if (request.method != "GET" && request.method != "HEAD") return std::nullopt;
  absl::string_view path = request.path;
  if (path == "/" && AcceptsHtml(request.Header("accept"))) {
    path = kPage;
  } else if (!absl::ConsumePrefix(&path, kFolder)) {
    return std::nullopt;
  }
  const auto found = PreparedFiles().find(std::string(path));
  if (found == PreparedFiles().end()) return std::nullopt;
  return ResponseOf(found->second, request);
}

}  // namespace genesis
