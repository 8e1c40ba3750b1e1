#include "trainer/distributed/connect_store.h"

#include <c10/util/Logging.h>
#include <netdb.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <cstdlib>
#include <exception>
#include <future>
#include <memory>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text/text.h"
#include "trainer/runtime/run_failure.h"

namespace genesis {
namespace {

using Store = c10::intrusive_ptr<c10d::Store>;

constexpr std::chrono::milliseconds kConnectGrace = std::chrono::seconds(1);
// Time for a name server to report that a name does not exist.
constexpr std::chrono::milliseconds kLookUp = std::chrono::seconds(2);

Store Connect(const RankPlace& place, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions store;
  store.port = place.port;
  store.isServer = place.rank == 0 && !place.agent_store;
  store.waitWorkers = false;
  store.timeout = timeout;
  return c10::make_intrusive<c10d::TCPStore>(place.address, store);
}

// Returns why `host` has no address; "" if it has one or the lookup takes too long.
std::string LookUpFault(const std::string& host) {
  const auto fault = std::make_shared<std::promise<std::string>>();
  std::future<std::string> answer = fault->get_future();
  std::thread([fault, host] {
    addrinfo* found = nullptr;
    const int error = getaddrinfo(host.c_str(), nullptr, nullptr, &found);
    if (error == 0) freeaddrinfo(found);
    fault->set_value(error == 0 ? "" : gai_strerror(error));
  }).detach();
  const bool known = answer.wait_for(kLookUp) == std::future_status::ready;
  return known ? answer.get() : "";
}

// Returns the store, or null if it is late. Throws the exceptions of the connecting thread.
Store AwaitStore(std::future<Store>& store, const RankPlace& place, const std::string& where,
                 std::chrono::milliseconds patience, const TellWaiting& tell) {
  const auto begin = std::chrono::steady_clock::now();
  for (auto waited = kTellWaitingEvery; waited < patience; waited += kTellWaitingEvery) {
    if (store.wait_until(begin + waited) == std::future_status::ready) break;
    const std::string fault = LookUpFault(place.address);
    tell(absl::StrCat("waiting for ", where, fault.empty() ? "" : absl::StrCat(" (", fault, ")")));
  }
  return store.wait_until(begin + patience) == std::future_status::ready ? store.get() : Store();
}

}  // namespace

void SilenceC10d() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") != nullptr) {
    c10::initLogging();
  } else {
    FLAGS_caffe2_log_level = c10::GLOG_FATAL;
  }
}

Store ConnectStore(const RankPlace& place, std::chrono::milliseconds timeout,
                   const TellWaiting& tell) {
  SilenceC10d();
  const auto connected = std::make_shared<std::promise<Store>>();
  std::future<Store> store = connected->get_future();
  // In a separate thread, because c10d waits forever if another program listens and sends nothing.
  // It tries each address family for the timeout.
  std::thread([connected, place, timeout] {
    try {
      connected->set_value(Connect(place, timeout));
    } catch (const std::exception&) {
      connected->set_exception(std::current_exception());
    }
  }).detach();
  const auto patience = 2 * timeout + kConnectGrace;
  const std::string address = OneLine(place.address, kMaxNameBytes);
  const std::string where = absl::StrCat("the ranks' store at ", address, ":", place.port);
  std::string fault =
      absl::StrFormat("no response within %g s", std::chrono::duration<double>(patience).count());
  try {
    Store found = AwaitStore(store, place, where, patience, tell);
    if (found != nullptr) return found;
  } catch (const std::exception& error) {
    fault = ExplainException(error).message;
  }
  if (absl::StrContains(fault, "EADDRINUSE")) {
    FailAs(place, "serve the ranks' store",
           absl::StrCat("port ", place.port,
                        " is in use on this host, maybe by another launch; give "
                        "each launch a MASTER_PORT of its own"));
  }
  if (const std::string unknown = LookUpFault(place.address); !unknown.empty()) {
    FailAs(place, "find the others",
           absl::StrCat("MASTER_ADDR is ", address, ", which has no address on this host (",
                        unknown, "); accepted: the name or the address of rank 0's host"));
  }
  FailAs(place, "find the others",
         absl::StrCat(where, " cannot be reached; rank 0 or torchrun serves it (", fault, ")"));
}

}  // namespace genesis
