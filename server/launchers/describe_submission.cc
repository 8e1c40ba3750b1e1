#include "server/launchers/describe_submission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "config/job/job_spec.h"

namespace genesis {
namespace {

using training::v1::ClusterSubmission;
using training::v1::Job;

// Returns the cluster's name in the vendor's spelling.
std::string ClusterName(training::v1::LauncherKind kind) {
  switch (kind) {
    case training::v1::LAUNCHER_KIND_SLURM:
      return "Slurm";
    case training::v1::LAUNCHER_KIND_KUBERNETES:
      return "Kubernetes";
    default:
      return ShortEnumName(kind);
  }
}

}  // namespace

std::string SubmissionName(const ClusterSubmission& submission) {
  const std::string cluster = ClusterName(submission.launcher());
  return submission.cluster_id().empty() ? absl::StrCat("the ", cluster, " job ", submission.name())
                                         : absl::StrCat(cluster, " job ", submission.cluster_id());
}

std::string DescribeWait(const Job& job, int warm) {
  const ClusterSubmission& submission = job.submission();
  const std::string cluster = ClusterName(LauncherOf(job.spec()));
  const std::string name = SubmissionName(submission);
  const std::string& reason = submission.reason();
  const std::string told = reason.empty() ? "" : absl::StrCat(": ", reason);
  switch (submission.state()) {
    case training::v1::SUBMISSION_STATE_SUBMITTING:
      return reason.empty() ? absl::StrCat("is being submitted to ", cluster)
                            : absl::StrCat("could not be submitted to ", cluster,
                                           " and is tried again: ", reason);
    case training::v1::SUBMISSION_STATE_PENDING:
    case training::v1::SUBMISSION_STATE_RUNNING:
      break;
    default:
      return absl::StrCat("is to be submitted to ", cluster,
                          job.has_submission() ? absl::StrCat("; ", name, " has ended", told) : "");
  }
  if (submission.claim() != 0) {
    return absl::StrCat("waits for the end of ", name, ", which its last attempt had");
  }
  if (submission.state() == training::v1::SUBMISSION_STATE_PENDING) {
    return absl::StrCat(name, reason.empty() ? " waits" : " is ", reason);
  }
  // Show reasons that are not the usual ones, such as SUSPENDED and COMPLETING.
  const bool as_usual = reason.empty() || reason == "RUNNING";
  return absl::StrCat(name, " runs", as_usual ? "" : absl::StrCat(" (", reason, ")"), "; ", warm,
                      " of ", std::max(job.spec().distributed().ranks(), 1),
                      " workers have attached");
}

}  // namespace genesis
