#pragma once

#include <string>

#include "cli/arguments.h"
#include "cli/session.h"
#include "config/exit_code.h"
#include "genesis/training/v1/job.pb.h"
#include "google/protobuf/message.h"

namespace genesis::cli {

// Each command: checks what ParseArguments could not, makes its calls, prints the answer to
// session.out and faults to session.err. They share no state.
ExitCode RunTrain(const Arguments& arguments, Session& session);
ExitCode RunJobs(const Arguments& arguments, Session& session);
ExitCode RunJob(const Arguments& arguments, Session& session);
ExitCode RunWatch(const Arguments& arguments, Session& session);
ExitCode RunCancel(const Arguments& arguments, Session& session);
ExitCode RunCheckpoint(const Arguments& arguments, Session& session);
ExitCode RunCheckpoints(const Arguments& arguments, Session& session);
ExitCode RunStats(const Arguments& arguments, Session& session);
ExitCode RunInfo(const Arguments& arguments, Session& session);

// Follows the job until its final state. kOk when it SUCCEEDED, kJobFailed when it FAILED, kFailure
// when it was cancelled or Ctrl-C ended the watch, else as ReportError.
ExitCode WatchJob(const std::string& job_id, Session& session);

// Prints `message` as JSON or YAML; JSON of a stream is `compact`, one object per line. False when
// a table is asked for.
bool PrintMessage(const google::protobuf::Message& message, Session& session, bool compact = false);

}  // namespace genesis::cli
