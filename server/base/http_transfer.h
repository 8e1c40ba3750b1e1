#pragma once

#include <curl/curl.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace genesis {

// Initializes libcurl once per process. Returns false if that failed.
bool InitializeCurl();

// An HTTP request of the daemon to another server and the response to it: a libcurl transfer over
// HTTP/1.1 that follows no redirects. The caller sets what differs: address, trust, proxy, limits.
//
// Owner: the caller. Threads: one at a time. It cannot be moved, because libcurl refers to it.
class HttpTransfer {
 public:
  // A response body of more than `max_response` bytes ends the transfer.
  explicit HttpTransfer(size_t max_response);
  HttpTransfer(const HttpTransfer&) = delete;
  HttpTransfer& operator=(const HttpTransfer&) = delete;

  // Returns null if libcurl could not create a handle; then no other method may be called.
  CURL* handle() const { return easy_.get(); }

  template <typename T>
  void Set(CURLoption option, T value) {
    curl_easy_setopt(handle(), option, value);
  }
  void AddHeader(const std::string& header);
  void SetBody(std::string body, const std::string& content_type);
  // Ends the transfer when `abort` returns true. It is called at least once a second.
  void AbortIf(std::function<bool()> abort);

  // Runs the request and blocks until it has ended.
  CURLcode Perform() { return curl_easy_perform(handle()); }

  // Results of a transfer that has ended. The status is 0 if no response arrived.
  long Status() const;
  bool TooLarge() const { return too_large_; }
  std::string& response() { return response_; }
  std::string ErrorText(CURLcode code) const;

 private:
  static size_t Receive(char* data, size_t, size_t size, void* context);
  static int CheckAbort(void* context, curl_off_t, curl_off_t, curl_off_t, curl_off_t);

  const size_t max_response_;
  std::string body_;
  std::string response_;
  bool too_large_ = false;
  std::function<bool()> abort_;
  char message_[CURL_ERROR_SIZE] = "";
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers_{nullptr,
                                                                       &curl_slist_free_all};
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> easy_;
};

}  // namespace genesis
