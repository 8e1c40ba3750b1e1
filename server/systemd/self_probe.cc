#include "server/systemd/self_probe.h"

#include <grpcpp/security/tls_credentials_options.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/steady_time.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

namespace health = grpc::health::v1;

std::shared_ptr<grpc::ChannelCredentials> Credentials(bool tls) {
  if (!tls) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace

std::string LocalTarget(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  const std::string port = address.substr(colon);
  if (host == "0.0.0.0") return "127.0.0.1" + port;
  if (host == "[::]") return "[::1]" + port;
  return address;
}

SelfProbe::SelfProbe(Options options) : options_(std::move(options)) {}

void SelfProbe::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void SelfProbe::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

absl::Time SelfProbe::last_success() const {
  absl::MutexLock lock(&mutex_);
  return last_success_;
}

void SelfProbe::Loop() {
  std::string told;
  for (;;) {
    const absl::Time begin = SteadyNow();
    const std::string fault = Probe();
    if (fault != told) {
      if (fault.empty()) {
        spdlog::info("the self-probe passes again");
      } else {
        spdlog::error(
            "the self-probe failed: {}; sending no watchdog ping to systemd until it passes",
            fault);
      }
      told = fault;
    }
    absl::MutexLock lock(&mutex_);
    if (fault.empty()) last_success_ = begin;
    const auto stopping = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; };
    if (changed_.WaitUntil(mutex_, SteadyNow() + options_.period, stopping)) return;
  }
}

std::string SelfProbe::Probe() const {
  std::string fault = AskListener();
  return fault.empty() ? AskWriter() : fault;
}

std::string SelfProbe::AskListener() const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Use a new connection each time, so that the listener's accept is probed too.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub = health::Health::NewStub(
      grpc::CreateCustomChannel(options_.target, Credentials(options_.tls), arguments));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + options_.period));
  context.set_wait_for_ready(true);
  health::HealthCheckResponse response;
  const grpc::Status status = stub->Check(&context, {}, &response);
  if (!status.ok()) {
    return absl::StrCat(options_.target, " does not answer: ", status.error_message());
  }
  if (response.status() != health::HealthCheckResponse::SERVING) {
    return absl::StrCat(options_.target, " says that it does not serve");
  }
  return "";
}

std::string SelfProbe::AskWriter() const {
  // Shared, because the writer may run the callback after this call has returned.
  const auto answered = std::make_shared<SteadyNotification>();
  options_.ask_writer([answered] { answered->Notify(); });
  return answered->WaitFor(options_.period) ? "" : "the thread that changes jobs does not answer";
}

}  // namespace genesis
