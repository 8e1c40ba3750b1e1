#include "cli/precision_details.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text/enum_names.h"
#include "cli/text.h"
#include "config/job/job_paths.h"
#include "config/precision/precision.h"

namespace genesis::cli {
namespace {

// Returns the name of the member that is set in the oneof "kind"; "" if none is set.
std::string KindOf(const google::protobuf::Message& message) {
  const auto* const oneof = message.GetDescriptor()->FindOneofByName("kind");
  const auto* const set = message.GetReflection()->GetOneofFieldDescriptor(message, oneof);
  return set == nullptr ? "" : set->name();
}

// Maximum rows shown. The JSON output contains all.
constexpr int kMaxShown = 5;

}  // namespace

std::vector<std::string> PrecisionWarnings(const training::v1::Job& job) {
  std::vector<std::string> shown;
  if (!IsReducedPrecision(job.precision().mode())) return shown;
  const auto& warnings = job.precision().report().alignment_warnings();
  for (const std::string& warning : warnings) {
    if (shown.size() == kMaxShown) break;
    shown.push_back(Printable(warning));
  }
  if (warnings.size() > kMaxShown) {
    shown.push_back(absl::StrCat("and ", warnings.size() - kMaxShown,
                                 " more: genesisctl --output json job ", Printable(job.id())));
  }
  return shown;
}

std::string DescribeModel(const training::v1::JobSpec& spec) { return KindOf(spec.model()); }

std::string DescribeDataset(const training::v1::JobSpec& spec) {
  for (const JobPath& path : PathsOf(spec)) {
    if (absl::StartsWith(path.field, "dataset.")) {
      return absl::StrCat(KindOf(spec.dataset()), " ", path.path);
    }
  }
  return KindOf(spec.dataset());
}

void AddPrecision(const training::v1::Job& job,
                  std::vector<std::pair<std::string, std::string>>& pairs) {
  if (!job.has_precision()) return;
  const training::v1::EffectivePrecision& precision = job.precision();
  pairs.emplace_back("precision", Printable(precision.reason()));
  for (const std::string& refused : precision.refused()) {
    pairs.emplace_back("refused", Printable(refused));
  }
  pairs.emplace_back("device", Printable(precision.device()));
  if (!precision.execution().empty()) {
    pairs.emplace_back("step", Printable(precision.execution()));
  }
  const training::v1::PrecisionReport& report = precision.report();
  if (!report.hardware().empty()) {
    pairs.emplace_back("hardware",
                       absl::StrCat(Printable(report.hardware()), ", TF32 ", report.tf32()));
  }
  for (const training::v1::CalibrationResult& result : report.calibration()) {
    pairs.emplace_back("measured",
                       absl::StrFormat("%s %.3g ms a step: %s", ShortEnumName(result.mode()),
                                       1e3 * result.step_seconds(), Printable(result.verdict())));
  }
  for (const std::string& warning : PrecisionWarnings(job)) pairs.emplace_back("warning", warning);
  for (int i = std::max(0, job.precision_changes_size() - kMaxShown);
       i < job.precision_changes_size(); ++i) {
    const training::v1::PrecisionChange& change = job.precision_changes(i);
    pairs.emplace_back(
        "changed",
        absl::StrFormat("%s to %s after step %d, on from step %d (%s): %s",
                        ShortEnumName(change.from()), ShortEnumName(change.to()), change.step(),
                        change.resumed_step(), change.trigger(), Printable(change.reason())));
  }
  for (int i = std::max(0, job.incidents_size() - kMaxShown); i < job.incidents_size(); ++i) {
    const training::v1::Incident& incident = job.incidents(i);
    pairs.emplace_back("incident",
                       absl::StrFormat("%s: %s", incident.rule(), Printable(incident.message())));
  }
}

}  // namespace genesis::cli
