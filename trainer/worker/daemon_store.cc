#include "trainer/worker/daemon_store.h"

#include <c10/util/Exception.h>

#include "absl/time/time.h"

namespace genesis {
namespace {

void Require(const absl::Status& status) {
  if (!status.ok()) C10_THROW_ERROR(DistStoreError, std::string(status.message()));
}

}  // namespace

c10::intrusive_ptr<c10d::Store> DaemonStore::clone() {
  return c10::make_intrusive<DaemonStore>(client_, getTimeout());
}

void DaemonStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  Require(client_->Set(key, {value.begin(), value.end()}));
}

std::vector<uint8_t> DaemonStore::get(const std::string& key) {
  const absl::StatusOr<std::string> value = client_->Get(key, absl::FromChrono(getTimeout()));
  Require(value.status());
  return {value->begin(), value->end()};
}

int64_t DaemonStore::add(const std::string& key, int64_t value) {
  const absl::StatusOr<int64_t> sum = client_->Add(key, value);
  Require(sum.status());
  return *sum;
}

bool DaemonStore::deleteKey(const std::string& /*key*/) {
  C10_THROW_ERROR(NotImplementedError, "the daemon's rank store deletes no keys");
}

bool DaemonStore::check(const std::vector<std::string>& keys) {
  const absl::StatusOr<bool> there = client_->HasAll(keys);
  Require(there.status());
  return *there;
}

int64_t DaemonStore::getNumKeys() {
  C10_THROW_ERROR(NotImplementedError, "the daemon's rank store does not count its keys");
}

void DaemonStore::wait(const std::vector<std::string>& keys) { wait(keys, getTimeout()); }

void DaemonStore::wait(const std::vector<std::string>& keys,
                       const std::chrono::milliseconds& timeout) {
  Require(client_->Wait(keys, absl::FromChrono(timeout)));
}

}  // namespace genesis
