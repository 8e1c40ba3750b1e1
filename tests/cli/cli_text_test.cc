// Tests of genesisctl's command line and output, without a daemon.
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/text/enum_names.h"
#include "cli/commands/arguments.h"
#include "cli/commands/command_table.h"
#include "cli/event_line.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/precision_details.h"
#include "cli/progress_line.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cli/text.h"
#include "config/job/job_file.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace genesis::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using training::v1::Job;

Arguments Parse(const std::vector<std::string>& args,
                const std::map<std::string, std::string>& variables = {}) {
  return ParseArguments(args, [&variables](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

TEST(ArgumentsTest, TakeOptionsBeforeAndAfterTheCommand) {
  for (const auto& args : std::vector<std::vector<std::string>>{
           {"--output", "json", "--job-id=a", "train", "--watch", "-f", "job.yaml"},
           {"train", "--file=job.yaml", "--watch", "--job-id", "a", "-o", "json"},
           {"-f", "job.yaml", "--watch", "train", "--job-id=a", "-o=json"}}) {
    const Arguments arguments = Parse(args);
    EXPECT_THAT(arguments.errors, IsEmpty());
    EXPECT_EQ(arguments.command, "train");
    EXPECT_EQ(arguments.output, OutputFormat::kJson);
    EXPECT_EQ(arguments.Value("file"), "job.yaml");
    EXPECT_EQ(arguments.Value("job-id"), "a");
    EXPECT_TRUE(arguments.Has("watch"));
    EXPECT_FALSE(arguments.Has("validate-only"));
  }
}

TEST(ArgumentsTest, HaveDefaults) {
  const Arguments arguments = Parse({"jobs"});
  EXPECT_EQ(arguments.daemon.server, "127.0.0.1:50051");
  EXPECT_EQ(arguments.output, OutputFormat::kTable);
  EXPECT_THAT(arguments.Values("state"), IsEmpty());
}

TEST(ArgumentsTest, CollectRepeatedOptionsAndOperands) {
  EXPECT_THAT(Parse({"jobs", "--state", "RUNNING", "--state=QUEUED"}).Values("state"),
              ElementsAre("RUNNING", "QUEUED"));
  EXPECT_THAT(Parse({"job", "a"}).operands, ElementsAre("a"));
  EXPECT_THAT(Parse({"checkpoints"}).errors, IsEmpty());
  EXPECT_THAT(Parse({"checkpoints", "a"}).errors, IsEmpty());
  EXPECT_EQ(Parse({"train", "-f", "-"}).Value("file"), "-");
}

TEST(ArgumentsTest, TakeTheServerFromFlagThenEnvironment) {
  const std::map<std::string, std::string> variables = {{"GENESIS_SERVER", "10.0.0.1:1"}};
  EXPECT_EQ(Parse({"jobs"}, variables).daemon.server, "10.0.0.1:1");
  EXPECT_EQ(Parse({"jobs", "--server=h:2"}, variables).daemon.server, "h:2");
  EXPECT_THAT(Parse({"jobs", "--server", "h"}).errors,
              ElementsAre("--server is \"h\"; accepted: host:port, such as 127.0.0.1:50051, or "
                          "unix:/PATH"));
  EXPECT_THAT(Parse({"jobs"}, {{"GENESIS_SERVER", "h:0"}}).errors,
              ElementsAre("GENESIS_SERVER is \"h:0\"; accepted: host:port, such as "
                          "127.0.0.1:50051, or unix:/PATH"));
}

TEST(ArgumentsTest, AreRefusedWithWhatIsAccepted) {
  std::vector<std::string> names;
  for (const CommandRow& command : CommandTable()) names.push_back(command.name);
  const std::pair<std::vector<std::string>, std::string> rows[] = {
      {{}, "no command; see genesisctl --help"},
      {{"jbs"}, "\"jbs\": unknown command; did you mean jobs?"},
      {{"xyzzy"},
       absl::StrCat("\"xyzzy\": unknown command; accepted: ", absl::StrJoin(names, ", "))},
      {{"jobs", "--stat", "RUNNING"}, "--stat: unknown option; did you mean --state?"},
      {{"jobs", "--xyzzy"}, "--xyzzy: unknown option; see genesisctl --help"},
      {{"jobs", "--watch"}, "--watch: no option of jobs; see genesisctl jobs --help"},
      {{"jobs", "--state"}, "--state: needs a value; write --state STATE"},
      {{"train", "--watch=yes", "-f", "x"}, "--watch: takes no value; write it alone"},
      {{"job"}, "job: needs JOB; write genesisctl job JOB"},
      {{"job", "a", "b"}, "\"b\": one word too many; see genesisctl job --help"},
      {{"jobs", "-o", "xml"}, "--output is \"xml\"; accepted: table, json or yaml"},
  };
  for (const auto& [args, error] : rows) EXPECT_EQ(Parse(args).errors.at(0), error);
}

TEST(ArgumentsTest, ReportAllFaultsAtOnce) {
  EXPECT_THAT(Parse({"job", "--output=xml", "--xyzzy", "--server=x"}).errors,
              ElementsAre("--xyzzy: unknown option; see genesisctl --help",
                          "--output is \"xml\"; accepted: table, json or yaml",
                          "--server is \"x\"; accepted: host:port, such as 127.0.0.1:50051, or "
                          "unix:/PATH",
                          "job: needs JOB; write genesisctl job JOB"));
}

TEST(ArgumentsTest, AskForHelpAndVersionWithoutTheRest) {
  EXPECT_THAT(Parse({"--help"}).errors, IsEmpty());
  EXPECT_THAT(Parse({"job", "--help"}).errors, IsEmpty());
  EXPECT_THAT(Parse({"--version"}).errors, IsEmpty());
  EXPECT_TRUE(Parse({"job", "-h"}).show_help);
}

TEST(HelpTest, NamesEveryCommandOptionAndExitCode) {
  const std::string overall = HelpText("");
  for (const CommandRow& command : CommandTable()) {
    EXPECT_THAT(overall, HasSubstr(std::string("\n  ") + command.name));
    const std::string help = HelpText(command.name);
    EXPECT_THAT(help, HasSubstr(std::string("Usage: genesisctl ") + command.name));
    for (const OptionRow& option : command.options) {
      EXPECT_THAT(help, HasSubstr(std::string("--") + option.name));
    }
  }
  EXPECT_THAT(overall, HasSubstr("  7  No daemon answers, or it drains.\n"));
  EXPECT_THAT(overall, HasSubstr("GENESIS_SERVER"));
}

TEST(TableTest, CutsTheWidestTextUntilLinesFit) {
  Table table({"JOB", "STATE", ">STEP", "NOTE"});
  table.AddRow(
      {"a-very-long-name-of-a-job", "QUEUED", "1200000", "waits für einen Platz, seit gestern"});
  table.AddRow({"b", "RUNNING", "7", "short"});
  EXPECT_EQ(table.ToString(60),
            "JOB                        STATE       STEP  NOTE\n"
            "a-very-long-name-of-a-job  QUEUED   1200000  waits für eine…\n"
            "b                          RUNNING        7  short\n");
  EXPECT_EQ(table.ToString(), table.ToString(200)) << "only a terminal has a width";
  EXPECT_THAT(table.ToString(), HasSubstr("seit gestern"));
  // Neither the first column nor numbers are cut, and text keeps a few characters.
  EXPECT_EQ(table.ToString(20),
            "JOB                        STA…     STEP  NOTE\n"
            "a-very-long-name-of-a-job  QUE…  1200000  wai…\n"
            "b                          RUN…        7  sho…\n");
}

TEST(TableTest, AlignsColumnsWithoutTrailingSpaces) {
  Table table({"JOB", ">STEP", "STATE"});
  table.AddRow({"a", "7", "RUNNING"});
  table.AddRow({"größer", "1000", ""});
  EXPECT_EQ(table.ToString(),
            "JOB     STEP  STATE\n"
            "a          7  RUNNING\n"
            "größer  1000\n");
  EXPECT_EQ(FormatPairs({{"a", "1"}, {"long", "2"}}), "a:     1\nlong:  2\n");
}

TEST(TextTest, FormatsFigures) {
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(int64_t{3} << 40), "3.0 TiB");
  EXPECT_EQ(FormatSeconds(6.6), "0:07");
  EXPECT_EQ(FormatSeconds(3723), "1:02:03");
  EXPECT_EQ(FormatFigure(0.0123456789), "0.0123457");
  EXPECT_EQ(FormatFigure(65536), "65536");
  google::protobuf::Timestamp time;
  time.set_seconds(1767323045);
  EXPECT_EQ(FormatTimestamp(time), "2026-01-02 03:04:05Z");
  EXPECT_EQ(Printable("a\x1b[31m\nb\x7f ö"), "a?[31m?b? ö");
  EXPECT_EQ(ShortEnumName(static_cast<training::v1::JobState>(99)), "99");
  EXPECT_EQ(ShortEnumName(training::v1::FAILURE_CAUSE_OUT_OF_MEMORY), "OUT_OF_MEMORY");
  EXPECT_EQ(CodeName(grpc::StatusCode::NOT_FOUND), "NOT_FOUND");
}

Job Running(int64_t step) {
  Job job;
  job.set_id("walk-1");
  job.set_state(training::v1::JOB_STATE_RUNNING);
  job.set_state_reason("a worker trains it");
  job.mutable_progress()->set_step(step);
  job.mutable_progress()->set_total_steps(1000);
  job.mutable_progress()->set_samples(step * 128);
  job.mutable_progress()->set_samples_per_second(6400);
  job.mutable_progress()->set_loss(0.0123);
  job.mutable_progress()->set_loss_scale(65536);
  return job;
}

TEST(ProgressTest, ShowsStepPercentLossScaleRateAndWhatIsLeft) {
  EXPECT_EQ(RenderProgress(Running(500), 200),
            "walk-1  RUNNING  [###############...............]  500/1000  50.0%  loss 0.0123  "
            "scale 65536  6400 samples/s  ETA 0:10");
  Job skipping = Running(999);
  skipping.mutable_progress()->set_skipped_steps(3);
  EXPECT_THAT(RenderProgress(skipping, 200), HasSubstr("  scale 65536  skipped 3  "));
}

TEST(ProgressTest, ShowsTheSketchOfTheCurves) {
  const JobSketch sketch = {.loss = "█▄▁", .memory_bytes = int64_t{3} << 29};
  EXPECT_EQ(RenderProgress(Running(500), 200, sketch),
            "walk-1  RUNNING  [###############...............]  500/1000  50.0%  loss 0.0123 █▄▁  "
            "scale 65536  6400 samples/s  1.5 GiB  ETA 0:10");
  EXPECT_EQ(TextWidth(RenderProgress(Running(500), 53, sketch)), 53U);
}

TEST(PrecisionWarningsTest, AreShownWhereReducedPrecisionRuns) {
  Job job = Running(1);
  training::v1::EffectivePrecision& precision = *job.mutable_precision();
  precision.mutable_report()->add_alignment_warnings("training.batch_size is 30: ...");
  precision.mutable_report()->add_alignment_warnings("encoder.0.weight is [16, 3]: ...");
  precision.set_mode(training::v1::PRECISION_MODE_FP32);
  EXPECT_THAT(PrecisionWarnings(job), testing::IsEmpty());
  precision.set_mode(training::v1::PRECISION_MODE_MIXED_BF16);
  EXPECT_THAT(PrecisionWarnings(job), testing::ElementsAre("training.batch_size is 30: ...",
                                                           "encoder.0.weight is [16, 3]: ..."));
  std::vector<std::pair<std::string, std::string>> pairs;
  AddPrecision(job, pairs);
  EXPECT_THAT(pairs,
              testing::Contains(testing::Pair("warning", "encoder.0.weight is [16, 3]: ...")));
  for (int i = 0; i < 9; ++i) precision.mutable_report()->add_alignment_warnings("more");
  const std::vector<std::string> many = PrecisionWarnings(job);
  EXPECT_EQ(many.size(), 6U);
  EXPECT_EQ(many.back(), "and 6 more: genesisctl --output json job walk-1");
}

TEST(EventLineTest, SaysThatAJobFallsBack) {
  training::v1::JobEvent event;
  training::v1::PrecisionChange& change = *event.mutable_precision_changed();
  change.set_from(training::v1::PRECISION_MODE_MIXED_FP16);
  change.set_to(training::v1::PRECISION_MODE_FP32);
  change.set_trigger("overflow");
  EXPECT_THAT(EventLine(event),
              HasSubstr("Falling back to FP32: precision MIXED_FP16 -> FP32 at step 0 (overflow)"));
  change.set_trigger("promotion");
  EXPECT_THAT(EventLine(event), testing::Not(HasSubstr("Falling back")));
}

TEST(ProgressTest, ShrinksAndThenDropsTheBar) {
  const std::string wide = RenderProgress(Running(500), 110);
  EXPECT_LE(wide.size(), 110u);
  EXPECT_THAT(wide, HasSubstr("[#"));
  const std::string narrow = RenderProgress(Running(500), 95);
  EXPECT_LE(narrow.size(), 95u);
  EXPECT_THAT(narrow, testing::Not(HasSubstr("[#")));
  EXPECT_THAT(narrow, HasSubstr("ETA 0:10"));
  EXPECT_EQ(RenderProgress(Running(500), 20), "walk-1  RUNNING  500");
}

TEST(ProgressTest, ShowsTheStateBeforeTheFirstStep) {
  Job job;
  job.set_id("walk-1");
  job.set_state(training::v1::JOB_STATE_QUEUED);
  job.set_queue_position(2);
  EXPECT_EQ(RenderProgress(job, 80), "walk-1  QUEUED  place 2 in the queue");
  job.set_queue_position(0);
  job.set_state(training::v1::JOB_STATE_STARTING);
  EXPECT_EQ(RenderProgress(job, 80), "walk-1  STARTING");
  job.set_state_reason("ää");
  EXPECT_EQ(RenderProgress(job, 18), "walk-1  STARTING");
  EXPECT_EQ(RenderProgress(job, 19), "walk-1  STARTING  ä");
}

TEST(ProgressTest, KnowsNoRemainingTimeWithoutARateOrAfterTheEnd) {
  EXPECT_EQ(RenderEta(Job()), "");
  Job job = Running(500);
  EXPECT_NE(RenderEta(job), "");
  job.mutable_progress()->set_samples_per_second(1e-9);
  EXPECT_EQ(RenderEta(job), "");
  job.mutable_progress()->set_samples_per_second(0);
  EXPECT_EQ(RenderEta(job), "");
  EXPECT_EQ(RenderEta(Running(1000)), "");
  job = Running(500);
  job.set_state(training::v1::JOB_STATE_SUCCEEDED);  // It ended before its last step.
  EXPECT_EQ(RenderEta(job), "");
}

TEST(ProgressTest, TellsWhatAJobWaitsFor) {
  Job job = Running(500);
  job.set_waiting_reason("waits for data");
  EXPECT_EQ(RenderEta(job), "");
  EXPECT_EQ(RenderProgress(job, 80), "walk-1  RUNNING  waits for data");
}

TEST(ProgressTest, TellsHowAJobEnded) {
  Job job = Running(1000);
  job.set_state(training::v1::JOB_STATE_SUCCEEDED);
  job.set_state_reason("all steps were made");
  job.mutable_held_out()->set_model(0.125);
  job.mutable_held_out()->set_persistence(0.5);
  job.mutable_held_out()->set_mean(1);
  job.mutable_held_out()->set_transitions(640);
  job.mutable_latest_checkpoint()->set_path("/c/walk-1-step-1000.pt");
  job.mutable_latest_checkpoint()->set_step(1000);
  job.mutable_latest_checkpoint()->set_size_bytes(1536);
  EXPECT_EQ(RenderEnd(job),
            "job walk-1 SUCCEEDED: all steps were made\n"
            "held-out error: model 0.125, persistence 0.5, mean 1 (on 640 transitions)\n"
            "checkpoint: /c/walk-1-step-1000.pt (step 1000, 1.5 KiB)\n");
}

TEST(ProgressTest, TellsWhyAJobFailed) {
  Job job;
  job.set_id("walk-1");
  job.set_state(training::v1::JOB_STATE_FAILED);
  job.set_state_reason("the dataset cannot be read");
  job.mutable_failure()->set_cause(training::v1::FAILURE_CAUSE_DATA);
  job.mutable_failure()->set_message("walks.npz: no array rewards\nadd it");
  job.mutable_failure()->add_log_tail("opening walks.npz");
  job.mutable_failure()->add_log_tail("gone\x1b[2J");
  EXPECT_EQ(RenderEnd(job),
            "job walk-1 FAILED: the dataset cannot be read\n"
            "cause: DATA\n"
            "  walks.npz: no array rewards\n"
            "  add it\n"
            "last log lines of the worker:\n"
            "  opening walks.npz\n"
            "  gone?[2J\n");
}

class ProgressLineTest : public testing::Test {
 protected:
  absl::Time time_ = absl::UnixEpoch();
  std::ostringstream out_;
  const std::function<absl::Time()> now_ = [this] { return time_; };
};

TEST_F(ProgressLineTest, IsRedrawnInPlaceOnATerminal) {
  ProgressLine line(out_, /*terminal=*/true, 21, now_);
  line.Update(Running(500));
  line.Update(Running(501));
  line.Close();
  line.Close();
  EXPECT_EQ(out_.str(),
            "\rwalk-1  RUNNING  500\x1b[K"
            "\rwalk-1  RUNNING  501\x1b[K\n");
}

TEST_F(ProgressLineTest, WarnsOnceAboveTheLine) {
  ProgressLine line(out_, /*terminal=*/false, 21, now_);
  line.Warn({});
  line.Warn({"a", "b"});
  line.Warn({"a", "b"});
  EXPECT_EQ(out_.str(), "warning: a\nwarning: b\n");
}

TEST_F(ProgressLineTest, IsPrintedAtMostOnceASecondElsewhere) {
  ProgressLine line(out_, /*terminal=*/false, 21, now_);
  line.Update(Running(1));
  time_ += absl::Milliseconds(999);
  line.Update(Running(2));
  time_ += absl::Milliseconds(1);
  line.Update(Running(3));
  Job pausing = Running(4);
  pausing.set_state(training::v1::JOB_STATE_PAUSING);
  line.Update(pausing);
  line.Close();
  const std::string text = out_.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, HasSubstr("  1/1000"));
  EXPECT_THAT(text, testing::Not(HasSubstr("  2/1000")));
  EXPECT_THAT(text, HasSubstr("  3/1000"));
  EXPECT_THAT(text, HasSubstr("PAUSING"));
  EXPECT_THAT(text, testing::Not(HasSubstr("\x1b")));
}

TEST(OutputTest, PrintsJsonWithTheNamesOfTheProtocol) {
  EXPECT_EQ(ToJson(Running(3).progress(), /*compact=*/true),
            "{\"step\":\"3\",\"total_steps\":\"1000\",\"loss\":0.0123,\"loss_scale\":65536,"
            "\"grad_norm\":0,\"skipped_steps\":\"0\",\"samples\":\"384\","
            "\"samples_per_second\":6400,\"reduced_precision_steps\":\"0\","
            "\"mode\":\"PRECISION_MODE_UNSPECIFIED\",\"learning_rate\":0,"
            "\"scale_backoffs\":\"0\",\"baseline_loss\":0,\"seconds\":0}\n");
  EXPECT_THAT(ToJson(Running(3).progress(), /*compact=*/false), HasSubstr("{\n \"step\": \"3\""));
}

TEST(OutputTest, PrintsYamlOfEveryKindOfField) {
  training::v1::ListJobsResponse response;
  EXPECT_EQ(ToYaml(response), "jobs: []\nnext_page_token: \"\"\ncursor: 0\n");
  Job& job = *response.add_jobs();
  job.set_id("a");
  job.mutable_create_time()->set_seconds(1767323045);
  job.mutable_held_out()->set_model(std::nan(""));
  job.mutable_failure()->add_log_tail("a \"b\"\\\n\t\x7f");
  EXPECT_EQ(ToYaml(response),
            "jobs:\n"
            "  - id: \"a\"\n"
            "    state: JOB_STATE_UNSPECIFIED\n"
            "    state_reason: \"\"\n"
            "    create_time: \"2026-01-02T03:04:05Z\"\n"
            "    claim: 0\n"
            "    restarts: 0\n"
            "    held_out:\n"
            "      model: .nan\n"
            "      persistence: 0\n"
            "      mean: 0\n"
            "      transitions: 0\n"
            "    failure:\n"
            "      cause: FAILURE_CAUSE_UNSPECIFIED\n"
            "      message: \"\"\n"
            "      exit_code: 0\n"
            "      signal: 0\n"
            "      log_tail:\n"
            "        - \"a \\\"b\\\"\\\\\\n\\u0009\\u007f\"\n"
            "    queue_position: 0\n"
            "    precision_changes: []\n"
            "    incidents: []\n"
            "    priority: 0\n"
            "    labels: {}\n"
            "    owner: \"\"\n"
            "    request_id: \"\"\n"
            "    peak_memory_bytes: 0\n"
            "    batch_halvings: 0\n"
            "    worker_sequence: 0\n"
            "    worker_seconds: 0\n"
            "    peak_device_bytes: 0\n"
            "    ranks: []\n"
            "    queue_reason: \"\"\n"
            "    traceparent: \"\"\n"
            "    reported_metrics: []\n"
            "    waiting_reason: \"\"\n"
            "next_page_token: \"\"\n"
            "cursor: 0\n");
  training::v1::StatsResponse stats;
  EXPECT_THAT(ToYaml(stats), HasSubstr("jobs_by_state: {}\n"));
  (*stats.mutable_jobs_by_state())["RUNNING"] = 2;
  (*stats.mutable_jobs_by_state())["QUEUED"] = 1;
  EXPECT_THAT(ToYaml(stats), HasSubstr("jobs_by_state:\n  \"QUEUED\": 1\n  \"RUNNING\": 2\n"));
  EXPECT_THAT(ToYaml(stats), HasSubstr("fp16_enabled_runtime: false\n"));
  EXPECT_EQ(ToYaml(training::v1::GetServerInfoRequest()), "{}\n");
}

TEST(OutputTest, PrintsListsOfNumbersInYaml) {
  training::v1::LossCurve curve;
  curve.add_steps(1);
  curve.add_steps(int64_t{1} << 60);
  curve.add_losses(0.5);
  curve.add_losses(2);
  EXPECT_THAT(ToYaml(curve), testing::StartsWith("steps:\n  - 1\n  - 1152921504606846976\n"
                                                 "losses:\n  - 0.5\n  - 2\n"));
  training::v1::AppendTrajectoriesRequest batch;
  batch.add_rewards(0.25F);
  batch.add_terminals(true);
  EXPECT_THAT(ToYaml(batch), HasSubstr("rewards:\n  - 0.25\n"));
  EXPECT_THAT(ToYaml(batch), HasSubstr("terminals:\n  - true\n"));
}

TEST(OutputTest, PrintsAJobSpecificationThatTheJobFileReaderTakes) {
  const auto spec = ParseJobFile(
      "model: {world_model: }\ndataset: {trajectories: {path: a.npz}}\n"
      "training: {epochs: 3, seed: 18446744073709551615}\nprecision: {mode: MIXED_BF16}\n"
      "max_restarts: 0\n",
      "job.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  for (const std::string& text : {ToYaml(*spec), ToJson(*spec, false)}) {
    const auto again = ParseJobFile(text, "again.yaml");
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(*spec, *again)) << text;
  }
}

TEST(InterruptTest, RunsTheActionWhileOneIsSet) {
  Interrupt interrupt;
  int runs = 0;
  EXPECT_FALSE(interrupt.Fire());
  interrupt.Set([&runs] { ++runs; });
  EXPECT_FALSE(interrupt.fired());
  EXPECT_TRUE(interrupt.Fire());
  EXPECT_TRUE(interrupt.fired());
  interrupt.Clear();
  EXPECT_FALSE(interrupt.Fire());
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace genesis::cli
