// How a worker is ended and reported. No function here changes its phase.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "server/workers/worker.h"
#include "server/workers/worker_actions.h"

namespace genesis {

// Sends the worker SIGTERM or SIGKILL; on another host, as far as possible from here.
void SignalWorker(const std::string& id, Worker& worker, int signal, WorkerActions& actions);

// Returns the command that ends the attempt of a rank. Requires its link.
SendCommand AbandonCommand(const Worker& worker);

// Schedules the end of a worker that makes no progress.
void EndIfHung(const std::string& id, Worker& worker, const HangSettings& hang, absl::Time now,
               WorkerActions& actions);

// Sends the next signal to a worker that is overdue or has not reattached in time. `quietly`: not
// logged, because every worker is ending.
void EndIfOverdue(const std::string& id, Worker& worker, absl::Duration start_timeout,
                  absl::Time now, bool quietly, WorkerActions& actions);

// Builds the report of a worker whose process has ended. `expected`: every worker is ending.
TellGone ExitOf(const std::string& id, const Worker& worker, bool expected);

}  // namespace genesis
