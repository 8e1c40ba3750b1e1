// Methods for the outputs of a job other than checkpoints: log, traces, exported weights.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/text/field_error.h"
#include "base/timestamp.h"
#include "server/api/training_api.h"
#include "server/checkpoints/artifact_files.h"

namespace genesis {
namespace {

using training::v1::Artifact;
using training::v1::ReadArtifactRequest;

constexpr char kLog[] = "log.txt";
constexpr int64_t kMaxPiece = int64_t{1} << 20;

// Returns the lines that the job's workers logged, each with its time.
absl::StatusOr<std::string> LogOf(const JobView& view, const std::string& job_id) {
  const absl::StatusOr<std::vector<training::v1::JobEvent>> lines = view.LogLines(job_id);
  if (!lines.ok()) return lines.status();
  std::string text;
  for (const training::v1::JobEvent& line : *lines) {
    absl::StrAppend(
        &text,
        absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ ", FromTimestamp(line.time()), absl::UTCTimeZone()),
        line.log_line(), "\n");
  }
  return text;
}

}  // namespace

void TrainingApi::ListArtifacts(const Caller& caller,
                                const training::v1::ListArtifactsRequest& request,
                                const Callback<training::v1::ListArtifactsResponse>& callback) {
  const absl::StatusOr<training::v1::Job> job =
      parts_.jobs->queries().Get(caller, request.job_id());
  if (!job.ok()) return callback(job.status());
  parts_.files->Post([parts = parts_, request, callback] {
    const absl::StatusOr<std::string> log = LogOf(parts.jobs->view(), request.job_id());
    if (!log.ok()) return callback(log.status());
    training::v1::ListArtifactsResponse response;
    if (!log->empty()) {
      Artifact& artifact = *response.add_artifacts();
      artifact.set_name(kLog);
      artifact.set_size_bytes(static_cast<int64_t>(log->size()));
    }
    for (Artifact& each : ListArtifactFiles(parts.files->options().dir, request.job_id())) {
      *response.add_artifacts() = std::move(each);
    }
    callback(response);
  });
}

void TrainingApi::ReadArtifact(const Caller& caller, const ReadArtifactRequest& request,
                               const Callback<training::v1::ReadArtifactResponse>& callback) {
  std::vector<FieldError> faults;
  if (request.offset() < 0) {
    faults.push_back({"offset", absl::StrCat(request.offset()), "0 or more"});
  }
  if (request.limit() < 0 || request.limit() > kMaxPiece) {
    faults.push_back({"limit", absl::StrCat(request.limit()),
                      absl::StrCat("1 to ", kMaxPiece, ", or 0 for ", kMaxPiece)});
  }
  if (!faults.empty()) return callback(ToStatus(faults));
  const absl::StatusOr<training::v1::Job> job =
      parts_.jobs->queries().Get(caller, request.job_id());
  if (!job.ok()) return callback(job.status());
  parts_.files->Post([parts = parts_, request, callback] {
    if (request.name() != kLog) {
      return callback(ReadArtifactFile(parts.files->options().dir, request, kMaxPiece));
    }
    const absl::StatusOr<std::string> log = LogOf(parts.jobs->view(), request.job_id());
    if (!log.ok()) return callback(log.status());
    callback(ReadArtifactText(*log, request, kMaxPiece));
  });
}

}  // namespace genesis
