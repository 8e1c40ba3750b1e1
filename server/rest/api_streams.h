#pragma once

#include <map>
#include <string>

#include "server/api/api_gate.h"
#include "server/api/api_parts.h"
#include "server/checkpoints/checkpoint_files.h"
#include "server/datasets/replay_store.h"
#include "server/http/http_message.h"
#include "server/jobs/job_manager.h"

namespace genesis {

// One admitted call of a streaming method over HTTP. Each function below ends the call once.
// `fields` come from the path.
struct ApiStreamCall {
  ApiCall call;
  const HttpRequest& request;
  const std::map<std::string, std::string>& fields;
  Respond respond;
  IoThreads* threads;  // For tasks that block on the store.
};

// Serve WatchJob, WatchJobs and WatchWeights: one line of JSON per message, or text/event-stream if
// Accept requests it.
void ServeWatch(const ApiStreamCall& call, const ApiParts& parts);
void ServeFleetWatch(const ApiStreamCall& call, const ApiParts& parts);
void ServeWeightsWatch(const ApiStreamCall& call, const ApiParts& parts);

// Serves DownloadCheckpoint: the file itself, with Content-Length, Range, and an ETag from its
// CRC-32C. Each piece is read when the previous one has been written.
void ServeDownload(const ApiStreamCall& call, JobManager* jobs, CheckpointFiles* files);

// Serves ImportCheckpoint. The request body is the file.
HttpUploadStart TakeImport(const ApiStreamCall& call, JobManager* jobs, CheckpointFiles* files);

// Serves AppendTrajectories. The request body has one line of JSON per message.
HttpUploadStart TakeAppend(const ApiStreamCall& call, ReplayStore* datasets, Metrics* metrics);

}  // namespace genesis
