// Tests of the commands against a daemon in this process with fixed responses.
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/synchronization/notification.h"
#include "cli/commands/command_table.h"
#include "cli/session.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace genesis::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using namespace training::v1;  // NOLINT: the fake uses nearly every message of the API.

constexpr char kJob[] =
    "model: {world_model: {}}\ndataset: {trajectories: {path: a.npz}}\ntraining: {max_steps: 10}\n";

Job MakeJob(const std::string& id, JobState state, int64_t step = 0) {
  Job job;
  job.set_id(id);
  job.set_state(state);
  job.mutable_create_time()->set_seconds(1767323045);
  job.mutable_spec()->mutable_dataset()->mutable_trajectories()->set_path("a.npz");
  job.mutable_spec()->set_max_restarts(3);
  job.mutable_precision()->set_mode(PRECISION_MODE_FP32);
  job.mutable_precision()->set_reason("FP32: asked for by the job");
  job.mutable_precision()->set_device("cpu");
  job.mutable_progress()->set_total_steps(10);
  job.mutable_progress()->set_step(step);
  job.mutable_progress()->set_loss(0.5);
  job.mutable_progress()->set_loss_scale(1);
  return job;
}

// Responds with its fields and stores requests in its fields. Handlers run on gRPC's threads, but a
// test only sets fields before its command and reads them afterwards.
class FakeService : public TrainingService::Service {
 public:
  grpc::Status Train(grpc::ServerContext*, const TrainRequest* request,
                     TrainResponse* response) override {
    train = *request;
    *response->mutable_job() = job;
    return status;
  }
  grpc::Status GetJob(grpc::ServerContext*, const GetJobRequest* request,
                      GetJobResponse* response) override {
    asked_id = request->job_id();
    *response->mutable_job() = job;
    return status;
  }
  grpc::Status ListJobs(grpc::ServerContext*, const ListJobsRequest* request,
                        ListJobsResponse* response) override {
    list_jobs = *request;
    const bool first = request->page_token().empty();
    *response->add_jobs() = first ? job : second_job;
    if (first && second_job.id() != "") response->set_next_page_token("2");
    if (first && job.id().empty()) response->clear_jobs();
    return status;
  }
  grpc::Status WatchJob(grpc::ServerContext* context, const WatchJobRequest* request,
                        grpc::ServerWriter<WatchJobResponse>* writer) override {
    asked_id = request->job_id();
    asked_cursor = request->cursor();
    for (const Job& update : updates) {
      WatchJobResponse response;
      *response.mutable_job() = update;
      *response.mutable_events() = {events.begin(), events.end()};
      writer->Write(response);
    }
    if (on_updates_sent != nullptr) on_updates_sent();
    if (hold_watch) cancelled.WaitForNotificationWithTimeout(absl::Seconds(60));
    return context->IsCancelled() ? grpc::Status::CANCELLED : status;
  }
  grpc::Status CancelJob(grpc::ServerContext*, const CancelJobRequest* request,
                         CancelJobResponse* response) override {
    asked_id = request->job_id();
    *response->mutable_job() = job;
    return status;
  }
  grpc::Status Checkpoint(grpc::ServerContext*, const CheckpointRequest* request,
                          CheckpointResponse* response) override {
    asked_id = request->job_id();
    *response->mutable_checkpoint() = checkpoint;
    return status;
  }
  grpc::Status ListCheckpoints(grpc::ServerContext*, const ListCheckpointsRequest* request,
                               ListCheckpointsResponse* response) override {
    asked_id = request->job_id();
    if (!checkpoint.id().empty()) *response->add_checkpoints() = checkpoint;
    return status;
  }
  grpc::Status BackupStore(grpc::ServerContext*, const BackupStoreRequest*,
                           BackupStoreResponse* response) override {
    *response = backup;
    return status;
  }
  grpc::Status ListWebhookDeliveries(grpc::ServerContext*, const ListWebhookDeliveriesRequest*,
                                     ListWebhookDeliveriesResponse* response) override {
    if (!delivery.endpoint().empty()) *response->add_deliveries() = delivery;
    return status;
  }
  grpc::Status Stats(grpc::ServerContext*, const StatsRequest*, StatsResponse* response) override {
    *response = stats;
    return status;
  }
  grpc::Status GetServerInfo(grpc::ServerContext*, const GetServerInfoRequest*,
                             GetServerInfoResponse* response) override {
    *response = info;
    return status;
  }

  grpc::Status status;
  Job job;
  Job second_job;
  std::vector<Job> updates;
  std::vector<JobEvent> events;  // Sent in every update.
  int64_t asked_cursor = 0;
  BackupStoreResponse backup;
  WebhookDelivery delivery;
  bool hold_watch = false;
  std::function<void()> on_updates_sent;
  absl::Notification cancelled;
  training::v1::Checkpoint checkpoint;
  StatsResponse stats;
  GetServerInfoResponse info;
  TrainRequest train;
  ListJobsRequest list_jobs;
  std::string asked_id;
};

class CommandsTest : public testing::Test {
 protected:
  CommandsTest()
      : file_(testing::TempDir() + "/genesis_cli_" + std::to_string(getpid()) + ".yaml") {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&fake_);
    server_ = builder.BuildAndStart();
    std::ofstream(file_) << kJob;
  }
  ~CommandsTest() override {
    if (server_ != nullptr) server_->Shutdown();
    std::filesystem::remove(file_);
  }

  ExitCode Run(std::vector<std::string> args) {
    const std::string address = "127.0.0.1:" + std::to_string(port_);
    args.push_back("--server=" + address);
    const Arguments arguments =
        ParseArguments(args, [](const std::string&) { return std::nullopt; });
    EXPECT_THAT(arguments.errors, testing::IsEmpty());
    grpc::ChannelArguments options;
    options.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    const auto service = TrainingService::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), options));
    out_.str("");
    err_.str("");
    Session session{.service = *service,
                    .server = "the-daemon:1",
                    .output = arguments.output,
                    .in = in_,
                    .out = out_,
                    .err = err_,
                    .terminal = false,
                    .width = 80,
                    .now = [] { return absl::UnixEpoch(); },
                    .interrupt = interrupt_};
    return FindCommand(arguments.command)->run(arguments, session);
  }

  FakeService fake_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  const std::string file_;
  std::istringstream in_;
  std::ostringstream out_;
  std::ostringstream err_;
  Interrupt interrupt_;
};

TEST_F(CommandsTest, TrainSubmitsTheJobFile) {
  fake_.job = MakeJob("walk-1", JOB_STATE_QUEUED);
  fake_.job.set_queue_position(2);
  EXPECT_EQ(Run({"train", "-f", file_, "--job-id", "walk-1"}), ExitCode::kOk);
  EXPECT_EQ(fake_.train.spec().training().max_steps(), 10);
  EXPECT_EQ(fake_.train.job_id(), "walk-1");
  EXPECT_FALSE(fake_.train.validate_only());
  EXPECT_EQ(out_.str(), "job walk-1 QUEUED (place 2)\nprecision FP32: asked for by the job\n");
}

TEST_F(CommandsTest, TrainReadsStandardInput) {
  in_.str(kJob);
  EXPECT_EQ(Run({"train", "-f", "-"}), ExitCode::kOk);
  EXPECT_EQ(fake_.train.spec().dataset().trajectories().path(), "a.npz");
  in_.str("model: 1");
  EXPECT_EQ(Run({"train", "-f", "-"}), ExitCode::kUsage);
  EXPECT_THAT(err_.str(), HasSubstr("standard input:1:8: model is \"1\""));
}

TEST_F(CommandsTest, TrainValidatesWithoutSubmitting) {
  fake_.job = MakeJob("", JOB_STATE_UNSPECIFIED);
  EXPECT_EQ(Run({"train", "-f", file_, "--validate-only"}), ExitCode::kOk);
  EXPECT_TRUE(fake_.train.validate_only());
  EXPECT_EQ(out_.str(),
            "the job is valid and was not submitted\nprecision FP32: asked for by the job\n");
}

TEST_F(CommandsTest, TrainRefusesABadJobFileWithEveryFault) {
  std::ofstream(file_) << "model: {world_model: {}}\ntraining: {max_steps: many}\n";
  EXPECT_EQ(Run({"train", "-f", file_}), ExitCode::kUsage);
  EXPECT_EQ(err_.str(),
            file_ + ":2:23: training.max_steps is \"many\"; accepted: a whole number\n" + file_ +
                ": dataset: required; give it one kind of dataset: trajectories, replay, tokens, "
                "arrays or synthetic\n");
  EXPECT_EQ(Run({"train", "-f", "/nowhere.yaml"}), ExitCode::kUsage);
  EXPECT_EQ(err_.str(), "/nowhere.yaml: no such file; check the path\n");
}

TEST_F(CommandsTest, TrainRefusesConflictingOrMissingOptions) {
  EXPECT_EQ(Run({"train"}), ExitCode::kUsage);
  EXPECT_EQ(err_.str(), "genesisctl: train: needs a job file; write genesisctl train -f FILE\n");
  EXPECT_EQ(Run({"train", "-f", file_, "--watch", "--validate-only"}), ExitCode::kUsage);
  EXPECT_THAT(err_.str(), HasSubstr("--watch conflicts with --validate-only"));
  EXPECT_EQ(Run({"train", "-f", file_, "--job-id=A"}), ExitCode::kUsage);
  EXPECT_THAT(err_.str(), HasSubstr("job_id is \"A\""));
}

TEST_F(CommandsTest, TrainWatchesUntilTheJobSucceeds) {
  fake_.job = MakeJob("walk-1", JOB_STATE_QUEUED);
  fake_.updates = {MakeJob("walk-1", JOB_STATE_RUNNING, 5),
                   MakeJob("walk-1", JOB_STATE_SUCCEEDED, 10)};
  fake_.updates[1].set_state_reason("all steps were made");
  fake_.updates[1].mutable_latest_checkpoint()->set_path("/c/a.pt");
  EXPECT_EQ(Run({"train", "-f", file_, "--watch"}), ExitCode::kOk);
  EXPECT_EQ(fake_.asked_id, "walk-1");
  EXPECT_THAT(out_.str(), HasSubstr("job walk-1 QUEUED\n"));
  EXPECT_THAT(out_.str(), HasSubstr("walk-1  RUNNING  [#"));
  EXPECT_THAT(out_.str(), HasSubstr("job walk-1 SUCCEEDED: all steps were made\n"));
  EXPECT_THAT(out_.str(), HasSubstr("checkpoint: /c/a.pt"));
}

TEST_F(CommandsTest, WatchTellsAFailedJobByItsExitCode) {
  fake_.updates = {MakeJob("walk-1", JOB_STATE_FAILED, 5)};
  fake_.updates[0].mutable_failure()->set_cause(FAILURE_CAUSE_NON_FINITE);
  fake_.updates[0].mutable_failure()->set_message("the loss is NaN");
  EXPECT_EQ(Run({"watch", "walk-1"}), ExitCode::kJobFailed);
  EXPECT_THAT(out_.str(), HasSubstr("cause: NON_FINITE\n  the loss is NaN\n"));
  fake_.updates = {MakeJob("walk-1", JOB_STATE_CANCELLED, 5)};
  EXPECT_EQ(Run({"watch", "walk-1"}), ExitCode::kFailure);
}

TEST_F(CommandsTest, WatchPrintsOneJsonObjectPerLine) {
  fake_.updates = {MakeJob("walk-1", JOB_STATE_RUNNING, 5),
                   MakeJob("walk-1", JOB_STATE_SUCCEEDED, 10)};
  EXPECT_EQ(Run({"watch", "walk-1", "--output=json"}), ExitCode::kOk);
  const std::string text = out_.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_THAT(text, testing::StartsWith("{\"id\":\"walk-1\""));
  EXPECT_THAT(text, HasSubstr("\"state\":\"JOB_STATE_SUCCEEDED\""));
  EXPECT_EQ(Run({"watch", "walk-1", "--output=yaml"}), ExitCode::kOk);
  EXPECT_THAT(out_.str(), testing::StartsWith("---\nid: \"walk-1\"\n"));
}

TEST_F(CommandsTest, WatchPrintsEventsOnlyWhenAskedTo) {
  fake_.updates = {MakeJob("walk-1", JOB_STATE_SUCCEEDED, 10)};
  JobEvent event;
  event.mutable_time()->set_seconds(1767323045);
  event.set_log_line("epoch 1\x1b[2J");
  fake_.events.push_back(event);
  event.mutable_state_changed()->set_from(JOB_STATE_RUNNING);
  event.mutable_state_changed()->set_to(JOB_STATE_SUCCEEDED);
  event.mutable_state_changed()->set_reason("training complete");
  fake_.events.push_back(event);
  event.mutable_checkpoint_written()->set_id("walk-1-step-10");
  event.mutable_checkpoint_written()->set_step(10);
  event.mutable_checkpoint_written()->set_size_bytes(1536);
  fake_.events.push_back(event);
  EXPECT_EQ(Run({"watch", "walk-1"}), ExitCode::kOk);
  EXPECT_EQ(fake_.asked_cursor, -1);
  EXPECT_THAT(out_.str(), Not(HasSubstr("epoch 1")));
  EXPECT_EQ(Run({"watch", "walk-1", "--events"}), ExitCode::kOk);
  EXPECT_EQ(fake_.asked_cursor, 0);
  EXPECT_THAT(out_.str(), HasSubstr("2026-01-02 03:04:05Z  log: epoch 1?[2J\n"));
  EXPECT_THAT(out_.str(),
              HasSubstr("2026-01-02 03:04:05Z  RUNNING -> SUCCEEDED: training complete\n"));
  EXPECT_THAT(out_.str(), HasSubstr("checkpoint walk-1-step-10 at step 10, 1.5 KiB\n"));
  EXPECT_EQ(Run({"watch", "walk-1", "--events", "--output=json"}), ExitCode::kOk);
  EXPECT_THAT(out_.str(), HasSubstr("\"events\":[{"));
}

TEST_F(CommandsTest, WatchPrintsAJobThatHasNotChangedOnce) {
  fake_.updates = {MakeJob("walk-1", JOB_STATE_RUNNING, 5), MakeJob("walk-1", JOB_STATE_RUNNING, 5),
                   MakeJob("walk-1", JOB_STATE_SUCCEEDED, 10)};
  EXPECT_EQ(Run({"watch", "walk-1", "--output=json"}), ExitCode::kOk);
  const std::string text = out_.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST_F(CommandsTest, WatchEndsOnCtrlCAndSaysThatTheJobGoesOn) {
  fake_.updates = {MakeJob("walk-1", JOB_STATE_RUNNING, 5)};
  fake_.hold_watch = true;
  fake_.on_updates_sent = [this] {
    interrupt_.Fire();
    fake_.cancelled.Notify();
  };
  EXPECT_EQ(Run({"watch", "walk-1"}), ExitCode::kFailure);
  EXPECT_EQ(err_.str(),
            "genesisctl: the watch ended; job walk-1 goes on: see genesisctl job walk-1, or end it "
            "with genesisctl cancel walk-1\n");
}

TEST_F(CommandsTest, WatchSaysWhenTheDaemonEndsItEarly) {
  fake_.updates = {MakeJob("walk-1", JOB_STATE_RUNNING, 5)};
  fake_.status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the daemon drains");
  EXPECT_EQ(Run({"watch", "walk-1"}), ExitCode::kUnavailable);
  EXPECT_EQ(err_.str(),
            "genesisctl: the daemon ended the watch before the job's end; the job may go on: "
            "repeat genesisctl watch walk-1\n"
            "genesisctl: UNAVAILABLE: the daemon drains\n");
}

TEST_F(CommandsTest, JobsListsAllPagesOfTheAskedStates) {
  fake_.job = MakeJob("walk-2", JOB_STATE_RUNNING, 5);
  fake_.second_job = MakeJob("walk-1", JOB_STATE_QUEUED);
  EXPECT_EQ(Run({"jobs", "--state=running", "--state", "QUEUED"}), ExitCode::kOk);
  EXPECT_EQ(fake_.list_jobs.states_size(), 2);
  EXPECT_EQ(fake_.list_jobs.states(0), JOB_STATE_RUNNING);
  EXPECT_EQ(out_.str(),
            "JOB     STATE    STEP  LOSS  SAMPLES/S  PRECISION  CREATED\n"
            "walk-2  RUNNING  5/10   0.5          0  FP32       2026-01-02 03:04:05Z\n"
            "walk-1  QUEUED   0/10     -          -  FP32       2026-01-02 03:04:05Z\n");
  EXPECT_EQ(Run({"jobs", "--output=json"}), ExitCode::kOk);
  EXPECT_THAT(out_.str(), HasSubstr("\"id\": \"walk-1\""));
  EXPECT_THAT(out_.str(), HasSubstr("\"next_page_token\": \"\""));
}

TEST_F(CommandsTest, JobsPassesItsFiltersOn) {
  EXPECT_EQ(Run({"jobs", "--owner=ann", "--label=team=red=ish", "--label", "gpu",
                 "--id-prefix=walk", "--order=priority"}),
            ExitCode::kOk);
  EXPECT_EQ(fake_.list_jobs.owner(), "ann");
  EXPECT_EQ(fake_.list_jobs.labels().at("team"), "red=ish");
  EXPECT_EQ(fake_.list_jobs.labels().at("gpu"), "");
  EXPECT_EQ(fake_.list_jobs.id_prefix(), "walk");
  EXPECT_EQ(fake_.list_jobs.order(), JOB_ORDER_PRIORITY);
  EXPECT_EQ(Run({"jobs", "--order=size"}), ExitCode::kUsage);
  EXPECT_EQ(err_.str(), "genesisctl: --order is \"size\"; accepted: newest, oldest or priority\n");
  EXPECT_EQ(Run({"jobs", "--label==red"}), ExitCode::kUsage);
  EXPECT_EQ(err_.str(), "genesisctl: --label is \"=red\"; accepted: KEY or KEY=VALUE\n");
}

TEST_F(CommandsTest, BackupSaysWhereTheCopyIs) {
  fake_.backup.set_path("/d/backups/jobs-1.db");
  fake_.backup.set_size_bytes(1536);
  EXPECT_EQ(Run({"backup"}), ExitCode::kOk);
  EXPECT_EQ(out_.str(), "backup /d/backups/jobs-1.db (1.5 KiB)\n");
}

TEST_F(CommandsTest, WebhooksShowsWhatEndpointsHaveNotReceived) {
  EXPECT_EQ(Run({"webhooks"}), ExitCode::kOk);
  EXPECT_EQ(out_.str(), "every endpoint has received its events\n");
  fake_.delivery.set_endpoint("chat");
  fake_.delivery.set_webhook_id("evt_7");
  fake_.delivery.set_type("job.failed");
  fake_.delivery.set_job_id("a");
  fake_.delivery.set_state(WEBHOOK_DELIVERY_STATE_PENDING);
  fake_.delivery.set_attempts(2);
  fake_.delivery.mutable_next_attempt_time()->set_seconds(1767323045);
  fake_.delivery.set_last_error("HTTP 503");
  EXPECT_EQ(Run({"webhooks"}), ExitCode::kOk);
  EXPECT_EQ(
      out_.str(),
      "ENDPOINT  EVENT  TYPE        JOB  STATE    ATTEMPTS  NEXT                  LAST ERROR\n"
      "chat      evt_7  job.failed  a    PENDING         2  2026-01-02 03:04:05Z  HTTP 503\n");
}

TEST_F(CommandsTest, JobsSaysWhenThereAreNone) {
  EXPECT_EQ(Run({"jobs"}), ExitCode::kOk);
  EXPECT_EQ(out_.str(), "no jobs\n");
  EXPECT_EQ(Run({"jobs", "--state=RUNING"}), ExitCode::kUsage);
  EXPECT_EQ(err_.str(),
            "genesisctl: --state is \"RUNING\"; accepted: QUEUED, STARTING, RUNNING, PAUSING, "
            "PAUSED, RECOVERING, CANCELLING, SUCCEEDED, FAILED, CANCELLED\n");
}

TEST_F(CommandsTest, JobShowsOneJob) {
  fake_.job = MakeJob("walk-1", JOB_STATE_RUNNING, 5);
  fake_.job.set_state_reason("a worker trains it");
  EXPECT_EQ(Run({"job", "walk-1"}), ExitCode::kOk);
  EXPECT_EQ(fake_.asked_id, "walk-1");
  EXPECT_THAT(out_.str(), HasSubstr("state:          RUNNING: a worker trains it\n"));
  EXPECT_THAT(out_.str(), HasSubstr("steps:          5/10\n"));
  EXPECT_THAT(out_.str(), HasSubstr("restarts:       0 of 3\n"));
  EXPECT_EQ(Run({"job", "walk-1", "-o", "yaml"}), ExitCode::kOk);
  EXPECT_THAT(out_.str(), testing::StartsWith("id: \"walk-1\"\n"));
  EXPECT_EQ(Run({"job", "../x"}), ExitCode::kUsage);
  EXPECT_THAT(err_.str(), HasSubstr("job_id is \"../x\""));
}

TEST_F(CommandsTest, CancelPrintsTheState) {
  fake_.job = MakeJob("walk-1", JOB_STATE_CANCELLING, 5);
  EXPECT_EQ(Run({"cancel", "walk-1"}), ExitCode::kOk);
  EXPECT_EQ(out_.str(), "job walk-1 CANCELLING\n");
}

TEST_F(CommandsTest, CheckpointPrintsWhereItIs) {
  fake_.checkpoint.set_id("walk-1-step-5");
  fake_.checkpoint.set_job_id("walk-1");
  fake_.checkpoint.set_step(5);
  fake_.checkpoint.set_path("/c/walk-1-step-5.pt");
  fake_.checkpoint.set_size_bytes(2048);
  fake_.checkpoint.set_loss(0.25);
  fake_.checkpoint.set_mode(PRECISION_MODE_MIXED_BF16);
  fake_.checkpoint.mutable_create_time()->set_seconds(1767323045);
  EXPECT_EQ(Run({"checkpoint", "walk-1"}), ExitCode::kOk);
  EXPECT_EQ(out_.str(), "checkpoint walk-1-step-5 of step 5 (2.0 KiB): /c/walk-1-step-5.pt\n");
  EXPECT_EQ(Run({"checkpoints", "walk-1"}), ExitCode::kOk);
  EXPECT_EQ(fake_.asked_id, "walk-1");
  EXPECT_EQ(out_.str(),
            "ID             STEP  LOSS  PRECISION      SIZE  CREATED               PATH\n"
            "walk-1-step-5     5  0.25  MIXED_BF16  2.0 KiB  2026-01-02 03:04:05Z  "
            "/c/walk-1-step-5.pt\n");
  fake_.checkpoint.Clear();
  EXPECT_EQ(Run({"checkpoints"}), ExitCode::kOk);
  EXPECT_EQ(out_.str(), "no checkpoints\n");
}

TEST_F(CommandsTest, StatsAndInfoAreLabelled) {
  fake_.stats.set_overflow_rate(0.125);
  fake_.stats.set_slots(1);
  (*fake_.stats.mutable_jobs_by_state())["RUNNING"] = 1;
  (*fake_.stats.mutable_jobs_by_state())["QUEUED"] = 2;
  EXPECT_EQ(Run({"stats"}), ExitCode::kOk);
  EXPECT_THAT(out_.str(), HasSubstr("reduced precision:  not in use\n"));
  EXPECT_THAT(out_.str(), HasSubstr("overflow rate:      12.50%\n"));
  EXPECT_THAT(out_.str(), HasSubstr("jobs:               QUEUED 2, RUNNING 1\n"));
  EXPECT_THAT(out_.str(), HasSubstr("workers:            0 busy, 0 warm, 1 slot\n"));
  EXPECT_EQ(Run({"stats", "--output=json"}), ExitCode::kOk);
  EXPECT_THAT(out_.str(), HasSubstr("\"fp16_enabled_runtime\": false"));
  fake_.info.set_version("0.1.0");
  fake_.info.set_ready(true);
  fake_.info.set_reduced_precision_reason("disabled by ENABLE_FP16_TRAINING=false");
  EXPECT_EQ(Run({"info"}), ExitCode::kOk);
  EXPECT_THAT(out_.str(), HasSubstr("version:            0.1.0\n"));
  EXPECT_THAT(out_.str(), HasSubstr("ready:              yes\n"));
}

TEST_F(CommandsTest, EveryCallReportsTheCodeAndMessageOfAnError) {
  fake_.status = grpc::Status(grpc::StatusCode::NOT_FOUND, "job walk-1 does not exist");
  for (const std::vector<std::string>& args : {std::vector<std::string>{"job", "walk-1"},
                                               {"watch", "walk-1"},
                                               {"cancel", "walk-1"},
                                               {"checkpoint", "walk-1"},
                                               {"checkpoints", "walk-1"},
                                               {"jobs"},
                                               {"stats"},
                                               {"info"},
                                               {"train", "-f", file_}}) {
    EXPECT_EQ(Run(args), ExitCode::kFailure) << args[0];
    EXPECT_EQ(err_.str(), "genesisctl: NOT_FOUND: job walk-1 does not exist\n") << args[0];
    EXPECT_EQ(out_.str(), "") << args[0];
  }
}

TEST_F(CommandsTest, FaultsOfFieldsAreListedLineByLine) {
  fake_.status = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "a is 1; accepted: 2\nb\x1b");
  EXPECT_EQ(Run({"train", "-f", file_}), ExitCode::kFailure);
  EXPECT_EQ(err_.str(), "genesisctl: INVALID_ARGUMENT:\n  a is 1; accepted: 2\n  b?\n");
}

TEST_F(CommandsTest, ADrainingOrSlowDaemonIsUnavailable) {
  fake_.status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the daemon drains");
  EXPECT_EQ(Run({"train", "-f", file_}), ExitCode::kUnavailable);
  EXPECT_EQ(err_.str(), "genesisctl: UNAVAILABLE: the daemon drains\n");
  fake_.status = grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "late");
  EXPECT_EQ(Run({"stats"}), ExitCode::kUnavailable);
  EXPECT_THAT(err_.str(), HasSubstr("the daemon at the-daemon:1 did not answer in time"));
}

TEST_F(CommandsTest, AMissingDaemonIsNamedWithWhatToDo) {
  server_->Shutdown();
  server_.reset();
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"info"}, {"watch", "walk-1"}, {"train", "-f", file_, "--watch"}}) {
    EXPECT_EQ(Run(args), ExitCode::kUnavailable);
    EXPECT_EQ(err_.str(),
              "genesisctl: no daemon answers at the-daemon:1 (connection refused); start one with "
              "genesisd, or name another with --server\n");
  }
}

}  // namespace
}  // namespace genesis::cli
