#include "cli/job_input.h"

#include <filesystem>
#include <sstream>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/upload.h"
#include "config/job/job_file.h"
#include "config/job/job_paths.h"

namespace genesis::cli {
namespace {

using training::v1::JobSpec;

absl::StatusOr<JobSpec> ReadSpec(const JobInput& input, Session& session) {
  if (input.file != "-") return ReadJobFile(input.file, input.overrides);
  std::ostringstream text;
  text << session.in.rdbuf();
  return ParseJobFile(text.str(), "standard input", input.overrides);
}

grpc::Status UploadFiles(const std::string& job_file, JobSpec& spec, Session& session) {
  const std::filesystem::path folder = std::filesystem::path(job_file).parent_path();
  for (const JobPath& each : PathsOf(spec)) {
    const std::filesystem::path local = folder / each.path;
    std::error_code error;
    if (!std::filesystem::is_regular_file(local, error)) continue;
    std::string uploaded;
    const grpc::Status status = UploadFile(local, session, uploaded);
    if (!status.ok()) {
      return {status.error_code(), absl::StrCat(each.field, ": ", status.error_message())};
    }
    SetPath(spec, each.field, uploaded);
  }
  return grpc::Status::OK;
}

}  // namespace

ExitCode ReadJob(const JobInput& input, Session& session, JobSpec& spec) {
  const absl::StatusOr<JobSpec> read = ReadSpec(input, session);
  if (!read.ok()) {
    session.err << read.status().message() << "\n";
    return ExitCode::kUsage;
  }
  spec = *read;
  if (!input.upload) return ExitCode::kOk;
  const grpc::Status sent = UploadFiles(input.file, spec, session);
  return sent.ok() ? ExitCode::kOk : ReportError(sent, session);
}

}  // namespace genesis::cli
