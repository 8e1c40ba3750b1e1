#include "server/security.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

void TellCertificate(const TlsMaterial& material, Metrics& metrics) {
  metrics.SetCertificateEnd(absl::ToDoubleSeconds(material.not_after - absl::UnixEpoch()));
  const std::string until =
      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", material.not_after, absl::UTCTimeZone());
  if (material.not_after <= absl::Now()) {
    spdlog::error(
        "the certificate of tls.certificate_file ended at {}; clients will refuse it: put "
        "a new one in its place, which is used within a second",
        until);
  } else {
    spdlog::info("TLS with a certificate that is valid until {}", until);
  }
}

// Refuses to turn TLS or client certificates on or off, because that is fixed when the listener
// starts. Only the files may change.
absl::Status CheckSameKind(const Settings& start, const Settings& next) {
  const auto changed = [](const std::string& before, const std::string& after) {
    return before.empty() != after.empty();
  };
  if (!changed(start.tls.certificate_file, next.tls.certificate_file) &&
      !changed(start.tls.client_ca_file, next.tls.client_ca_file)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "switching TLS or client certificates on or off needs a restart; restart genesisd, or take "
      "the change of tls.certificate_file or tls.client_ca_file back and reload");
}

}  // namespace

std::optional<StartFailure> Security::Open() {
  for (const std::string& note : InsecureNotes(settings_)) spdlog::warn("{}", note);
  if (!settings_.tls.certificate_file.empty()) {
    absl::StatusOr<TlsMaterial> material = LoadTlsMaterial(settings_);
    if (!material.ok()) return StartFailure(ExitCode::kUsage, material.status());
    TellCertificate(*material, *metrics_);
    tls_ = std::make_unique<TlsStore>(*std::move(material));
  }
  absl::StatusOr<TokenAuthenticator::Rules> rules = LoadRules(settings_);
  if (!rules.ok()) return StartFailure(ExitCode::kUsage, rules.status());
  authenticator_ = std::make_unique<TokenAuthenticator>(*std::move(rules));
  // A program that builds its own settings may leave the audit log disabled.
  if (settings_.audit.file.empty()) return std::nullopt;
  absl::StatusOr<std::unique_ptr<AuditLog>> audit =
      AuditLog::Open(settings_.audit.file, &absl::Now, [this] { metrics_->AuditLineLost(); });
  if (!audit.ok()) return StartFailure(ExitCode::kStoreFailure, audit.status());
  audit_ = *std::move(audit);
  return std::nullopt;
}

void Security::AddTo(RuntimeConfig& config) {
  using Commit = RuntimeConfig::Commit;
  config.AddPart([this](const Settings& next) -> absl::StatusOr<Commit> {
    absl::StatusOr<TokenAuthenticator::Rules> rules = LoadRules(next);
    if (!rules.ok()) return rules.status();
    return [this, rules = *std::move(rules)] { authenticator_->Replace(rules); };
  });
  config.AddPart([this](const Settings& next) -> absl::StatusOr<Commit> {
    const absl::Status same = CheckSameKind(settings_, next);
    if (!same.ok()) return same;
    if (tls_ == nullptr) return [] {};
    absl::StatusOr<TlsMaterial> material = LoadTlsMaterial(next);
    if (!material.ok()) return material.status();
    return [this, material = *std::move(material)] {
      if (material.certificate_chain != tls_->current().material->certificate_chain) {
        TellCertificate(material, *metrics_);
      }
      tls_->Replace(material);
    };
  });
}

absl::Status Security::ReopenAudit() { return audit_ ? audit_->Reopen() : absl::OkStatus(); }

}  // namespace genesis
