// The `checkpoint`, `checkpoints`, `checkpoint-delete` commands.
#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "cli/commands/commands.h"
#include "cli/commands/pages.h"
#include "cli/table.h"
#include "cli/text.h"
#include "config/job/job_spec.h"
#include "config/precision/precision.h"

namespace genesis::cli {

using training::v1::Checkpoint;

ExitCode RunCheckpoint(const Arguments& arguments, Session& session) {
  training::v1::CheckpointRequest request;
  request.set_job_id(arguments.operands.front());
  request.set_name(arguments.Value("name"));
  const std::string fault = JobIdFault(request.job_id());
  if (!fault.empty()) return ReportUsage(fault, session);
  // The daemon responds when the file is durable, which takes long for a large model.
  constexpr absl::Duration kCheckpointTimeout = absl::Seconds(120);
  grpc::ClientContext context;
  SetDeadline(context, kCheckpointTimeout);
  training::v1::CheckpointResponse response;
  const grpc::Status status = session.service.Checkpoint(&context, request, &response);
  if (!status.ok()) return ReportError(status, session);
  const Checkpoint& checkpoint = response.checkpoint();
  if (!PrintMessage(checkpoint, session)) {
    session.out << "checkpoint " << Printable(checkpoint.id()) << " of step " << checkpoint.step()
                << " (" << FormatBytes(checkpoint.size_bytes())
                << "): " << Printable(checkpoint.path()) << "\n";
  }
  return ExitCode::kOk;
}

ExitCode RunCheckpoints(const Arguments& arguments, Session& session) {
  training::v1::ListCheckpointsRequest request;
  if (!arguments.operands.empty()) {
    request.set_job_id(arguments.operands.front());
    const std::string fault = JobIdFault(request.job_id());
    if (!fault.empty()) return ReportUsage(fault, session);
  }
  training::v1::ListCheckpointsResponse all;
  const grpc::Status status = ReadAllPages(
      request,
      [&](auto* context, const auto& asked, auto* page) {
        return session.service.ListCheckpoints(context, asked, page);
      },
      &all);
  if (!status.ok()) return ReportError(status, session);

  if (PrintMessage(all, session)) return ExitCode::kOk;
  Table table({"ID", ">STEP", ">LOSS", "PRECISION", ">SIZE", "CREATED", "PATH"});
  for (const Checkpoint& checkpoint : all.checkpoints()) {
    table.AddRow({Printable(checkpoint.id()), absl::StrCat(checkpoint.step()),
                  FormatFigure(checkpoint.loss()), ShortEnumName(checkpoint.mode()),
                  FormatBytes(checkpoint.size_bytes()), FormatTimestamp(checkpoint.create_time()),
                  Printable(checkpoint.path())});
  }
  session.out << (all.checkpoints().empty() ? "no checkpoints\n"
                                            : table.ToString(session.table_width()));
  return ExitCode::kOk;
}

ExitCode RunCheckpointDelete(const Arguments& arguments, Session& session) {
  training::v1::DeleteCheckpointRequest request;
  request.set_checkpoint_id(arguments.operands.front());
  training::v1::DeleteCheckpointResponse response;
  const grpc::Status status = Call(&Service::DeleteCheckpoint, request, response, session);
  if (!status.ok()) return ReportError(status, session);
  if (!PrintMessage(response, session)) {
    session.out << "checkpoint " << Printable(request.checkpoint_id()) << " deleted\n";
  }
  return ExitCode::kOk;
}

}  // namespace genesis::cli
