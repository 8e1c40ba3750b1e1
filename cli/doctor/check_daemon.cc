#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/doctor/checks.h"
#include "cli/session.h"
#include "cli/text.h"

namespace genesis::cli {
namespace {

constexpr char kDaemon[] = "daemon";
// Same threshold as the alert FP16HighOverflowRate.
constexpr double kHighOverflow = 0.1;

Finding CheckOverflow(const training::v1::StatsResponse& stats) {
  const std::string rate = absl::StrFormat(
      "%.1f%% of the steps in reduced precision overflowed, "
      "loss scale %s",
      100 * stats.overflow_rate(),
      stats.has_current_scale() ? FormatFigure(stats.current_scale()) : "none");
  if (stats.overflow_rate() <= kHighOverflow) return Good(kDaemon, rate);
  return Problem(kDaemon, rate,
                 "do not raise the scale: an overflow means that gradients times the scale left "
                 "FP16's range, so "
                 "it needs a lower one. The scale is halved at each overflow by itself; where the "
                 "rate stays high, "
                 "set FP16_LOSS_SCALE lower, look for non-finite data, or train in BF16 or FP32 "
                 "(docs/mixed_precision.md)");
}

}  // namespace

Findings CheckDaemon(training::v1::TrainingService::StubInterface& service,
                     const std::string& server) {
  grpc::ClientContext info_context;
  SetDeadline(info_context, kCallTimeout);
  training::v1::GetServerInfoResponse info;
  grpc::Status status = service.GetServerInfo(&info_context, {}, &info);
  if (!status.ok()) {
    return {Note(kDaemon,
                 absl::StrCat("none answers at ", server, ": ", CodeName(status.error_code()), " ",
                              Printable(status.error_message())),
                 "start it, or name another with --server; with tokens or TLS, give --token-file "
                 "and --tls-ca")};
  }
  const std::string what = absl::StrCat("genesisd ", Printable(info.version()), " at ", server);
  Findings findings;
  if (info.ready()) {
    findings.push_back(Good(kDaemon, what + " is ready"));
  } else {
    findings.push_back(
        Problem(kDaemon, what + " is not ready", "/readyz of its HTTP address says why"));
  }
  grpc::ClientContext stats_context;
  SetDeadline(stats_context, kCallTimeout);
  training::v1::StatsResponse stats;
  status = service.Stats(&stats_context, {}, &stats);
  if (status.ok()) findings.push_back(CheckOverflow(stats));
  return findings;
}

}  // namespace genesis::cli
