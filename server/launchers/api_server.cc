#include "server/launchers/api_server.h"

#include <curl/curl.h>

#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/running_time.h"
#include "base/version.h"
#include "server/auth/secret_file.h"

namespace genesis {
namespace {

template <auto Function>
struct Calls {
  template <typename T>
  void operator()(T* handle) const {
    Function(handle);
  }
};
using Easy = std::unique_ptr<CURL, Calls<curl_easy_cleanup>>;
using Address = std::unique_ptr<CURLU, Calls<curl_url_cleanup>>;
using Headers = std::unique_ptr<curl_slist, Calls<curl_slist_free_all>>;

// State of one transfer that libcurl's callbacks read and write.
struct Transfer {
  absl::Time deadline;
  const std::atomic<bool>& stopping;
  std::string body = {};
  bool too_large = false;
};

size_t Receive(char* data, size_t, size_t size, void* context) {
  auto& transfer = *static_cast<Transfer*>(context);
  transfer.too_large = transfer.body.size() + size > ApiServer::kMaxReply;
  if (transfer.too_large) return CURL_WRITEFUNC_ERROR;
  transfer.body.append(data, size);
  return size;
}

// libcurl calls this at least once a second and aborts the transfer if the result is not zero. Its
// own CURLOPT_TIMEOUT is not used, because it also counts the time in which the daemon was stopped.
int CheckDeadline(void* context, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto& transfer = *static_cast<const Transfer*>(context);
  return transfer.stopping || RunningNow() >= transfer.deadline ? 1 : 0;
}

absl::Status Fault(const ApiServer::Options& options, CURLcode code, const Transfer& transfer,
                   const std::string& message) {
  const std::string where =
      absl::StrCat("the Kubernetes API server ", options.host, ":", options.port);
  if (transfer.too_large) {
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

// The server's address without a path; REQUEST_TARGET sends the call's target as it is.
Address AddressOf(const ApiServer::Options& options) {
  const bool is_v6 = absl::StrContains(options.host, ":");
  Address address(curl_url());
  curl_url_set(address.get(), CURLUPART_SCHEME, "https", 0);
  curl_url_set(address.get(), CURLUPART_HOST,
               absl::StrCat(is_v6 ? "[" : "", options.host, is_v6 ? "]" : "").c_str(), 0);
  curl_url_set(address.get(), CURLUPART_PORT, absl::StrCat(options.port).c_str(), 0);
  return address;
}

Headers HeadersOf(const ApiServerCall& call, const std::string& token) {
  curl_slist* headers = curl_slist_append(nullptr, "Accept: application/json");
  headers = curl_slist_append(headers, absl::StrCat("Authorization: Bearer ", token).c_str());
  // Without this, libcurl waits for "100 Continue" before it sends a large body.
  headers = curl_slist_append(headers, "Expect:");
  if (!call.body.empty()) {
    headers = curl_slist_append(headers, absl::StrCat("Content-Type: ", call.content_type).c_str());
  }
  return Headers(headers);
}

}  // namespace

absl::StatusOr<ApiServerReply> ApiServer::Call(const ApiServerCall& call) const {
  const absl::StatusOr<std::string> token =
      ReadSettingFile("kubernetes.token_file", options_.token_file);
  if (!token.ok()) return absl::FailedPreconditionError(token.status().message());
  const absl::StatusOr<std::string> authority =
      ReadSettingFile("kubernetes.ca_file", options_.ca_file);
  if (!authority.ok()) return absl::FailedPreconditionError(authority.status().message());

  static const CURLcode initialized = curl_global_init(CURL_GLOBAL_DEFAULT);
  const Easy easy(initialized == CURLE_OK ? curl_easy_init() : nullptr);
  if (easy == nullptr) return absl::InternalError("libcurl could not be initialized");
  const auto set = [&easy](CURLoption option, auto value) {
    curl_easy_setopt(easy.get(), option, value);
  };
  const Address address = AddressOf(options_);
  const Headers headers = HeadersOf(call, std::string(absl::StripAsciiWhitespace(*token)));
  curl_blob certificates = {const_cast<char*>(authority->data()), authority->size(),
                            CURL_BLOB_NOCOPY};
  Transfer transfer = {RunningNow() + options_.timeout, *stopping_};
  char message[CURL_ERROR_SIZE] = "";
  set(CURLOPT_CURLU, address.get());
  set(CURLOPT_REQUEST_TARGET, call.target.c_str());
  set(CURLOPT_CUSTOMREQUEST, call.method.c_str());
  set(CURLOPT_HTTPHEADER, headers.get());
  set(CURLOPT_USERAGENT, absl::StrCat("genesisd/", kVersion).c_str());
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  if (!call.body.empty()) {
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(call.body.size()));
    set(CURLOPT_POSTFIELDS, call.body.data());
  }
  // The pod's own API server: no proxy, and only the CA of the service account is trusted.
  set(CURLOPT_NOPROXY, "*");
  set(CURLOPT_CAINFO_BLOB, &certificates);
  set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, CheckDeadline);
  set(CURLOPT_XFERINFODATA, &transfer);
  set(CURLOPT_WRITEFUNCTION, Receive);
  set(CURLOPT_WRITEDATA, &transfer);
  set(CURLOPT_ERRORBUFFER, message);

  const CURLcode code = curl_easy_perform(easy.get());
  if (code != CURLE_OK) {
    return Fault(options_, code, transfer, message[0] != '\0' ? message : curl_easy_strerror(code));
  }
  long status = 0;
  curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &status);
  return ApiServerReply{static_cast<int>(status), std::move(transfer.body)};
}

}  // namespace genesis
