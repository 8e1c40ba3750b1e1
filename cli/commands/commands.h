#pragma once

#include <string>

#include "base/exit_code.h"
#include "cli/commands/arguments.h"
#include "cli/session.h"
#include "genesis/training/v1/job.pb.h"
#include "google/protobuf/message.h"

namespace genesis::cli {

// Run the commands. Each checks what ParseArguments could not check, makes its calls, prints the
// result to session.out and errors to session.err. They share no state.
ExitCode RunTrain(const Arguments& arguments, Session& session);
ExitCode RunJobs(const Arguments& arguments, Session& session);
ExitCode RunJob(const Arguments& arguments, Session& session);
ExitCode RunWatch(const Arguments& arguments, Session& session);
// Redraws jobs, workers and devices each second, or prints them once if the output is not a
// terminal.
ExitCode RunTop(const Arguments& arguments, Session& session);
ExitCode RunEvents(const Arguments& arguments, Session& session);
// Prints the log of a job's workers; with --follow, what they log until the job ends.
ExitCode RunLogs(const Arguments& arguments, Session& session);
// Draws a metric over the steps of a job, in the terminal or as SVG.
ExitCode RunPlot(const Arguments& arguments, Session& session);
ExitCode RunCompare(const Arguments& arguments, Session& session);
ExitCode RunPause(const Arguments& arguments, Session& session);
ExitCode RunResume(const Arguments& arguments, Session& session);
ExitCode RunCancel(const Arguments& arguments, Session& session);
ExitCode RunUpdate(const Arguments& arguments, Session& session);
ExitCode RunReport(const Arguments& arguments, Session& session);
ExitCode RunDelete(const Arguments& arguments, Session& session);
ExitCode RunSweep(const Arguments& arguments, Session& session);
ExitCode RunSweeps(const Arguments& arguments, Session& session);
ExitCode RunTrials(const Arguments& arguments, Session& session);
ExitCode RunSweepCancel(const Arguments& arguments, Session& session);
ExitCode RunWorkers(const Arguments& arguments, Session& session);
ExitCode RunDrainWorker(const Arguments& arguments, Session& session);
ExitCode RunPrecision(const Arguments& arguments, Session& session);
ExitCode RunCheckpoint(const Arguments& arguments, Session& session);
ExitCode RunCheckpoints(const Arguments& arguments, Session& session);
ExitCode RunArtifacts(const Arguments& arguments, Session& session);
ExitCode RunArtifactDownload(const Arguments& arguments, Session& session);
ExitCode RunCheckpointDownload(const Arguments& arguments, Session& session);
ExitCode RunCheckpointImport(const Arguments& arguments, Session& session);
ExitCode RunCheckpointDelete(const Arguments& arguments, Session& session);
ExitCode RunUpload(const Arguments& arguments, Session& session);
ExitCode RunDatasets(const Arguments& arguments, Session& session);
ExitCode RunDatasetDelete(const Arguments& arguments, Session& session);
ExitCode RunStats(const Arguments& arguments, Session& session);
ExitCode RunHistory(const Arguments& arguments, Session& session);
ExitCode RunWebhooks(const Arguments& arguments, Session& session);
ExitCode RunBackup(const Arguments& arguments, Session& session);
ExitCode RunInfo(const Arguments& arguments, Session& session);
// Prints the address of the dashboard, with a code that signs one browser in.
ExitCode RunOpen(const Arguments& arguments, Session& session);
ExitCode RunConfig(const Arguments& arguments, Session& session);
// Checks this machine, which should be the daemon's. Returns kFailure if there are problems.
ExitCode RunDoctor(const Arguments& arguments, Session& session);
// Makes no call. Does not return on success, because exec replaces the program by the script.
ExitCode RunCompile(const Arguments& arguments, Session& session);
// Makes no call: prints or writes a job file to begin with.
ExitCode RunQuickstart(const Arguments& arguments, Session& session);
// Makes no call: lists the contexts of this user, or changes the one in use.
ExitCode RunContext(const Arguments& arguments, Session& session);
// Makes no call, because the token file is on the daemon's machine.
ExitCode RunToken(const Arguments& arguments, Session& session);

// Returns "", or the error: a missing --file, or --watch with --validate-only.
std::string SubmissionFault(const Arguments& arguments);
// Reads the job of a command that submits a job file (--file, --set, --upload). Prints any error.
ExitCode ReadSubmittedJob(const Arguments& arguments, Session& session,
                          training::v1::JobSpec& spec);

// Watches the job until its final state and prints its events if `events`. Returns kOk if the job
// SUCCEEDED, kJobFailed if it FAILED, kFailure if it was cancelled or Ctrl-C ended the watch,
// kUnavailable if the daemon ended the watch, otherwise the result of ReportError.
ExitCode WatchJob(const std::string& job_id, bool events, Session& session);

// Prints `message` as JSON or YAML. For a stream, `compact` prints one JSON object per line.
// Returns false, printing nothing, if the output format is a table.
bool PrintMessage(const google::protobuf::Message& message, Session& session, bool compact = false);

}  // namespace genesis::cli
