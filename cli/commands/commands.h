#pragma once

#include <string>

#include "base/exit_code.h"
#include "cli/commands/arguments.h"
#include "cli/session.h"
#include "genesis/training/v1/job.pb.h"
#include "google/protobuf/message.h"

namespace genesis::cli {

// Each command: checks what ParseArguments could not, makes its calls, prints the answer to
// session.out and faults to session.err. They share no state.
ExitCode RunTrain(const Arguments& arguments, Session& session);
ExitCode RunJobs(const Arguments& arguments, Session& session);
ExitCode RunJob(const Arguments& arguments, Session& session);
ExitCode RunWatch(const Arguments& arguments, Session& session);
ExitCode RunPause(const Arguments& arguments, Session& session);
ExitCode RunResume(const Arguments& arguments, Session& session);
ExitCode RunCancel(const Arguments& arguments, Session& session);
ExitCode RunUpdate(const Arguments& arguments, Session& session);
ExitCode RunDelete(const Arguments& arguments, Session& session);
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
ExitCode RunBackup(const Arguments& arguments, Session& session);
ExitCode RunInfo(const Arguments& arguments, Session& session);
ExitCode RunConfig(const Arguments& arguments, Session& session);
// Looks at the machine it runs on, which should be the daemon's. kFailure when there are problems.
ExitCode RunDoctor(const Arguments& arguments, Session& session);
// Makes no call, and on success does not return: the program becomes the script that compiles.
ExitCode RunCompile(const Arguments& arguments, Session& session);
// Makes no call: the file that a token is written to is on the daemon's machine.
ExitCode RunToken(const Arguments& arguments, Session& session);

// Follows the job until its final state, with its events when asked to. kOk when it SUCCEEDED,
// kJobFailed when it FAILED, kFailure when it was cancelled or Ctrl-C ended the watch, else as
// ReportError.
ExitCode WatchJob(const std::string& job_id, bool events, Session& session);

// Prints `message` as JSON or YAML; JSON of a stream is `compact`, one object per line. False when
// a table is asked for.
bool PrintMessage(const google::protobuf::Message& message, Session& session, bool compact = false);

}  // namespace genesis::cli
