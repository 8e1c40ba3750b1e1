// The `jobs`, `job` commands.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "cli/commands/commands.h"
#include "cli/commands/filters.h"
#include "cli/commands/pages.h"
#include "cli/precision_details.h"
#include "cli/progress_line.h"
#include "cli/table.h"
#include "cli/text.h"
#include "config/job/job_spec.h"
#include "config/precision/precision.h"

namespace genesis::cli {
namespace {

using training::v1::Job;

// Sets owner, labels, prefix and order. Returns "", or the error.
std::string SetFilters(const Arguments& arguments, training::v1::ListJobsRequest& request) {
  request.set_owner(arguments.Value("owner"));
  request.set_id_prefix(arguments.Value("id-prefix"));
  if (std::string fault = AddLabels(arguments, *request.mutable_labels()); !fault.empty()) {
    return fault;
  }
  const std::string order = arguments.Value("order");
  if (order == "oldest") {
    request.set_order(training::v1::JOB_ORDER_OLDEST_FIRST);
  } else if (order == "priority") {
    request.set_order(training::v1::JOB_ORDER_PRIORITY);
  } else if (!order.empty() && order != "newest") {
    return absl::StrCat("--order is ", QuoteValue(order), "; accepted: newest, oldest or priority");
  }
  return "";
}

std::string Steps(const Job& job) {
  if (job.progress().total_steps() == 0) return "-";
  return absl::StrCat(job.progress().step(), "/", job.progress().total_steps());
}

void AddJobRow(const Job& job, Table& table) {
  const bool begun = job.progress().step() > 0;
  table.AddRow({Printable(job.id()), ShortEnumName(job.state()), Steps(job),
                begun ? FormatFigure(job.progress().loss()) : "-",
                begun ? absl::StrFormat("%.0f", job.progress().samples_per_second()) : "-",
                job.has_precision() ? ShortEnumName(job.precision().mode()) : "-",
                FormatTimestamp(job.create_time())});
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

void AddProgress(const Job& job, Pairs& pairs) {
  const training::v1::Progress& progress = job.progress();
  if (progress.step() == 0) return;
  pairs.emplace_back("loss", FormatFigure(progress.loss()));
  pairs.emplace_back("learning rate", FormatFigure(progress.learning_rate()));
  pairs.emplace_back("loss scale", FormatFigure(progress.loss_scale()));
  pairs.emplace_back("gradient norm", FormatFigure(progress.grad_norm()));
  pairs.emplace_back("skipped steps", absl::StrCat(progress.skipped_steps()));
  pairs.emplace_back("samples", absl::StrCat(progress.samples()));
  pairs.emplace_back("samples/s", absl::StrFormat("%.0f", progress.samples_per_second()));
  const std::string eta = RenderEta(job);
  if (!eta.empty()) pairs.emplace_back("ETA", eta);
}

void AddReported(const Job& job, Pairs& pairs) {
  for (const training::v1::ReportedMetric& each : job.reported_metrics()) {
    std::string text = absl::StrFormat("%s at step %d", FormatFigure(each.value()), each.step());
    if (job.has_followed_metric() && each.name() == job.spec().evaluation().metric()) {
      absl::StrAppendFormat(&text, ", best %s at step %d",
                            FormatFigure(job.followed_metric().best_value()),
                            job.followed_metric().best_step());
    }
    pairs.emplace_back(absl::StrCat("reported ", Printable(each.name())), std::move(text));
  }
}

std::string JobDetails(const Job& job) {
  Pairs pairs = {
      {"job", Printable(job.id())},
      {"state", absl::StrCat(ShortEnumName(job.state()), job.state_reason().empty() ? "" : ": ",
                             Printable(job.state_reason()))}};
  if (job.queue_position() > 0) {
    pairs.emplace_back("place in queue", absl::StrCat(job.queue_position()));
  }
  if (!job.queue_reason().empty()) pairs.emplace_back("waits", Printable(job.queue_reason()));
  if (!job.waiting_reason().empty()) pairs.emplace_back("waits", Printable(job.waiting_reason()));
  AddPrecision(job, pairs);
  pairs.emplace_back("model", DescribeModel(job.spec()));
  pairs.emplace_back("dataset", Printable(DescribeDataset(job.spec())));
  pairs.emplace_back("steps", Steps(job));
  AddProgress(job, pairs);
  if (job.has_evaluation()) {
    pairs.emplace_back("held-out loss",
                       absl::StrFormat("%s at step %d", FormatFigure(job.evaluation().loss()),
                                       job.evaluation().step()));
    // Sorted, because the order of a protobuf map is unspecified.
    const std::map<std::string, double> metrics(job.evaluation().metrics().begin(),
                                                job.evaluation().metrics().end());
    for (const auto& [name, value] : metrics) {
      pairs.emplace_back(absl::StrCat("held-out ", Printable(name)), FormatFigure(value));
    }
  }
  AddReported(job, pairs);
  pairs.emplace_back("restarts", absl::StrCat(job.restarts(), " of ", job.spec().max_restarts()));
  pairs.emplace_back("created", FormatTimestamp(job.create_time()));
  if (job.has_start_time()) pairs.emplace_back("started", FormatTimestamp(job.start_time()));
  if (job.has_end_time()) pairs.emplace_back("ended", FormatTimestamp(job.end_time()));
  return FormatPairs(pairs);
}

// Returns one line per rank; empty for a single-process job.
std::string RankDetails(const Job& job, size_t max_width) {
  if (job.ranks().empty()) return "";
  Table table({">RANK", "WORKER", "DEVICE", ">STEP", ">STEP TIME", ">WAITS", "NOTE"});
  const auto milliseconds = [](double seconds) {
    return seconds > 0 ? absl::StrFormat("%.1f ms", seconds * 1000) : "-";
  };
  for (const training::v1::RankStatus& rank : job.ranks()) {
    table.AddRow({absl::StrCat(rank.rank()), Printable(rank.worker().worker_id()),
                  Printable(rank.worker().device()),
                  rank.step() > 0 ? absl::StrCat(rank.step()) : "-",
                  milliseconds(rank.step_seconds()), milliseconds(rank.wait_seconds()),
                  rank.ended() ? "ended" : (rank.straggler() ? "the others wait for it" : "")});
  }
  return table.ToString(max_width);
}

// Returns the lines about the job's end, except its state, which the details already contain.
std::string EndDetails(const Job& job) {
  const std::string end = RenderEnd(job);
  return end.substr(end.find('\n') + 1);
}

}  // namespace

ExitCode RunJobs(const Arguments& arguments, Session& session) {
  training::v1::ListJobsRequest request;
  std::string fault = AddStates(arguments, *request.mutable_states());
  if (fault.empty()) fault = SetFilters(arguments, request);
  if (!fault.empty()) return ReportUsage(fault, session);
  training::v1::ListJobsResponse all;
  const grpc::Status status = ReadAllPages(
      request,
      [&](auto* context, const auto& asked, auto* page) {
        return session.service.ListJobs(context, asked, page);
      },
      &all);
  if (!status.ok()) return ReportError(status, session);

  if (PrintMessage(all, session)) return ExitCode::kOk;
  Table table({"JOB", "STATE", ">STEP", ">LOSS", ">SAMPLES/S", "PRECISION", "CREATED"});
  for (const Job& job : all.jobs()) AddJobRow(job, table);
  session.out << (all.jobs().empty() ? "no jobs\n" : table.ToString(session.table_width()));
  return ExitCode::kOk;
}

ExitCode RunJob(const Arguments& arguments, Session& session) {
  training::v1::GetJobRequest request;
  request.set_job_id(arguments.operands.front());
  const std::string fault = JobIdFault(request.job_id());
  if (!fault.empty()) return ReportUsage(fault, session);
  training::v1::GetJobResponse response;
  const grpc::Status status = Call(&Service::GetJob, request, response, session);
  if (!status.ok()) return ReportError(status, session);
  if (!PrintMessage(response.job(), session)) {
    session.out << JobDetails(response.job()) << RankDetails(response.job(), session.table_width())
                << EndDetails(response.job());
  }
  return ExitCode::kOk;
}

}  // namespace genesis::cli
