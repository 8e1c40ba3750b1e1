#include "config/settings/settings_conflicts.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "config/job/worker_lease.h"
#include "config/settings/listen_address.h"

namespace genesis {
namespace {

constexpr char kClosedAddress[] =
    "a loopback address; any other needs tls.certificate_file, tls.key_file and one of "
    "auth.tokens_file, auth.jwks_file and tls.client_ca_file, or the flag --insecure";

struct Listener {
  const char* key;
  const std::string& address;
};

bool IsOpenToOthers(const std::string& address) {
  const std::optional<HostPort> parsed = ParseHostPort(address);
  return parsed.has_value() && !IsLoopback(parsed->host);
}

bool HasTls(const Settings& settings) { return !settings.tls.certificate_file.empty(); }

bool AsksWhoCalls(const Settings& settings) {
  return !settings.auth.tokens_file.empty() || !settings.auth.jwks_file.empty() ||
         !settings.tls.client_ca_file.empty();
}

std::vector<Listener> Listeners(const Settings& settings) {
  return {{"grpc.listen", settings.grpc.listen}, {"http.listen", settings.http.listen}};
}

void Add(const char* key, std::string value, std::string accepted,
         std::vector<FieldError>& errors) {
  FieldError error;
  error.path = key;
  error.value = std::move(value);
  error.accepted = std::move(accepted);
  errors.push_back(std::move(error));
}

void CheckPorts(const Settings& settings, std::vector<FieldError>& errors) {
  const std::optional<HostPort> grpc = ParseHostPort(settings.grpc.listen);
  const std::optional<HostPort> http = ParseHostPort(settings.http.listen);
  if (!grpc.has_value() || !http.has_value() || grpc->port == 0) return;
  if (grpc->port != http->port || grpc->host != http->host) return;
  Add("http.listen", "",
      absl::StrCat(settings.http.listen, " is also grpc.listen; give each its own port"), errors);
}

void CheckTls(const Settings& settings, std::vector<FieldError>& errors) {
  const bool has_key = !settings.tls.key_file.empty();
  if (HasTls(settings) && !has_key) {
    Add("tls.key_file", "", "required with tls.certificate_file; give the file of its key", errors);
  }
  if (has_key && !HasTls(settings)) {
    Add("tls.certificate_file", "",
        "required with tls.key_file; give the file of the certificate that the key belongs to",
        errors);
  }
  if (!settings.tls.client_ca_file.empty() && !HasTls(settings)) {
    Add("tls.certificate_file", "",
        "required with tls.client_ca_file, for only TLS carries the certificates of clients; give "
        "this daemon's own",
        errors);
  }
}

void CheckJwt(const AuthSettings& auth, std::vector<FieldError>& errors) {
  if (auth.jwks_file.empty()) {
    if (auth.jwt_issuer.empty() && auth.jwt_audience.empty()) return;
    return Add("auth.jwks_file", "",
               "required with auth.jwt_issuer and auth.jwt_audience; give the file with the "
               "issuer's keys",
               errors);
  }
  for (const auto& [key, value] : {std::pair("auth.jwt_issuer", auth.jwt_issuer),
                                   std::pair("auth.jwt_audience", auth.jwt_audience),
                                   std::pair("auth.jwt_owner_claim", auth.jwt_owner_claim)}) {
    if (!value.empty()) continue;
    Add(key, "", "required with auth.jwks_file; give the text that accepted JWTs have", errors);
  }
}

void CheckWorkers(const Settings& settings, std::vector<FieldError>& errors) {
  if (!settings.workers.remote) {
    if (settings.workers.devices.front() != "none") return;
    Add("workers.devices", "none",
        "none only with workers.remote: true, for no job could run otherwise", errors);
  } else if (RemotePatienceSeconds(settings.workers.reattach_timeout_seconds) < 1) {
    Add("workers.reattach_timeout_seconds", absl::StrCat(settings.workers.reattach_timeout_seconds),
        absl::StrCat("above ", kSilenceSeconds,
                     " with workers.remote, for so long a worker of another host may not notice "
                     "that it has lost the daemon"),
        errors);
  }
}

// The workers of a cluster attach like those of any other host, so they need workers.remote.
void CheckLaunchers(const Settings& settings, std::vector<FieldError>& errors) {
  if (settings.workers.remote) return;
  constexpr char kNeeds[] =
      "only with workers.remote: true, for the workers attach from other hosts";
  if (settings.slurm.enabled) {
    Add("slurm.enabled", "", absl::StrCat("true ", kNeeds), errors);
  }
  if (!settings.kubernetes.pod_template.empty()) {
    Add("kubernetes.pod_template", "", kNeeds, errors);
  }
}

}  // namespace

void CheckConflicts(const Settings& settings, std::vector<FieldError>& errors) {
  CheckPorts(settings, errors);
  CheckTls(settings, errors);
  CheckJwt(settings.auth, errors);
  CheckWorkers(settings, errors);
  CheckLaunchers(settings, errors);
  if (settings.insecure || (HasTls(settings) && AsksWhoCalls(settings))) return;
  for (const Listener& listener : Listeners(settings)) {
    if (!IsOpenToOthers(listener.address)) continue;
    Add(listener.key, QuoteValue(listener.address), kClosedAddress, errors);
  }
}

std::vector<std::string> InsecureNotes(const Settings& settings) {
  std::vector<std::string> notes;
  for (const Listener& listener : Listeners(settings)) {
    if (!IsOpenToOthers(listener.address)) continue;
    if (!AsksWhoCalls(settings)) {
      notes.push_back(absl::StrCat("insecure: everybody who reaches ", listener.key, " ",
                                   listener.address,
                                   " may do everything; set auth.tokens_file, auth.jwks_file or "
                                   "tls.client_ca_file, and remove --insecure"));
    } else if (!HasTls(settings)) {
      notes.push_back(absl::StrCat("insecure: ", listener.key, " ", listener.address,
                                   " is not encrypted, so tokens can be read on their way; set "
                                   "tls.certificate_file and tls.key_file, and remove --insecure"));
    }
  }
  return notes;
}

}  // namespace genesis
