#include "trainer/worker/rank_store_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/field_error.h"

namespace genesis {
namespace {

using training::v1::StoreRequest;

// Timeout of operations that wait only for the daemon, which may be away.
constexpr absl::Duration kDaemonPatience = absl::Minutes(30);

}  // namespace

absl::StatusOr<RankStoreClient::Response> RankStoreClient::Call(StoreRequest request,
                                                                absl::Duration patience) {
  const absl::Time give_up = SteadyNow() + patience;
  int64_t id = 0;
  {
    const absl::MutexLock lock(&mutex_);
    id = ++last_id_;
    request.set_id(id);
    if (!closed_.empty()) return absl::UnavailableError(closed_);
    if (request.has_set()) told_[request.set().key()] = request;
    if (request.has_add()) told_[request.add().key()] = request;
    open_[id] = request;
  }
  send_(request);
  const absl::MutexLock lock(&mutex_);
  answered_.WaitUntil(mutex_, give_up, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return answers_.contains(id) || !closed_.empty();
  });
  open_.erase(id);
  auto answer = answers_.extract(id);
  if (!answer.empty()) {
    Response response = std::move(answer.mapped());
    if (!response.error().empty()) return absl::UnavailableError(response.error());
    return response;
  }
  if (!closed_.empty()) return absl::UnavailableError(closed_);
  return absl::DeadlineExceededError(absl::StrCat(
      "no response from the rank store within ", absl::FormatDuration(patience),
      request.has_get()
          ? absl::StrCat(" for ", QuoteValue(absl::StrJoin(request.get().keys(), ", ")))
          : ""));
}

absl::StatusOr<RankStoreClient::Response> RankStoreClient::Read(
    const std::vector<std::string>& keys, bool wait, absl::Duration patience) {
  StoreRequest request;
  request.mutable_get()->mutable_keys()->Assign(keys.begin(), keys.end());
  request.mutable_get()->set_wait(wait);
  return Call(std::move(request), patience);
}

absl::Status RankStoreClient::Set(const std::string& key, const std::string& value) {
  StoreRequest request;
  request.mutable_set()->set_key(key);
  request.mutable_set()->set_value(value);
  return Call(std::move(request), kDaemonPatience).status();
}

absl::StatusOr<std::string> RankStoreClient::Get(const std::string& key, absl::Duration patience) {
  absl::StatusOr<Response> response = Read({key}, /*wait=*/true, patience);
  if (!response.ok()) return response.status();
  if (response->values_size() != 1) return absl::InternalError("a response without a value");
  return std::move(*response->mutable_values(0)->mutable_value());
}

absl::Status RankStoreClient::Wait(const std::vector<std::string>& keys, absl::Duration patience) {
  return Read(keys, /*wait=*/true, patience).status();
}

absl::StatusOr<bool> RankStoreClient::HasAll(const std::vector<std::string>& keys) {
  const absl::StatusOr<Response> response = Read(keys, /*wait=*/false, kDaemonPatience);
  if (!response.ok()) return response.status();
  for (const training::v1::StoreValue& value : response->values()) {
    if (!value.found()) return false;
  }
  return true;
}

absl::StatusOr<int64_t> RankStoreClient::Add(const std::string& key, int64_t amount) {
  StoreRequest request;
  {
    const absl::MutexLock lock(&mutex_);
    const auto before = told_.find(key);
    request.mutable_add()->set_total(amount +
                                     (before == told_.end() ? 0 : before->second.add().total()));
  }
  request.mutable_add()->set_key(key);
  const absl::StatusOr<Response> response = Call(std::move(request), kDaemonPatience);
  if (!response.ok()) return response.status();
  return response->sum();
}

void RankStoreClient::OnResponse(const Response& response) {
  const absl::MutexLock lock(&mutex_);
  // A resent request gets two responses.
  if (!open_.contains(response.id())) return;
  answers_[response.id()] = response;
  answered_.NotifyAll();
}

void RankStoreClient::Resend() {
  std::map<int64_t, StoreRequest> requests;
  {
    const absl::MutexLock lock(&mutex_);
    requests = open_;
    for (const auto& [key, request] : told_) requests.emplace(request.id(), request);
  }
  for (const auto& [id, request] : requests) send_(request);
}

void RankStoreClient::Close(const std::string& why) {
  const absl::MutexLock lock(&mutex_);
  if (closed_.empty()) closed_ = why;
  answered_.NotifyAll();
}

}  // namespace genesis
