// Tests of who may see and change the jobs and checkpoints of whom, and of the quotas of owners.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "config/settings/token.h"
#include "server/auth/ownership.h"
#include "server/auth/request_rate.h"
#include "server/jobs/owner_quotas.h"
#include "server/rest/api_error.h"
#include "tests/server/daemon_fixture.h"

namespace genesis {
namespace {

using grpc::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kToken[] = "genesis_token_of_";

// A daemon with tokens of ann and bob (submitters), vic (viewer) and root (admin).
class OwnersTest : public DaemonTest {
 protected:
  OwnersTest() { Begin(false, {}); }

  void Begin(bool own_jobs_only, const QuotaSettings& quotas) {
    daemon_.reset();
    std::string lines;
    for (const auto& [name, role] : std::map<std::string, std::string>{
             {"ann", "submitter"}, {"bob", "submitter"}, {"vic", "viewer"}, {"root", "admin"}}) {
      absl::StrAppend(&lines, name, " ", role, " ",
                      FormatTokenHash(HashToken(absl::StrCat(kToken, name))), "\n");
    }
    temp_.Write("tokens", lines);
    chmod((temp_.path() + "/tokens").c_str(), 0600);
    LoadedSettings loaded = MakeSettings(temp_.path());
    loaded.settings.auth.tokens_file = temp_.path() + "/tokens";
    loaded.settings.auth.own_jobs_only = own_jobs_only;
    loaded.settings.quotas = quotas;
    StartDaemon(loaded);
  }

  // Calls a method with the token of `name`.
  template <typename Request, typename Response>
  grpc::Status Call(const std::string& name,
                    grpc::Status (TrainingService::Stub::*method)(grpc::ClientContext*,
                                                                  const Request&, Response*),
                    const Request& request, Response* response) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", absl::StrCat("Bearer ", kToken, name));
    return ((*stub_).*method)(&context, request, response);
  }
  grpc::Status Submit(const std::string& name, const std::string& id,
                      const std::string& owner = "") {
    TrainRequest request;
    *request.mutable_spec() = MakeSpec();
    request.mutable_spec()->mutable_scheduling()->set_owner(owner);
    request.set_job_id(id);
    return Call(name, &TrainingService::Stub::Train, request, &trained_);
  }
  StatusCode GetAs(const std::string& name, const std::string& id) {
    GetJobRequest request;
    request.set_job_id(id);
    GetJobResponse response;
    return Call(name, &TrainingService::Stub::GetJob, request, &response).error_code();
  }
  // Submits a job that reads the replay buffer.
  grpc::Status Train(const std::string& name, const std::string& id, const std::string& buffer) {
    TrainRequest request;
    *request.mutable_spec() = MakeSpec();
    request.mutable_spec()->mutable_dataset()->mutable_replay()->set_path(buffer);
    request.set_job_id(id);
    return Call(name, &TrainingService::Stub::Train, request, &trained_);
  }
  // Appends one batch of one transition.
  grpc::Status Append(const std::string& name, const std::string& dataset, int batch) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", absl::StrCat("Bearer ", kToken, name));
    AppendTrajectoriesRequest request;
    request.set_dataset(dataset);
    request.set_batch_id(absl::StrCat(batch));
    request.set_observation_size(1);
    request.set_action_size(1);
    request.add_observations(1);
    request.add_actions(1);
    request.add_next_observations(1);
    request.add_rewards(1);
    AppendTrajectoriesResponse response;
    const auto writer = stub_->AppendTrajectories(&context, &response);
    writer->Write(request);
    writer->WritesDone();
    return writer->Finish();
  }
  StatusCode DeleteAs(const std::string& name, const std::string& dataset) {
    DeleteDatasetRequest request;
    request.set_name(dataset);
    DeleteDatasetResponse response;
    grpc::Status status;
    do {  // The stream of an append may end after its response.
      status = Call(name, &TrainingService::Stub::DeleteDataset, request, &response);
    } while (absl::StrContains(status.error_message(), "is open; end it"));
    return status.error_code();
  }
  void AwaitEnd(const std::string& id) {
    GetJobRequest request;
    request.set_job_id(id);
    request.set_wait_seconds(300);
    GetJobResponse response;
    ASSERT_TRUE(Call("root", &TrainingService::Stub::GetJob, request, &response).ok());
    ASSERT_TRUE(IsFinal(response.job().state())) << response.job().ShortDebugString();
  }
  template <typename Request, typename Response>
  StatusCode ChangeAs(const std::string& name, const std::string& id,
                      grpc::Status (TrainingService::Stub::*method)(grpc::ClientContext*,
                                                                    const Request&, Response*)) {
    Request request;
    request.set_job_id(id);
    if constexpr (std::is_same_v<Request, UpdateJobRequest>) {
      request.mutable_update_mask()->add_paths("labels");
    }
    Response response;
    return Call(name, method, request, &response).error_code();
  }
};

TEST_F(OwnersTest, ASubmitterChangesItsOwnJobsAndAnAdminAll) {
  using Stub = TrainingService::Stub;
  const std::string names[] = {"vic", "bob", "ann", "root"};
  for (const std::string& name : names) {
    const std::string id = absl::StrCat("hold-", name);
    ASSERT_TRUE(Submit("ann", id).ok());
    const StatusCode expected =
        name == "vic" || name == "bob" ? StatusCode::PERMISSION_DENIED : StatusCode::OK;
    EXPECT_EQ(GetAs(name, id), StatusCode::OK) << "all see all";
    EXPECT_EQ(ChangeAs(name, id, &Stub::UpdateJob), expected) << name;
    EXPECT_EQ(ChangeAs(name, id, &Stub::PauseJob), expected) << name;
    const StatusCode resumed = ChangeAs(name, id, &Stub::ResumeJob);  // It may still be pausing.
    EXPECT_EQ(resumed == StatusCode::PERMISSION_DENIED, expected != StatusCode::OK) << name;
    if (expected == StatusCode::OK) {
      EXPECT_EQ(ChangeAs(name, id, &Stub::CancelJob), StatusCode::OK) << name;
    } else {
      EXPECT_EQ(ChangeAs(name, id, &Stub::CancelJob), expected) << name;
      EXPECT_EQ(ChangeAs(name, id, &Stub::Checkpoint), expected) << name;
      EXPECT_EQ(ChangeAs("root", id, &Stub::CancelJob), StatusCode::OK);
    }
    AwaitEnd(id);
    EXPECT_EQ(ChangeAs(name, id, &Stub::DeleteJob), expected) << name;
  }
}

TEST_F(OwnersTest, OnlyAnAdminSubmitsForAnother) {
  EXPECT_TRUE(Submit("ann", "ok-1", "ann").ok());
  const grpc::Status refused = Submit("ann", "ok-2", "bob\nroot");
  EXPECT_EQ(refused.error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(), HasSubstr("scheduling.owner is \"bob\\nroot\""));
  EXPECT_THAT(refused.error_message(), HasSubstr("accepted: \"ann\""));
  EXPECT_TRUE(Submit("root", "ok-3", "bob").ok());
  EXPECT_EQ(trained_.job().owner(), "bob");
}

TEST_F(OwnersTest, ADatasetBelongsToTheCallerThatCreatedIt) {
  using Stub = TrainingService::Stub;
  temp_.Write("datasets/old/readme", "from an operator");
  EXPECT_EQ(Append("ann", "old", 1).error_code(), StatusCode::PERMISSION_DENIED) << "the admins'";
  EXPECT_EQ(Append("ann", "uploads", 1).error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Append("vic", "arm", 1).error_code(), StatusCode::PERMISSION_DENIED);
  ASSERT_TRUE(Append("ann", "arm", 1).ok());
  const grpc::Status refused = Append("bob", "arm", 2);
  EXPECT_EQ(refused.error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(), HasSubstr("dataset \"arm\" belongs to \"ann\""));
  EXPECT_TRUE(Append("root", "arm", 3).ok());
  EXPECT_TRUE(Append("ann", "arm", 4).ok());
  ListDatasetsResponse listed;
  ASSERT_TRUE(Call("vic", &Stub::ListDatasets, ListDatasetsRequest(), &listed).ok());
  for (const DatasetInfo& dataset : listed.datasets()) {
    EXPECT_EQ(absl::StrJoin(dataset.owners(), ","), dataset.name() == "arm" ? "ann" : "");
  }
  EXPECT_EQ(DeleteAs("bob", "arm"), StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(DeleteAs("ann", "data.npz"), StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(DeleteAs("ann", "arm/00000000000000000000.segment"), StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(DeleteAs("bob", "absent"), StatusCode::NOT_FOUND);
  EXPECT_EQ(DeleteAs("ann", "arm"), StatusCode::OK);
  EXPECT_TRUE(Append("bob", "arm", 1).ok()) << "the name is free again";
}

TEST_F(OwnersTest, WithOwnJobsOnlyADatasetOfAnotherCannotBeTrainedOn) {
  Begin(true, {});
  using Stub = TrainingService::Stub;
  ASSERT_TRUE(Append("ann", "arm", 1).ok());
  ASSERT_TRUE(Train("ann", "hold-1", "arm").ok());
  const grpc::Status refused = Train("bob", "hold-2", "arm");
  EXPECT_EQ(refused.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.error_message(), HasSubstr("there is no such folder"));
  EXPECT_TRUE(Train("root", "hold-3", "arm").ok());
  ListDatasetsResponse listed;
  ASSERT_TRUE(Call("bob", &Stub::ListDatasets, ListDatasetsRequest(), &listed).ok());
  for (const DatasetInfo& dataset : listed.datasets()) EXPECT_NE(dataset.name(), "arm");
  EXPECT_EQ(DeleteAs("ann", "arm"), StatusCode::FAILED_PRECONDITION);
  for (const char* id : {"hold-1", "hold-3"}) {
    EXPECT_EQ(ChangeAs("root", id, &Stub::CancelJob), StatusCode::OK);
    AwaitEnd(id);
  }
  EXPECT_EQ(DeleteAs("ann", "arm"), StatusCode::OK);
}

TEST_F(OwnersTest, AnOwnerStoresAtMostItsQuota) {
  Begin(false, {.stored_bytes = 1000});
  grpc::Status status;
  int batches = 0;
  while (status.ok() && batches < 100) status = Append("ann", "arm", ++batches);
  EXPECT_GT(batches, 5);
  EXPECT_LT(batches, 20);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("quotas.stored_bytes is 1000"));
  EXPECT_TRUE(Append("ann", "arm", 1).ok()) << "a batch that is there already";
  EXPECT_TRUE(Append("bob", "leg", 1).ok());
  StartUploadRequest upload;
  upload.set_sha256(std::string(64, 'a'));
  upload.set_kind("npz");
  upload.set_size_bytes(999);
  StartUploadResponse unused;
  const grpc::Status file = Call("ann", &TrainingService::Stub::StartUpload, upload, &unused);
  EXPECT_EQ(file.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(file.error_message(), HasSubstr("no room for 999 bytes more"));
}

// The checkpoints of fake_worker have a size of their own.
TEST_F(OwnersTest, AJobOfAnOwnerBeyondItsQuotaIsRefusedAndCheckpointsCount) {
  Begin(false, {.stored_bytes = 1});
  ASSERT_TRUE(Submit("ann", "ok-1").ok());
  AwaitEnd("ok-1");
  const grpc::Status refused = Submit("ann", "ok-2");
  EXPECT_EQ(refused.error_code(), StatusCode::RESOURCE_EXHAUSTED) << refused.error_message();
  EXPECT_THAT(refused.error_message(), HasSubstr("no room for the checkpoints of a job"));
  EXPECT_TRUE(Submit("ann", "ok-1").ok()) << "the same call again";
  EXPECT_TRUE(Submit("bob", "ok-3").ok());
  DeleteJobRequest request;
  request.set_job_id("ok-1");
  request.set_delete_checkpoints(true);
  DeleteJobResponse response;
  ASSERT_TRUE(Call("ann", &TrainingService::Stub::DeleteJob, request, &response).ok());
  EXPECT_TRUE(Submit("ann", "ok-2").ok());
}

TEST_F(OwnersTest, AnIdOfAnotherOwnerIsTaken) {
  ASSERT_TRUE(Submit("ann", "ok-1").ok());
  EXPECT_TRUE(Submit("ann", "ok-1").ok()) << "the same call again";
  EXPECT_EQ(Submit("bob", "ok-1").error_code(), StatusCode::ALREADY_EXISTS);
}

TEST_F(OwnersTest, ACheckpointBelongsToTheOwnerOfItsJob) {
  ASSERT_TRUE(Submit("ann", "ok-1").ok());
  AwaitEnd("ok-1");
  DeleteCheckpointRequest request;
  request.set_checkpoint_id("ok-1-step-10");
  DeleteCheckpointResponse response;
  using Stub = TrainingService::Stub;
  const grpc::Status refused = Call("bob", &Stub::DeleteCheckpoint, request, &response);
  EXPECT_EQ(refused.error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(), HasSubstr("belongs to \"ann\""));
  EXPECT_TRUE(Call("ann", &Stub::DeleteCheckpoint, request, &response).ok());
}

TEST_F(OwnersTest, WithOwnJobsOnlyOthersDoNotExist) {
  Begin(true, {});
  using Stub = TrainingService::Stub;
  ASSERT_TRUE(Submit("ann", "ok-1").ok());
  AwaitEnd("ok-1");
  const std::map<std::string, StatusCode> expected = {{"ann", StatusCode::OK},
                                                      {"root", StatusCode::OK},
                                                      {"bob", StatusCode::NOT_FOUND},
                                                      {"vic", StatusCode::NOT_FOUND}};
  for (const auto& [name, code] : expected) {
    const bool sees = code == StatusCode::OK;
    EXPECT_EQ(GetAs(name, "ok-1"), code) << name;
    EXPECT_EQ(ChangeAs(name, "ok-1", &Stub::Stats), code) << name;
    EXPECT_EQ(ChangeAs(name, "ok-1", &Stub::ListArtifacts), code) << name;
    EXPECT_EQ(ChangeAs(name, "ok-1", &Stub::ListCheckpoints), code) << name;
    EXPECT_EQ(ChangeAs(name, "ok-1", &Stub::GetHistory), code) << name;
    GetCheckpointRequest checkpoint;
    checkpoint.set_checkpoint_id("ok-1-step-10");
    GetCheckpointResponse unused;
    EXPECT_EQ(Call(name, &Stub::GetCheckpoint, checkpoint, &unused).error_code(), code) << name;
    ListJobsResponse jobs;
    ASSERT_TRUE(Call(name, &Stub::ListJobs, ListJobsRequest(), &jobs).ok());
    EXPECT_EQ(jobs.jobs_size(), sees ? 1 : 0) << name;
    ListEventsResponse events;
    ASSERT_TRUE(Call(name, &Stub::ListEvents, ListEventsRequest(), &events).ok());
    EXPECT_EQ(events.events().empty(), !sees) << name;
    grpc::ClientContext context;
    context.AddMetadata("authorization", absl::StrCat("Bearer ", kToken, name));
    WatchJobRequest request;
    request.set_job_id("ok-1");
    const auto reader = stub_->WatchJob(&context, request);
    WatchJobResponse update;
    while (reader->Read(&update)) {
    }
    EXPECT_EQ(reader->Finish().error_code(), code) << name;
  }
  ListJobsRequest of_ann;
  of_ann.set_owner("ann");
  ListJobsResponse jobs;
  EXPECT_EQ(Call("bob", &Stub::ListJobs, of_ann, &jobs).error_code(),
            StatusCode::PERMISSION_DENIED);
  GetHistoryResponse rows;
  EXPECT_EQ(Call("bob", &Stub::GetHistory, GetHistoryRequest(), &rows).error_code(),
            StatusCode::INVALID_ARGUMENT);
  TrainRequest steals;
  *steals.mutable_spec() = MakeSpec();
  steals.mutable_spec()->set_start_from_checkpoint("ok-1-step-10");
  EXPECT_EQ(Call("bob", &Stub::Train, steals, &trained_).error_code(), StatusCode::NOT_FOUND);
}

TEST_F(OwnersTest, TheQueueQuotaIsThatOfEachOwner) {
  Begin(false, {.queued_jobs = 2, .slots = 1});
  ASSERT_TRUE(Submit("ann", "hold-1").ok());
  // One runs, two wait; the job that starts leaves the queue in its own time.
  grpc::Status status;
  int accepted = 1;
  for (int i = 2; i <= 5 && status.ok(); ++i) {
    status = Submit("ann", absl::StrCat("hold-", i));
    accepted += status.ok() ? 1 : 0;
  }
  EXPECT_GE(accepted, 2);
  EXPECT_LE(accepted, 3);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("quotas.queued_jobs is 2"));
  EXPECT_TRUE(Submit("bob", "hold-9").ok());
}

TEST(OwnerQuotasTest, AnOwnerHoldsAtMostItsSlots) {
  OwnerQuotas quotas({.slots = 3});
  const std::vector<WaitingJob> waiting = {{"a1", 0, "ann", 1, 1},
                                           {"a2", 0, "ann", 2, 2},
                                           {"b1", 0, "bob", 3, 4},
                                           {"b2", 0, "bob", 4, 3},
                                           {"a3", 0, "ann", 5, 1}};
  const std::vector<HoldingJob> holding = {{"h", 0, "ann", absl::Now(), std::nullopt, 1}};
  EXPECT_THAT(quotas.OverQuota({"a1", "a2", "b1", "b2", "a3"}, waiting, holding),
              ElementsAre("a2", "b1"));
  EXPECT_FALSE(quotas.CheckRanks(4).ok());
  EXPECT_TRUE(quotas.CheckRanks(3).ok());
  quotas.Set({});
  EXPECT_TRUE(quotas.OverQuota({"a1", "b1"}, waiting, holding).empty());
}

TEST(RequestRateTest, ACallerHasTenSecondsOfCallsAndItsRate) {
  RequestRate rate;
  absl::Time now = absl::UnixEpoch();
  const auto taken = [&](const std::string& caller, int most) {
    int count = 0;
    while (count < most && rate.Take(caller, now).ok()) ++count;
    return count;
  };
  EXPECT_EQ(taken("ann", 1000), 1000) << "no limit";
  rate.Set(5);
  EXPECT_EQ(taken("ann", 1000), 50);
  EXPECT_EQ(taken("bob", 1000), 50) << "each for itself";
  const absl::Status refused = rate.Take("ann", now);
  EXPECT_THAT(refused.message(), HasSubstr("quotas.requests_per_second"));
  const HttpResponse over_http = ErrorResponse(refused);
  EXPECT_EQ(over_http.status, 429);
  EXPECT_THAT(over_http.headers, testing::Contains(testing::Pair("Retry-After", "1")));
  EXPECT_THAT(over_http.body, HasSubstr("\"retry_delay\":\"1s\""));
  now += absl::Seconds(2);
  EXPECT_EQ(taken("ann", 1000), 10);
  now += absl::Hours(1);
  EXPECT_EQ(taken("ann", 1000), 50);
}

}  // namespace
}  // namespace genesis
