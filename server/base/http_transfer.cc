#include "server/base/http_transfer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/version.h"

namespace genesis {

bool InitializeCurl() {
  static const CURLcode initialized = curl_global_init(CURL_GLOBAL_DEFAULT);
  return initialized == CURLE_OK;
}

HttpTransfer::HttpTransfer(size_t max_response)
    : max_response_(max_response),
      easy_(InitializeCurl() ? curl_easy_init() : nullptr, &curl_easy_cleanup) {
  if (easy_ == nullptr) return;
  // Otherwise libcurl waits for "100 Continue" before it sends a large body.
  AddHeader("Expect:");
  Set(CURLOPT_USERAGENT, absl::StrCat("genesisd/", kVersion).c_str());
  Set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  Set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  Set(CURLOPT_FOLLOWLOCATION, 0L);
  Set(CURLOPT_NOSIGNAL, 1L);
  Set(CURLOPT_WRITEFUNCTION, &HttpTransfer::Receive);
  Set(CURLOPT_WRITEDATA, this);
  Set(CURLOPT_ERRORBUFFER, message_);
}

void HttpTransfer::AddHeader(const std::string& header) {
  curl_slist* const list = curl_slist_append(headers_.get(), header.c_str());
  if (list != nullptr && headers_ == nullptr) headers_.reset(list);
  Set(CURLOPT_HTTPHEADER, headers_.get());
}

void HttpTransfer::SetBody(std::string body, const std::string& content_type) {
  body_ = std::move(body);
  AddHeader(absl::StrCat("Content-Type: ", content_type));
  Set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body_.size()));
  Set(CURLOPT_POSTFIELDS, body_.data());
}

void HttpTransfer::AbortIf(std::function<bool()> abort) {
  abort_ = std::move(abort);
  Set(CURLOPT_NOPROGRESS, 0L);
  Set(CURLOPT_XFERINFOFUNCTION, &HttpTransfer::CheckAbort);
  Set(CURLOPT_XFERINFODATA, this);
}

long HttpTransfer::Status() const {
  long status = 0;
  curl_easy_getinfo(handle(), CURLINFO_RESPONSE_CODE, &status);
  return status;
}

std::string HttpTransfer::ErrorText(CURLcode code) const {
  return message_[0] != '\0' ? message_ : curl_easy_strerror(code);
}

size_t HttpTransfer::Receive(char* data, size_t, size_t size, void* context) {
  auto& self = *static_cast<HttpTransfer*>(context);
  self.too_large_ = self.response_.size() + size > self.max_response_;
  if (self.too_large_) return CURL_WRITEFUNC_ERROR;
  self.response_.append(data, size);
  return size;
}

int HttpTransfer::CheckAbort(void* context, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const HttpTransfer*>(context)->abort_() ? 1 : 0;
}

}  // namespace genesis
