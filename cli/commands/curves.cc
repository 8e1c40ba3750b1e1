// The `plot` and `compare` commands.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/text/enum_names.h"
#include "cli/commands/commands.h"
#include "cli/job_curves.h"
#include "cli/plot.h"
#include "cli/table.h"
#include "cli/text.h"
#include "google/protobuf/util/message_differencer.h"

namespace genesis::cli {
namespace {

using training::v1::GetCurvesResponse;
using training::v1::Job;

// Returns the number of steps that are missing before point `i`.
int64_t MissingBefore(const GetCurvesResponse& response, int i) {
  return i == 0 ? 0 : response.first_steps(i) - response.last_steps(i - 1) - 1;
}

PlotCurve CurveOf(const GetCurvesResponse& response) {
  PlotCurve curve;
  if (response.curves().empty()) return curve;
  const training::v1::Curve& metric = response.curves(0);
  const auto add = [&curve](int64_t step, double low, double high, double mean) {
    curve.steps.push_back(static_cast<double>(step));
    curve.low.push_back(low);
    curve.high.push_back(high);
    curve.mean.push_back(mean);
  };
  for (int i = 0; i < response.last_steps_size(); ++i) {
    if (MissingBefore(response, i) > 0) add(response.first_steps(i) - 1, NAN, NAN, NAN);
    add(response.last_steps(i), metric.min(i), metric.max(i), metric.mean(i));
  }
  return curve;
}

// Returns "loss of run-1, each point 1 to 40 steps".
std::string Title(const std::string& job_id, const std::string& metric,
                  const GetCurvesResponse& response) {
  if (response.counts().empty()) return absl::StrCat(metric, " of ", job_id);
  const auto [fewest, most] =
      std::minmax_element(response.counts().begin(), response.counts().end());
  const std::string steps = *most == 1         ? "one step"
                            : *fewest == *most ? absl::StrCat(*most, " steps")
                                               : absl::StrCat(*fewest, " to ", *most, " steps");
  int64_t missing = 0;
  for (int i = 0; i < response.last_steps_size(); ++i) missing += MissingBefore(response, i);
  return absl::StrCat(metric, " of ", job_id, ", each point ", steps,
                      missing > 0 ? absl::StrCat("; ", missing, " steps are missing") : "");
}

std::string Figure(double value) { return std::isfinite(value) ? FormatFigure(value) : "-"; }

// Prints the fields of the job files that differ.
void PrintDifferences(const Job& first, const Job& other, Session& session) {
  std::string report;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&report);
  if (differencer.Compare(first.spec(), other.spec())) return;
  session.out << "\nJob file of " << Printable(first.id()) << " -> " << Printable(other.id())
              << ":\n";
  for (const absl::string_view line : absl::StrSplit(report, '\n', absl::SkipEmpty())) {
    session.out << "  " << Printable(line) << "\n";
  }
}

}  // namespace

ExitCode RunPlot(const Arguments& arguments, Session& session) {
  const std::string& job_id = arguments.operands.front();
  const std::string metric = arguments.Has("metric") ? arguments.Value("metric") : "loss";
  const std::string file = arguments.Value("file");
  constexpr int kPointsOfImage = 1400;
  GetCurvesResponse response;
  const grpc::Status status = GetCurves(
      job_id, {metric}, file.empty() ? 2 * session.width : kPointsOfImage, session, response);
  if (!status.ok()) return ReportError(status, session);
  if (PrintMessage(response, session)) return ExitCode::kOk;
  if (response.last_steps().empty()) {
    return ReportFault(
        absl::StrCat("job ", job_id, " has no curves: it has made no step, or its files are gone"),
        session);
  }
  const PlotOptions options{.title = Title(job_id, metric, response),
                            .logarithmic = arguments.Has("log"),
                            .width = session.width};
  if (file.empty()) {
    session.out << TextPlot(CurveOf(response), options);
    return ExitCode::kOk;
  }
  if (file == "-") {
    session.out << SvgPlot(CurveOf(response), options);
    return ExitCode::kOk;
  }
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << SvgPlot(CurveOf(response), options);
  if (!out.flush()) {
    return ReportFault(absl::StrCat(Printable(file), ": cannot be written"), session);
  }
  session.out << Printable(options.title) << ": " << Printable(file) << "\n";
  return ExitCode::kOk;
}

ExitCode RunCompare(const Arguments& arguments, Session& session) {
  Table table({"JOB", "STATE", ">STEP", ">LOSS", ">BEST LOSS", ">HELD-OUT", ">SKIPPED", ">TIME",
               ">SAMPLES/S", "PRECISION"});
  std::vector<Job> jobs;
  for (const std::string& id : arguments.operands) {
    training::v1::GetJobRequest request;
    request.set_job_id(id);
    training::v1::GetJobResponse response;
    grpc::Status status = Call(&Service::GetJob, request, response, session);
    GetCurvesResponse curves;
    if (status.ok()) status = GetCurves(id, {"loss"}, /*points=*/1, session, curves);
    if (!status.ok()) return ReportError(status, session);
    const Job& job = jobs.emplace_back(response.job());
    if (PrintMessage(job, session, /*compact=*/true)) continue;
    const training::v1::Progress& progress = job.progress();
    const bool begun = progress.step() > 0;
    const bool drawn = begun && !curves.curves().empty() && !curves.curves(0).min().empty();
    // The curves of a running job lag by a second, so the newest loss may be lower.
    const double best =
        drawn ? std::fmin(curves.curves(0).min(0), progress.loss()) : progress.loss();
    table.AddRow({Printable(job.id()), ShortEnumName(job.state()), absl::StrCat(progress.step()),
                  begun ? Figure(progress.loss()) : "-", drawn ? Figure(best) : "-",
                  job.has_evaluation() ? Figure(job.evaluation().loss()) : "-",
                  absl::StrCat(progress.skipped_steps()), FormatSeconds(progress.seconds()),
                  begun ? absl::StrFormat("%.0f", progress.samples_per_second()) : "-",
                  job.has_precision() ? ShortEnumName(job.precision().mode()) : "-"});
  }
  if (session.output != OutputFormat::kTable) return ExitCode::kOk;
  session.out << table.ToString(session.table_width());
  for (size_t i = 1; i < jobs.size(); ++i) PrintDifferences(jobs.front(), jobs[i], session);
  return ExitCode::kOk;
}

}  // namespace genesis::cli
