#pragma once

#include <map>
#include <string>

#include "server/api/api_gate.h"
#include "server/checkpoints/checkpoint_files.h"
#include "server/datasets/replay_store.h"
#include "server/http/http_message.h"
#include "server/jobs/job_manager.h"

namespace genesis {

// One admitted call of a streaming method over HTTP. Each function ends the call once. `fields` are
// those of the path.
struct ApiStreamCall {
  ApiCall call;
  const HttpRequest& request;
  const std::map<std::string, std::string>& fields;
  Respond respond;
  IoThreads* threads;  // Run tasks that block on the store.
};

// WatchJob: a line of JSON per message, or text/event-stream if Accept requests it.
void ServeWatch(const ApiStreamCall& call, JobManager* jobs);

// DownloadCheckpoint: the file itself, with Content-Length, ETag from its CRC-32C, and Range. A
// piece is read when the previous one is written.
void ServeDownload(const ApiStreamCall& call, JobManager* jobs, CheckpointFiles* files);

// ImportCheckpoint: the body is the file.
HttpUploadStart TakeImport(const ApiStreamCall& call, JobManager* jobs, CheckpointFiles* files);

// AppendTrajectories: a line of JSON per message.
HttpUploadStart TakeAppend(const ApiStreamCall& call, ReplayStore* datasets, Metrics* metrics);

}  // namespace genesis
