// The `artifacts`, `artifact-download` commands: outputs of a job other than checkpoints.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/files/crc32c.h"
#include "cli/commands/commands.h"
#include "cli/table.h"
#include "cli/text.h"

namespace genesis::cli {
namespace {

namespace fs = std::filesystem;
using training::v1::Artifact;

// Appends the missing bytes to `part`. A damaged piece or an error of that file sets `fault`.
grpc::Status Receive(const Arguments& arguments, const std::string& part, Session& session,
                     std::string& fault) {
  training::v1::ReadArtifactRequest request;
  request.set_job_id(arguments.operands[0]);
  request.set_name(arguments.operands[1]);
  std::error_code error;
  const uintmax_t present = fs::exists(part, error) ? fs::file_size(part, error) : 0;
  request.set_offset(static_cast<int64_t>(present));
  while (true) {
    training::v1::ReadArtifactResponse response;
    const grpc::Status status = Call(&Service::ReadArtifact, request, response, session);
    if (!status.ok()) return status;
    const std::string& piece = response.piece();
    if (Crc32c(0, piece.data(), piece.size()) != response.piece_crc32c()) {
      fault = "a piece was damaged on its way; repeat the command, it goes on where it stopped";
      return status;
    }
    std::ofstream file(part, std::ios::binary | std::ios::app);
    if (!file.write(piece.data(), static_cast<std::streamsize>(piece.size())).flush()) {
      fault = absl::StrCat(Printable(part), ": ", std::strerror(errno));
      return status;
    }
    request.set_offset(request.offset() + static_cast<int64_t>(piece.size()));
    if (piece.empty() || request.offset() >= response.size_bytes()) return status;
  }
}

}  // namespace

ExitCode RunArtifacts(const Arguments& arguments, Session& session) {
  training::v1::ListArtifactsRequest request;
  request.set_job_id(arguments.operands.front());
  training::v1::ListArtifactsResponse response;
  const grpc::Status status = Call(&Service::ListArtifacts, request, response, session);
  if (!status.ok()) return ReportError(status, session);
  if (PrintMessage(response, session)) return ExitCode::kOk;
  Table table({"NAME", ">SIZE", "WRITTEN"});
  for (const Artifact& artifact : response.artifacts()) {
    table.AddRow({Printable(artifact.name()), FormatBytes(artifact.size_bytes()),
                  artifact.has_update_time() ? FormatTimestamp(artifact.update_time()) : ""});
  }
  session.out << (response.artifacts().empty() ? "no artifacts\n"
                                               : table.ToString(session.table_width()));
  return ExitCode::kOk;
}

ExitCode RunArtifactDownload(const Arguments& arguments, Session& session) {
  const std::string& name = arguments.operands[1];
  // Drop folders from the default path. The daemon refuses names such as "../x" anyway.
  const std::string path =
      arguments.Has("file") ? arguments.Value("file") : fs::path(name).filename().string();
  const std::string part = path + ".part";
  std::error_code error;
  if (fs::exists(path, error)) {
    return ReportFault(
        absl::StrCat(Printable(path), ": exists; remove it, or name another with -f"), session);
  }
  std::string fault;
  const grpc::Status status = Receive(arguments, part, session, fault);
  if (!fault.empty()) return ReportFault(fault, session);
  if (!status.ok()) return ReportError(status, session);
  if (std::rename(part.c_str(), path.c_str()) != 0) {
    return ReportFault(absl::StrCat(Printable(path), ": ", std::strerror(errno)), session);
  }
  session.out << "artifact " << Printable(name) << " ("
              << FormatBytes(static_cast<int64_t>(fs::file_size(path, error)))
              << "): " << Printable(path) << "\n";
  return ExitCode::kOk;
}

}  // namespace genesis::cli
