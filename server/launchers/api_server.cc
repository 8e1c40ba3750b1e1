#include "server/launchers/api_server.h"

#include <curl/curl.h>

#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/running_time.h"
#include "server/auth/secret_file.h"
#include "server/base/http_transfer.h"

namespace genesis {
namespace {

using Address = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

absl::Status Fault(const ApiServer::Options& options, const HttpTransfer& transfer, CURLcode code) {
  const std::string where =
      absl::StrCat("the Kubernetes API server ", options.host, ":", options.port);
  const std::string message = transfer.ErrorText(code);
  if (transfer.TooLarge()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(where, " answers with more than ", ApiServer::kMaxReply, " bytes"));
  }
  switch (code) {
    case CURLE_ABORTED_BY_CALLBACK:
      return absl::DeadlineExceededError(
          absl::StrCat(where, " gave no answer within ", absl::FormatDuration(options.timeout)));
    case CURLE_SSL_CACERT_BADFILE:
      return absl::FailedPreconditionError(absl::StrCat("kubernetes.ca_file: ", options.ca_file,
                                                        ": no certificates in PEM: ", message));
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
      return absl::UnavailableError(
          absl::StrCat(where, " is not trusted: ", message,
                       "; check kubernetes.ca_file and kubernetes.api_server"));
    default:
      return absl::UnavailableError(absl::StrCat(where, " cannot be reached: ", message));
  }
}

// Returns the server's address without a path; REQUEST_TARGET sends the call's target as it is.
Address AddressOf(const ApiServer::Options& options) {
  const bool is_v6 = absl::StrContains(options.host, ":");
  Address address(curl_url(), &curl_url_cleanup);
  curl_url_set(address.get(), CURLUPART_SCHEME, "https", 0);
  curl_url_set(address.get(), CURLUPART_HOST,
               absl::StrCat(is_v6 ? "[" : "", options.host, is_v6 ? "]" : "").c_str(), 0);
  curl_url_set(address.get(), CURLUPART_PORT, absl::StrCat(options.port).c_str(), 0);
  return address;
}

}  // namespace

absl::StatusOr<ApiServerReply> ApiServer::Call(const ApiServerCall& call) const {
  const absl::StatusOr<std::string> token =
      ReadSettingFile("kubernetes.token_file", options_.token_file);
  if (!token.ok()) return absl::FailedPreconditionError(token.status().message());
  const absl::StatusOr<std::string> authority =
      ReadSettingFile("kubernetes.ca_file", options_.ca_file);
  if (!authority.ok()) return absl::FailedPreconditionError(authority.status().message());

  HttpTransfer transfer(kMaxReply);
  if (transfer.handle() == nullptr) return absl::InternalError("libcurl could not be initialized");
  const Address address = AddressOf(options_);
  curl_blob certificates = {const_cast<char*>(authority->data()), authority->size(),
                            CURL_BLOB_NOCOPY};
  transfer.Set(CURLOPT_CURLU, address.get());
  transfer.Set(CURLOPT_REQUEST_TARGET, call.target.c_str());
  transfer.Set(CURLOPT_CUSTOMREQUEST, call.method.c_str());
  transfer.AddHeader("Accept: application/json");
  transfer.AddHeader(absl::StrCat("Authorization: Bearer ", absl::StripAsciiWhitespace(*token)));
  if (!call.body.empty()) transfer.SetBody(call.body, call.content_type);
  // The API server is reached without a proxy, and only the CA in kubernetes.ca_file is trusted.
  transfer.Set(CURLOPT_NOPROXY, "*");
  transfer.Set(CURLOPT_CAINFO_BLOB, &certificates);
  transfer.Set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));
  // CURLOPT_TIMEOUT would also count the time in which the daemon was stopped.
  transfer.AbortIf([this, deadline = RunningNow() + options_.timeout] {
    return *stopping_ || RunningNow() >= deadline;
  });
  const CURLcode code = transfer.Perform();
  if (code != CURLE_OK) return Fault(options_, transfer, code);
  return ApiServerReply{static_cast<int>(transfer.Status()), std::move(transfer.response())};
}

}  // namespace genesis
