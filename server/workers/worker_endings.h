// How one worker is ended, and what is told of it then. None of these changes its phase.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "server/workers/worker.h"
#include "server/workers/worker_actions.h"

namespace genesis {

// Asks the worker to end (SIGTERM), or ends it (SIGKILL); on another host, as far as that can be
// done from here.
void SignalWorker(const std::string& id, Worker& worker, int signal, WorkerActions& actions);

// Tells a rank that its attempt is over. Requires its link.
SendCommand AbandonCommand(const Worker& worker);

// Makes a worker due that makes no progress.
void EndIfHung(const std::string& id, Worker& worker, const HangSettings& hang, absl::Time now,
               WorkerActions& actions);

// Sends the next signal to a worker that is due, or is not back in time. `quietly`: not logged, for
// every worker is.
void EndIfOverdue(const std::string& id, Worker& worker, absl::Duration start_timeout,
                  absl::Time now, bool quietly, WorkerActions& actions);

// Tells of a worker whose process has ended. `expected`: every worker is to end.
TellGone ExitOf(const std::string& id, const Worker& worker, bool expected);

}  // namespace genesis
