// The `train`, `watch` commands.
#include <google/protobuf/util/message_differencer.h>

#include "absl/strings/str_cat.h"
#include "base/text/enum_names.h"
#include "cli/commands/commands.h"
#include "cli/event_line.h"
#include "cli/job_curves.h"
#include "cli/job_input.h"
#include "cli/precision_details.h"
#include "cli/progress_line.h"
#include "cli/text.h"
#include "config/job/final_state.h"
#include "config/job/job_spec.h"

namespace genesis::cli {
namespace {

using google::protobuf::util::MessageDifferencer;
using training::v1::Job;

void PrintAccepted(const Job& job, bool validate_only, Session& session) {
  if (validate_only) {
    session.out << "the job is valid and was not submitted\n";
  } else {
    session.out << "job " << Printable(job.id()) << " " << ShortEnumName(job.state());
    if (job.queue_position() > 0) session.out << " (place " << job.queue_position() << ")";
    session.out << "\n";
  }
  if (job.has_precision()) {
    session.out << "precision " << Printable(job.precision().reason()) << "\n";
  }
}

ExitCode EndOfWatch(const Job& job, Session& session) {
  if (session.output == OutputFormat::kTable) session.out << RenderEnd(job) << std::flush;
  switch (job.state()) {
    case training::v1::JOB_STATE_SUCCEEDED:
      return ExitCode::kOk;
    case training::v1::JOB_STATE_FAILED:
      return ExitCode::kJobFailed;
    default:
      return ExitCode::kFailure;
  }
}

// Prints an update. As JSON or YAML, prints only the job unless events are requested.
void PrintUpdate(const training::v1::WatchJobResponse& update, bool events, JobSketches& sketches,
                 ProgressLine& line, Session& session) {
  if (session.output == OutputFormat::kTable) {
    for (const training::v1::JobEvent& event : update.events()) {
      line.Close();
      session.out << EventLine(event) << "\n";
    }
    line.Warn(PrecisionWarnings(update.job()));
    const Job& job = update.job();
    const bool sketch = session.terminal && job.progress().step() > 0;
    line.Update(job, sketch ? sketches.Of(job.id()) : JobSketch());
    return;
  }
  if (session.output == OutputFormat::kYaml) session.out << "---\n";
  if (events) {
    PrintMessage(update, session, /*compact=*/true);
  } else {
    PrintMessage(update.job(), session, /*compact=*/true);
  }
  session.out << std::flush;
}

}  // namespace

ExitCode WatchJob(const std::string& job_id, bool events, Session& session) {
  grpc::ClientContext context;
  session.interrupt.Set([&context] { context.TryCancel(); });
  training::v1::WatchJobRequest request;
  request.set_job_id(job_id);
  request.set_cursor(events ? 0 : -1);
  const auto stream = session.service.WatchJob(&context, request);
  JobSketches sketches(session);
  ProgressLine line(session.out, session.terminal, session.width, session.now);
  training::v1::WatchJobResponse response;
  Job job;
  while (stream->Read(&response)) {
    // Unless events are requested, skip messages in which only events changed.
    if (!events && MessageDifferencer::Equals(job, response.job())) continue;
    job = response.job();
    if (!events) response.clear_events();
    PrintUpdate(response, events, sketches, line, session);
  }
  const grpc::Status status = stream->Finish();
  session.interrupt.Clear();
  line.Close();
  if (IsFinal(job.state())) return EndOfWatch(job, session);
  if (session.interrupt.fired()) {
    session.err << "genesisctl: the watch ended; job " << job_id << " goes on: see genesisctl job "
                << job_id << ", or end it with genesisctl cancel " << job_id << "\n";
    return ExitCode::kFailure;
  }
  if (!status.ok() && job.id().empty()) return ReportError(status, session);
  session.err << "genesisctl: the daemon ended the watch before the job's end; the job may go on: "
                 "repeat genesisctl watch "
              << job_id << "\n";
  return status.ok() ? ExitCode::kUnavailable : ReportError(status, session);
}

ExitCode RunWatch(const Arguments& arguments, Session& session) {
  const std::string& job_id = arguments.operands.front();
  const std::string fault = JobIdFault(job_id);
  return fault.empty() ? WatchJob(job_id, arguments.Has("events"), session)
                       : ReportUsage(fault, session);
}

std::string SubmissionFault(const Arguments& arguments) {
  if (!arguments.Has("file")) {
    return absl::StrCat(arguments.command, ": needs a job file; write genesisctl ",
                        arguments.command, " -f FILE");
  }
  if (arguments.Has("watch") && arguments.Has("validate-only")) {
    return "--watch conflicts with --validate-only, which submits nothing to watch; remove one of "
           "the two";
  }
  return "";
}

ExitCode ReadSubmittedJob(const Arguments& arguments, Session& session,
                          training::v1::JobSpec& spec) {
  return ReadJob({.file = arguments.Value("file"),
                  .overrides = arguments.Values("set"),
                  .upload = arguments.Has("upload")},
                 session, spec);
}

ExitCode RunTrain(const Arguments& arguments, Session& session) {
  std::string fault = SubmissionFault(arguments);
  if (fault.empty() && arguments.Has("job-id")) fault = JobIdFault(arguments.Value("job-id"));
  if (!fault.empty()) return ReportUsage(fault, session);
  training::v1::TrainRequest request;
  const ExitCode read = ReadSubmittedJob(arguments, session, *request.mutable_spec());
  if (read != ExitCode::kOk) return read;
  request.set_job_id(arguments.Value("job-id"));
  request.set_validate_only(arguments.Has("validate-only"));
  training::v1::TrainResponse response;
  const grpc::Status status = Call(&Service::Train, request, response, session);
  if (!status.ok()) return ReportError(status, session);
  const bool watch = arguments.Has("watch");
  if (session.output == OutputFormat::kTable) {
    PrintAccepted(response.job(), request.validate_only(), session);
  } else if (!watch) {  // The watch prints the job too.
    PrintMessage(response.job(), session);
  }
  session.out << std::flush;
  return watch ? WatchJob(response.job().id(), /*events=*/false, session) : ExitCode::kOk;
}

}  // namespace genesis::cli
