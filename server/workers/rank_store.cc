#include "server/workers/rank_store.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/text/field_error.h"

namespace genesis {
namespace {

using training::v1::StoreAdd;
using training::v1::StoreGet;
using training::v1::StoreRequest;
using training::v1::StoreResponse;

std::string KeyFault(const std::string& key) {
  if (!key.empty() && key.size() <= RankStore::kMaxKeyBytes) return "";
  return absl::StrCat("key ", QuoteValue(key), " of the rank store has ", key.size(),
                      " bytes; accepted: 1 to ", RankStore::kMaxKeyBytes);
}

StoreResponse Refusal(int64_t id, const std::string& why) {
  StoreResponse response;
  response.set_id(id);
  response.set_error(why);
  return response;
}

}  // namespace

std::string RankStore::Set(const std::string& key, const std::string& value) {
  std::string fault = KeyFault(key);
  if (!fault.empty()) return fault;
  if (value.size() > kMaxValueBytes) {
    return absl::StrCat("the value of key ", QuoteValue(key), " of the rank store has ",
                        value.size(), " bytes; accepted: at most ", kMaxValueBytes);
  }
  const auto known = values_.find(key);
  const size_t before = known == values_.end() ? 0 : key.size() + known->second.size();
  const size_t bytes = bytes_ - before + key.size() + value.size();
  if (bytes > kMaxBytes) {
    return absl::StrCat("the rank store would hold ", bytes, " bytes with key ", QuoteValue(key),
                        "; accepted: at most ", kMaxBytes);
  }
  bytes_ = bytes;
  values_[key] = value;
  return "";
}

std::string RankStore::Add(int rank, const StoreAdd& add, int64_t& sum) {
  std::map<int, int64_t>& totals = counts_[add.key()];
  totals[rank] = add.total();
  sum = std::accumulate(totals.begin(), totals.end(), int64_t{0},
                        [](int64_t so_far, const auto& each) { return so_far + each.second; });
  // As in TCPStore, counters can also be read as values.
  std::string fault = Set(add.key(), absl::StrCat(sum));
  if (!fault.empty()) counts_.erase(add.key());
  return fault;
}

bool RankStore::HasAll(const StoreGet& get) const {
  return std::all_of(get.keys().begin(), get.keys().end(),
                     [this](const std::string& key) { return values_.contains(key); });
}

StoreResponse RankStore::Read(int64_t id, const StoreGet& get) const {
  StoreResponse response;
  response.set_id(id);
  for (const std::string& key : get.keys()) {
    training::v1::StoreValue& value = *response.add_values();
    const auto found = values_.find(key);
    if (found == values_.end()) continue;
    value.set_found(true);
    value.set_value(found->second);
  }
  return response;
}

void RankStore::AnswerWaits(Answers& answers) {
  std::erase_if(waits_, [&](const Wait& wait) {
    if (!HasAll(wait.get)) return false;
    answers.push_back({wait.rank, Read(wait.id, wait.get)});
    return true;
  });
}

RankStore::Answers RankStore::Handle(int rank, const StoreRequest& request) {
  const int64_t id = request.id();
  if (!closed_.empty()) return {{rank, Refusal(id, closed_)}};
  Answers answers;
  StoreResponse response;
  response.set_id(id);
  switch (request.operation_case()) {
    case StoreRequest::kSet:
      response.set_error(Set(request.set().key(), request.set().value()));
      break;
    case StoreRequest::kAdd: {
      int64_t sum = 0;
      response.set_error(Add(rank, request.add(), sum));
      response.set_sum(sum);
      break;
    }
    case StoreRequest::kGet:
      if (request.get().keys_size() > kMaxKeysOfGet) {
        return {{rank, Refusal(id, absl::StrCat("a get of ", request.get().keys_size(),
                                                " keys of the rank store; accepted: at most ",
                                                kMaxKeysOfGet))}};
      }
      if (!request.get().wait() || HasAll(request.get())) {
        return {{rank, Read(id, request.get())}};
      }
      if (waits_.size() >= kMaxWaits) {
        return {{rank, Refusal(id, absl::StrCat(waits_.size(),
                                                " gets wait in the rank store already; accepted: "
                                                "at most ",
                                                kMaxWaits))}};
      }
      waits_.push_back({rank, id, request.get()});
      return {};
    case StoreRequest::OPERATION_NOT_SET:
      return {{rank, Refusal(id, "a request to the rank store names no operation")}};
  }
  answers.push_back({rank, std::move(response)});
  AnswerWaits(answers);
  return answers;
}

RankStore::Answers RankStore::Close(const std::string& why) {
  closed_ = why;
  Answers answers;
  for (const Wait& wait : waits_) answers.push_back({wait.rank, Refusal(wait.id, why)});
  waits_.clear();
  return answers;
}

void RankStore::Forget(int rank) {
  std::erase_if(waits_, [rank](const Wait& wait) { return wait.rank == rank; });
}

RankStore::Answers RankStores::Handle(const std::string& job_id, int64_t claim, int rank,
                                      const StoreRequest& request) {
  Store& store = stores_[job_id];
  if (store.claim > claim) return {};
  if (store.claim < claim) store = {.claim = claim, .store = {}};
  return store.store.Handle(rank, request);
}

RankStore::Answers RankStores::Close(const std::string& job_id, const std::string& why) {
  const auto found = stores_.find(job_id);
  return found == stores_.end() ? RankStore::Answers() : found->second.store.Close(why);
}

void RankStores::Forget(const std::string& job_id, int rank) {
  const auto found = stores_.find(job_id);
  if (found != stores_.end()) found->second.store.Forget(rank);
}

}  // namespace genesis
