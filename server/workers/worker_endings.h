// Functions that end workers and report their end. None of them changes a worker's phase.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "server/workers/worker.h"
#include "server/workers/worker_actions.h"

namespace genesis {

// Sends the signal to the worker. On another host, stops its job (SIGTERM) or closes its stream.
void SignalWorker(const std::string& id, Worker& worker, int signal, WorkerActions& actions);

// Returns the command that ends a rank's attempt. Requires an open link.
SendCommand AbandonCommand(const Worker& worker);

// Schedules the end of a worker if it makes no progress.
void EndIfHung(const std::string& id, Worker& worker, const HangSettings& hang, absl::Time now,
               WorkerActions& actions);

// Sends the next signal to a worker that is overdue or has not reattached in time. If `quietly`,
// logs nothing, because every worker is ending.
void EndIfOverdue(const std::string& id, Worker& worker, absl::Duration start_timeout,
                  absl::Time now, bool quietly, WorkerActions& actions);

// Builds the report of a worker that has ended. `expected` is true if every worker is ending.
TellGone ExitOf(const std::string& id, const Worker& worker, bool expected);

}  // namespace genesis
