// Tests of ReportMetrics by the rules of jobs: what is stored, shown and sent to workers.
#include <cmath>
#include <limits>
#include <thread>

#include "absl/strings/str_format.h"
#include "tests/server/job_rules_fixture.h"

namespace genesis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

using Values = std::map<std::string, double>;

class MetricReportsTest : public JobRulesTest {
 protected:
  static ReportMetricsRequest Report(int64_t step, const Values& values) {
    ReportMetricsRequest request;
    request.set_job_id("job");
    request.set_step(step);
    request.mutable_values()->insert(values.begin(), values.end());
    return request;
  }
  absl::Status Send(const ReportMetricsRequest& request, const Caller& caller = {}) {
    return Await<Job>([&](const auto& callback) {
             manager_->requests().ReportMetrics(caller, request, callback);
           })
        .status();
  }
  absl::Status Send(int64_t step, const Values& values) { return Send(Report(step, values)); }

  // Trains a job that follows the largest return.
  void RunFollower(int32_t patience = 0, std::optional<double> target = std::nullopt) {
    TrainRequest request = Request("job");
    EvaluationSpec& evaluation = *request.mutable_spec()->mutable_evaluation();
    evaluation.set_metric("return");
    evaluation.set_mode(METRIC_MODE_MAX);
    evaluation.set_patience(patience);
    if (target) evaluation.set_target(*target);
    ASSERT_TRUE(TrainAs(request).ok());
    Started("job");
  }
  void WriteCheckpoint(int64_t step, uint32_t crc32c = 1) {
    AttachRequest event = Event("job");
    Checkpoint& checkpoint = *event.mutable_checkpoint_written()->mutable_checkpoint();
    checkpoint.set_job_id("job");
    checkpoint.set_id(CheckpointId(step));
    checkpoint.set_path(absl::StrCat(temp_.path(), "/", checkpoint.id(), ".pt"));
    checkpoint.set_step(step);
    checkpoint.set_crc32c(crc32c);
    // A worker cannot report for callers.
    (*checkpoint.mutable_reported_metrics())["return"] = 1e9;
    JobRulesTest::Report(event);
  }
  static std::string CheckpointId(int64_t step) { return absl::StrFormat("job-step-%012d", step); }

  std::vector<JobEvent> Events() {
    return manager_->view()
        .EventsAfter({.job_id = "job", .kinds = {"metrics_reported"}}, 0, 10000, true)
        ->events;
  }
  Values Shown() {
    const Job job = Get("job");
    Values shown;
    for (const ReportedMetric& each : job.reported_metrics()) {
      shown[each.name()] = each.value();
    }
    return shown;
  }
  Values OfCheckpoint(int64_t step) {
    const Checkpoint checkpoint = *manager_->queries().GetCheckpoint({}, CheckpointId(step));
    return {checkpoint.reported_metrics().begin(), checkpoint.reported_metrics().end()};
  }
  // Returns the values that the worker was sent last.
  static std::map<int64_t, double> ByStep(const MetricValues& sent) {
    std::map<int64_t, double> values;
    for (int i = 0; i < sent.steps_size(); ++i) values[sent.steps(i)] = sent.values(i);
    return values;
  }
  MetricValues LastSent() {
    EXPECT_FALSE(workers_.sent.empty());
    return workers_.sent.empty() ? MetricValues() : workers_.sent.back().second.metric_values();
  }
};

TEST_F(MetricReportsTest, AReportIsDurableAndAnEvent) {
  Run("job");
  Caller caller;
  caller.name = "arena";
  ASSERT_TRUE(Send(Report(50, {{"return", 210.5}, {"wins", 3}}), caller).ok());
  ASSERT_TRUE(Send(40, {{"return", 100}}).ok());
  workers_.adopts = true;
  Open();
  const Job job = Get("job");
  ASSERT_EQ(job.reported_metrics_size(), 2);
  EXPECT_EQ(job.reported_metrics(0).name(), "return");
  EXPECT_EQ(job.reported_metrics(0).value(), 210.5) << "the value of the latest step";
  EXPECT_EQ(job.reported_metrics(0).step(), 50);
  EXPECT_EQ(job.reported_metrics(0).reporter(), "arena");
  EXPECT_EQ(job.reported_metrics(0).report_time().seconds(), 1'800'000'000);
  EXPECT_EQ(job.reported_metrics(1).name(), "wins");
  EXPECT_FALSE(job.has_followed_metric());
  const std::vector<JobEvent> events = Events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].metrics_reported().step(), 50);
  EXPECT_EQ(events[0].metrics_reported().reporter(), "arena");
  EXPECT_EQ(events[0].metrics_reported().values().at("wins"), 3);
  EXPECT_THAT(workers_.sent, IsEmpty()) << "the job follows none";
}

TEST_F(MetricReportsTest, ARepeatedReportChangesNothingAndAnotherValueReplaces) {
  Run("job");
  ASSERT_TRUE(Send(50, {{"return", 1}, {"wins", 3}}).ok());
  ASSERT_TRUE(Send(60, {{"return", 2}}).ok());
  ASSERT_TRUE(Send(50, {{"return", 1}}).ok());
  EXPECT_EQ(Events().size(), 2U);
  ASSERT_TRUE(Send(50, {{"return", 5}, {"wins", 3}}).ok());
  ASSERT_EQ(Events().size(), 3U);
  EXPECT_THAT(Events().back().metrics_reported().values(), UnorderedElementsAre(Pair("return", 5)));
  EXPECT_THAT(Shown(), UnorderedElementsAre(Pair("return", 2), Pair("wins", 3)));
  Open();
  ASSERT_TRUE(Send(50, {{"return", 5}}).ok());
  EXPECT_EQ(Events().size(), 3U) << "a restart forgets none";
}

// Reports that arrive together are committed together, and each sees the others.
TEST_F(MetricReportsTest, ReportsOfOneCommitSeeEachOther) {
  Run("job");
  WriteCheckpoint(50);
  absl::Notification block, blocked;
  manager_->AskWriter([&] {
    blocked.Notify();
    block.WaitForNotification();
  });
  blocked.WaitForNotification();
  int answers = 0;
  const auto send = [&](const Values& values) {
    manager_->requests().ReportMetrics({}, Report(50, values), [&](const absl::StatusOr<Job>& job) {
      EXPECT_TRUE(job.ok()) << job.status();
      ++answers;
    });
  };
  send({{"return", 1}});
  send({{"wins", 2}});
  send({{"return", 1}});
  block.Notify();
  Settle();
  EXPECT_EQ(answers, 3);
  EXPECT_EQ(Events().size(), 2U);
  EXPECT_THAT(OfCheckpoint(50), UnorderedElementsAre(Pair("return", 1), Pair("wins", 2)));
}

TEST_F(MetricReportsTest, MalformedReportsAreRefused) {
  Run("job");
  ReportMetricsRequest request = Report(-1, {{"", 1}, {"a b", 1}, {std::string(64, 'x'), 1}});
  const absl::Status names = Send(request);
  EXPECT_EQ(names.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(names.message(), HasSubstr("step is -1; accepted: 0 to 1000000000000"));
  EXPECT_THAT(names.message(), HasSubstr("values: the name \"a b\" is not accepted; accepted: 1 to "
                                         "63 letters, digits, '.', '_', '/' and '-'"));
  const double infinity = std::numeric_limits<double>::infinity();
  const absl::Status values = Send(1, {{"return", std::nan("")}, {"wins", -infinity}});
  EXPECT_THAT(values.message(), HasSubstr("values.return is nan; accepted: a finite number"));
  EXPECT_THAT(values.message(), HasSubstr("values.wins is -inf; accepted: a finite number"));
  request = Report(1, {});
  request.clear_step();
  EXPECT_THAT(Send(request).message(), HasSubstr("values: required"));
  EXPECT_THAT(Send(request).message(), HasSubstr("step: required"));
  EXPECT_THAT(Events(), IsEmpty());
}

TEST_F(MetricReportsTest, OnlyTheOwnerAndAdminsReport) {
  Run("job");
  Caller other;
  other.name = "bob";
  other.role = Role::kSubmitter;
  EXPECT_EQ(Send(Report(1, {{"return", 1}}), other).code(), absl::StatusCode::kPermissionDenied);
  ReportMetricsRequest absent = Report(1, {{"return", 1}});
  absent.set_job_id("absent");
  EXPECT_EQ(Send(absent).code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Events(), IsEmpty());
}

TEST_F(MetricReportsTest, AJobHasAtMost64Metrics) {
  Run("job");
  Values many;
  for (int i = 0; i < 63; ++i) many[absl::StrCat("m", i)] = i;
  ASSERT_TRUE(Send(1, many).ok());
  ASSERT_TRUE(Send(2, {{"last", 1}}).ok());
  const absl::Status refused = Send(3, {{"m1", 7}, {"more", 1}});
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("would have 65 reported metrics; accepted: at most 64"));
  EXPECT_EQ(Shown().at("m1"), 1) << "a report is stored whole or not at all";
  EXPECT_TRUE(Send(3, {{"m1", 7}}).ok());
}

TEST_F(MetricReportsTest, ACheckpointShowsItsValuesAndKeepsItsPlace) {
  Run("job");
  WriteCheckpoint(40);
  WriteCheckpoint(50);
  EXPECT_THAT(OfCheckpoint(40), IsEmpty());
  ReportMetricsRequest request = Report(40, {{"return", 7}});
  request.clear_step();
  request.set_checkpoint_id(CheckpointId(40));
  ASSERT_TRUE(Send(request).ok());
  ASSERT_TRUE(Send(50, {{"return", 8}}).ok());
  EXPECT_EQ(Events()[0].metrics_reported().step(), 40);
  EXPECT_EQ(Events()[0].metrics_reported().checkpoint_id(), CheckpointId(40));
  workers_.adopts = true;
  Open();
  EXPECT_THAT(OfCheckpoint(40), ElementsAre(Pair("return", 7)));
  EXPECT_THAT(OfCheckpoint(50), ElementsAre(Pair("return", 8)));
  EXPECT_EQ(Get("job").latest_checkpoint().reported_metrics().at("return"), 8);
  Lose("job");
  clock_.Advance(60);
  Tick();
  ASSERT_TRUE(workers_.begun.contains("job"));
  EXPECT_THAT(workers_.begun["job"].resume_from(0), HasSubstr(CheckpointId(50)))
      << "a value for an older checkpoint does not make it the newest";
}

TEST_F(MetricReportsTest, ACheckpointThatDoesNotFitIsRefused) {
  Run("job");
  WriteCheckpoint(40);
  ReportMetricsRequest request = Report(41, {{"return", 7}});
  request.set_checkpoint_id(CheckpointId(40));
  EXPECT_THAT(Send(request).message(),
              HasSubstr("step is 41; accepted: 40, the step of the checkpoint, or none"));
  request.set_checkpoint_id("other-step-1");
  const absl::Status absent = Send(request);
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(absent.message(), HasSubstr("report the step without checkpoint_id"));
}

TEST_F(MetricReportsTest, ACheckpointThatIsWrittenAgainHasTheValuesOfItsStep) {
  Run("job");
  ASSERT_TRUE(Send(40, {{"return", 7}}).ok());
  WriteCheckpoint(40);
  EXPECT_THAT(OfCheckpoint(40), ElementsAre(Pair("return", 7)));
  WriteCheckpoint(40, /*crc32c=*/2);
  EXPECT_THAT(OfCheckpoint(40), ElementsAre(Pair("return", 7)));
}

TEST_F(MetricReportsTest, AnEndedJobAcceptsReports) {
  RunFollower(/*patience=*/1);
  WriteCheckpoint(100);
  Finish("job", Finished::OUTCOME_COMPLETED);
  ASSERT_TRUE(Send(100, {{"return", 7}}).ok());
  ASSERT_TRUE(Send(101, {{"return", 6}}).ok());
  EXPECT_EQ(State("job"), JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Get("job").followed_metric().best_value(), 7);
  EXPECT_EQ(Get("job").followed_metric().early_end(), "");
  EXPECT_THAT(OfCheckpoint(100), ElementsAre(Pair("return", 7)));
}

TEST_F(MetricReportsTest, TheWorkerGetsTheValuesOfItsCheckpoints) {
  RunFollower();
  WriteCheckpoint(40);
  WriteCheckpoint(50);
  ASSERT_TRUE(Send(40, {{"return", 7}, {"wins", 1}}).ok());
  EXPECT_THAT(ByStep(LastSent()), ElementsAre(Pair(40, 7)));
  ASSERT_TRUE(Send(45, {{"return", 6}}).ok());
  ASSERT_TRUE(Send(50, {{"return", 8}}).ok());
  EXPECT_THAT(ByStep(LastSent()), ElementsAre(Pair(40, 7), Pair(50, 8)));
  workers_.adopts = true;
  Open();
  workers_.sent.clear();
  manager_->worker_events()->OnWorkerBack("job", Get("job").claim());
  Settle();
  EXPECT_THAT(ByStep(LastSent()), ElementsAre(Pair(40, 7), Pair(50, 8)));
  Lose("job");
  clock_.Advance(60);
  Tick();
  ASSERT_TRUE(workers_.begun.contains("job"));
  EXPECT_THAT(ByStep(workers_.begun["job"].metric_values()), ElementsAre(Pair(40, 7), Pair(50, 8)));
}

TEST_F(MetricReportsTest, ATargetEndsTheJobEvenIfTheWorkerIsAway) {
  RunFollower(/*patience=*/0, /*target=*/200);
  ASSERT_TRUE(Send(40, {{"return", 199}}).ok());
  EXPECT_EQ(LastSent().early_end(), "");
  ASSERT_TRUE(Send(50, {{"return", 200}}).ok());
  const std::string reason = "the reported return reached 200; evaluation.target is 200";
  EXPECT_EQ(LastSent().early_end(), reason);
  EXPECT_EQ(Get("job").followed_metric().early_end(), reason);
  workers_.adopts = false;
  workers_.begun.clear();
  Open();
  ASSERT_TRUE(workers_.begun.contains("job"));
  EXPECT_EQ(workers_.begun["job"].metric_values().early_end(), reason);
}

TEST_F(MetricReportsTest, AStepToWhichTheJobWentBackForgetsLaterReports) {
  RunFollower(/*patience=*/0, /*target=*/200);
  WriteCheckpoint(40);
  ASSERT_TRUE(Send(40, {{"return", 7}}).ok());
  WriteCheckpoint(50);
  ASSERT_TRUE(Send(50, {{"return", 300}, {"wins", 1}}).ok());
  ASSERT_NE(LastSent().early_end(), "");
  AttachRequest rewound = Event("job");
  rewound.mutable_precision_changed()->set_step(55);
  rewound.mutable_precision_changed()->set_resumed_step(45);
  JobRulesTest::Report(rewound);
  EXPECT_THAT(Shown(), ElementsAre(Pair("return", 7)));
  EXPECT_EQ(Get("job").followed_metric().best_value(), 7);
  EXPECT_THAT(ByStep(LastSent()), ElementsAre(Pair(40, 7)));
  EXPECT_EQ(LastSent().early_end(), "");
  WriteCheckpoint(50, /*crc32c=*/2);
  EXPECT_THAT(OfCheckpoint(50), IsEmpty()) << "they were of weights that are gone";
  ASSERT_TRUE(Send(50, {{"return", 300}}).ok());
  EXPECT_THAT(OfCheckpoint(50), ElementsAre(Pair("return", 300)));
}

TEST_F(MetricReportsTest, EachCheckpointIsLeasedToOneCallerUntilItHasAValue) {
  RunFollower();
  bool expires = false;
  const auto lease = [this, &expires] {
    const auto found = manager_->evaluations().Lease(Get("job"), absl::Seconds(60));
    EXPECT_EQ(found->metric(), "return");
    expires = found->has_expire_time();
    return found->checkpoint().step();
  };
  EXPECT_EQ(lease(), 0) << "there is no checkpoint";
  EXPECT_FALSE(expires);
  for (const int64_t step : {10, 20, 30}) WriteCheckpoint(step);
  ASSERT_TRUE(Send(20, {{"return", 1}}).ok());
  ASSERT_TRUE(Send(10, {{"wins", 1}}).ok());
  EXPECT_EQ(lease(), 30) << "the newest first";
  EXPECT_EQ(lease(), 10);
  EXPECT_TRUE(expires);
  EXPECT_EQ(lease(), 0);
  EXPECT_TRUE(expires) << "the others may have to be evaluated again";
  clock_.Advance(59);
  EXPECT_EQ(lease(), 0);
  ASSERT_TRUE(Send(30, {{"return", 2}}).ok());
  clock_.Advance(1);
  EXPECT_EQ(lease(), 10) << "its lease has expired, and 30 has a value";
  WriteCheckpoint(40);
  EXPECT_EQ(lease(), 40);
  Finish("job", Finished::OUTCOME_COMPLETED);
  clock_.Advance(60);
  EXPECT_EQ(lease(), 40) << "checkpoints of ended jobs are evaluated too";
  ASSERT_TRUE(Send(10, {{"return", 3}}).ok());
  ASSERT_TRUE(Send(40, {{"return", 4}}).ok());
  EXPECT_EQ(lease(), 0);
  EXPECT_FALSE(expires);
}

TEST_F(MetricReportsTest, ACallThatWaitsGetsACheckpointWhoseLeaseExpires) {
  RunFollower();
  WriteCheckpoint(10);
  ASSERT_EQ(manager_->evaluations().Lease(Get("job"), absl::Seconds(60))->checkpoint().step(), 10);
  int64_t step = 0;
  const auto attempt = manager_->evaluations().WaitFor(
      "job", absl::Seconds(60), [&step](const auto& found) { step = found->checkpoint().step(); });
  EXPECT_FALSE(attempt(false));
  clock_.Advance(59);
  EXPECT_FALSE(attempt(false));
  clock_.Advance(1);
  EXPECT_TRUE(attempt(false));
  EXPECT_EQ(step, 10);
}

TEST_F(MetricReportsTest, OnlyAJobThatFollowsAMetricHasLeases) {
  Run("job");
  EXPECT_EQ(manager_->evaluations().Lease(Get("job"), absl::Seconds(60)).status().message(),
            "job \"job\" follows no reported metric; accepted: a job with evaluation.metric");
}

TEST_F(MetricReportsTest, TheBestValueOutlivesItsEvent) {
  RunFollower();
  WriteCheckpoint(1);
  ASSERT_TRUE(Send(1, {{"return", 1e6}}).ok());
  // Together, so that there are few commits.
  for (int step = 2; step <= 1100; ++step) {
    manager_->requests().ReportMetrics({}, Report(step, {{"return", step}}), [](const auto& job) {
      EXPECT_TRUE(job.ok()) << job.status();
    });
  }
  Settle();
  EXPECT_EQ(Events().size(), 1000U);
  EXPECT_EQ(Get("job").followed_metric().best_step(), 1);
  EXPECT_THAT(OfCheckpoint(1), ElementsAre(Pair("return", 1e6)));
  EXPECT_THAT(ByStep(LastSent()), ElementsAre(Pair(1, 1e6)));
}

}  // namespace
}  // namespace genesis
