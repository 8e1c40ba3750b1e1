// The decisions of WorkerTable, which WorkerPool carries out once the lock is released.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "genesis/training/v1/worker_service.pb.h"
#include "server/workers/worker_events.h"
#include "server/workers/worker_link.h"
#include "spdlog/common.h"

namespace genesis {

struct SendCommand {
  std::shared_ptr<WorkerLink> link;
  training::v1::AttachResponse command;
};

struct CloseStream {
  std::shared_ptr<WorkerLink> link;
};

// A signal to send to a process of this machine.
struct SignalProcess {
  std::string worker_id;
  int signal = 0;
};

struct WriteLog {
  spdlog::level::level_enum level = spdlog::level::info;
  std::string text;
};

// Calls of WorkerEvents, one struct for each method.
struct TellCapacity {};
struct TellBack {
  std::string job_id;
  int64_t claim = 0;
};
struct TellHung {
  std::string job_id;
  int64_t claim = 0;
  int rank = 0;
  std::string what;
};

// A removed worker. Its log is read, then kept or deleted, and its job is notified.
struct TellGone {
  WorkerExit exit;  // Without log_tail, which is read later.
  bool remote = false;
  bool clean = false;            // Its log can be deleted.
  bool failed_to_start = false;  // It ended before it was warm.
  bool unexpected = false;       // Logged as a warning.
};

using WorkerAction = std::variant<SendCommand, CloseStream, SignalProcess, WriteLog, TellCapacity,
                                  TellBack, TellHung, TellGone>;
// The actions, in the order in which they must be performed.
using WorkerActions = std::vector<WorkerAction>;

// A worker that is in the table and must be started.
struct SpawnWorker {
  std::string worker_id;
  std::string device;
};

}  // namespace genesis
