// The `sweep`, `sweeps`, `trials`, `sweep-cancel` commands.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/steady_time.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "cli/commands/commands.h"
#include "cli/commands/pages.h"
#include "cli/table.h"
#include "cli/text.h"
#include "config/job/job_spec.h"

namespace genesis::cli {
namespace {

using training::v1::Sweep;
using training::v1::SweepParameter;
using training::v1::SweepSpec;
using training::v1::Trial;

constexpr absl::Duration kPoll = absl::Seconds(1);

// Splits at commas outside brackets, so that "[64,64],[128]" has two values.
std::vector<std::string> SplitValues(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  for (const char c : text) {
    depth += (c == '[') - (c == ']');
    if (c == ',' && depth == 0) {
      values.emplace_back();
    } else {
      values.back() += c;
    }
  }
  return values;
}

// Reads "1e-4..1e-1" or "1e-4..1e-1:log"; nullopt for anything else.
std::optional<training::v1::SweepRange> ParseRange(absl::string_view text) {
  training::v1::SweepRange range;
  range.set_log(absl::ConsumeSuffix(&text, ":log"));
  const size_t dots = text.find("..");
  double low = 0;
  double high = 0;
  if (dots == absl::string_view::npos || !absl::SimpleAtod(text.substr(0, dots), &low) ||
      !absl::SimpleAtod(text.substr(dots + 2), &high)) {
    return std::nullopt;
  }
  range.set_low(low);
  range.set_high(high);
  return range;
}

// Reads --over FIELD=VALUES. Returns "", or the error.
std::string AddParameter(const std::string& text, SweepSpec& spec) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return absl::StrCat("--over is ", QuoteValue(text),
                        "; accepted: FIELD=VALUE,VALUE,... or FIELD=LOW..HIGH[:log], such as "
                        "optimizer.learning_rate=1e-4..1e-1:log");
  }
  SweepParameter& parameter = *spec.add_parameters();
  parameter.set_field(text.substr(0, equals));
  const std::string values = text.substr(equals + 1);
  if (const auto range = ParseRange(values)) {
    *parameter.mutable_range() = *range;
  } else {
    for (std::string& each : SplitValues(values)) *parameter.add_values() = std::move(each);
  }
  return "";
}

// Reads an option with a whole number. Returns "", or the error.
template <typename Set>
std::string ReadNumber(const Arguments& arguments, const char* option, const Set& set) {
  if (!arguments.Has(option)) return "";
  uint32_t number = 0;
  if (!absl::SimpleAtoi(arguments.Value(option), &number) || number > INT32_MAX) {
    return absl::StrCat("--", option, " is ", QuoteValue(arguments.Value(option)),
                        "; accepted: a whole number");
  }
  set(static_cast<int32_t>(number));
  return "";
}

// Reads the options of a sweep except those of its job. Returns "", or the error.
std::string ReadOptions(const Arguments& arguments, SweepSpec& spec) {
  std::string fault = SubmissionFault(arguments);
  for (const std::string& each : arguments.Values("over")) {
    if (fault.empty()) fault = AddParameter(each, spec);
  }
  const std::pair<const char*, std::function<void(int32_t)>> numbers[] = {
      {"trials", [&spec](int32_t n) { spec.set_random_trials(n); }},
      {"seed", [&spec](int32_t n) { spec.set_seed(static_cast<uint64_t>(n)); }},
      {"parallel", [&spec](int32_t n) { spec.set_max_parallel(n); }},
      {"halving", [&spec](int32_t n) { spec.mutable_halving()->set_reduction_factor(n); }}};
  for (const auto& [option, set] : numbers) {
    if (fault.empty()) fault = ReadNumber(arguments, option, set);
  }
  spec.set_metric(arguments.Value("metric"));
  spec.set_maximize(arguments.Has("maximize"));
  return fault;
}

std::string BestOf(const Sweep& sweep, const Trial& trial) {
  return absl::StrCat(Printable(sweep.spec().metric()), " ", FormatFigure(trial.best_value()),
                      " at step ", trial.best_step());
}

// Returns "sweep lr RUNNING: 5 of 20 trials ended; best job lr-003: loss 0.0123 at step 300".
std::string Summary(const Sweep& sweep) {
  std::string text =
      absl::StrCat("sweep ", Printable(sweep.id()), " ", ShortEnumName(sweep.state()), ": ",
                   sweep.ended_trials(), " of ", sweep.trial_count(), " trials ended");
  if (sweep.has_best_trial() && sweep.best_trial() < sweep.trials_size()) {
    const Trial& best = sweep.trials(sweep.best_trial());
    absl::StrAppend(&text, "; best job ", Printable(best.job_id()), ": ", BestOf(sweep, best));
  }
  if (sweep.state() == training::v1::SWEEP_STATE_FAILED) {
    absl::StrAppend(&text, "; none reported ", Printable(sweep.spec().metric()));
  }
  return text + "\n";
}

// Returns the trials that have a value, best first, with those stopped early last; then the others,
// by number.
std::vector<const Trial*> Ranked(const Sweep& sweep) {
  std::vector<const Trial*> trials;
  for (const Trial& each : sweep.trials()) trials.push_back(&each);
  const double sign = sweep.spec().maximize() ? -1 : 1;
  const auto key = [sign](const Trial& trial) {
    const bool valued = trial.has_best_value() && !std::isnan(trial.best_value());
    return std::tuple(!valued, trial.stopped_early(), valued ? sign * trial.best_value() : 0.0);
  };
  std::stable_sort(trials.begin(), trials.end(),
                   [&key](const Trial* a, const Trial* b) { return key(*a) < key(*b); });
  return trials;
}

// Returns the last part of each field's path, or the whole path if another path ends alike.
std::vector<std::string> ShortNames(const SweepSpec& spec) {
  const auto last = [](const std::string& path) { return path.substr(path.rfind('.') + 1); };
  std::map<std::string, int> uses;
  for (const SweepParameter& each : spec.parameters()) ++uses[last(each.field())];
  std::vector<std::string> names;
  for (const SweepParameter& each : spec.parameters()) {
    const std::string name = last(each.field());
    names.push_back(Printable(uses[name] > 1 ? each.field() : name));
  }
  return names;
}

std::string NoteOf(const Trial& trial) {
  if (trial.stopped_early()) return absl::StrCat("stopped: ", Printable(trial.reason()));
  return Printable(trial.reason());
}

std::string TrialsTable(const Sweep& sweep, size_t width) {
  std::vector<std::string> headers = {"JOB", "STATE", ">STEP",
                                      absl::StrCat(">BEST ", Printable(sweep.spec().metric()))};
  for (std::string& name : ShortNames(sweep.spec())) headers.push_back(">" + std::move(name));
  headers.emplace_back("NOTE");
  Table table(headers);
  for (const Trial* trial : Ranked(sweep)) {
    const bool submitted = trial->state() != training::v1::JOB_STATE_UNSPECIFIED;
    std::vector<std::string> row = {
        Printable(trial->job_id()), submitted ? ShortEnumName(trial->state()) : "-",
        trial->step() > 0 ? absl::StrCat(trial->step()) : "-",
        trial->has_best_value() ? FormatFigure(trial->best_value()) : "-"};
    for (const SweepParameter& each : sweep.spec().parameters()) {
      const auto value = trial->parameters().find(each.field());
      row.push_back(value == trial->parameters().end() ? "-" : Printable(value->second));
    }
    row.push_back(NoteOf(*trial));
    table.AddRow(std::move(row));
  }
  return table.ToString(width);
}

ExitCode ExitCodeOf(const Sweep& sweep) {
  switch (sweep.state()) {
    case training::v1::SWEEP_STATE_FAILED:
      return ExitCode::kJobFailed;
    case training::v1::SWEEP_STATE_CANCELLED:
      return ExitCode::kFailure;
    default:
      return ExitCode::kOk;
  }
}

// Prints the summary whenever it changes until the sweep has ended, then the trials.
ExitCode FollowSweep(const std::string& id, SteadyNotification& interrupted, Session& session) {
  training::v1::GetSweepRequest request;
  request.set_sweep_id(id);
  for (std::string shown;;) {
    training::v1::GetSweepResponse response;
    const grpc::Status status = Call(&Service::GetSweep, request, response, session);
    if (!status.ok()) return ReportError(status, session);
    const Sweep& sweep = response.sweep();
    const bool table = session.output == OutputFormat::kTable;
    if (const std::string now = Summary(sweep); table && now != shown) {
      session.out << now << std::flush;
      shown = now;
    }
    if (sweep.has_end_time()) {
      if (!PrintMessage(sweep, session)) session.out << TrialsTable(sweep, session.table_width());
      return ExitCodeOf(sweep);
    }
    if (interrupted.WaitFor(kPoll)) {
      session.err << "genesisctl: the watch ended; sweep " << id
                  << " goes on: see genesisctl trials " << id << ", or end it with genesisctl "
                  << "sweep-cancel " << id << "\n";
      return ExitCode::kFailure;
    }
  }
}

ExitCode WatchSweep(const std::string& id, Session& session) {
  SteadyNotification interrupted;
  session.interrupt.Set([&interrupted] { interrupted.Notify(); });
  const ExitCode code = FollowSweep(id, interrupted, session);
  session.interrupt.Clear();
  return code;
}

}  // namespace

ExitCode RunSweep(const Arguments& arguments, Session& session) {
  training::v1::CreateSweepRequest request;
  const std::string fault = ReadOptions(arguments, *request.mutable_spec());
  if (!fault.empty()) return ReportUsage(fault, session);
  const ExitCode read =
      ReadSubmittedJob(arguments, session, *request.mutable_spec()->mutable_job());
  if (read != ExitCode::kOk) return read;
  request.set_sweep_id(arguments.Value("sweep-id"));
  request.set_validate_only(arguments.Has("validate-only"));
  training::v1::CreateSweepResponse response;
  const grpc::Status status = Call(&Service::CreateSweep, request, response, session);
  if (!status.ok()) return ReportError(status, session);
  const Sweep& sweep = response.sweep();
  if (arguments.Has("watch")) return WatchSweep(sweep.id(), session);
  if (PrintMessage(sweep, session)) return ExitCode::kOk;
  session.out << (request.validate_only() ? absl::StrCat("the sweep of ", sweep.trial_count(),
                                                         " trials is valid and was not submitted\n")
                                          : Summary(sweep));
  return ExitCode::kOk;
}

ExitCode RunSweeps(const Arguments&, Session& session) {
  training::v1::ListSweepsResponse all;
  const grpc::Status status = ReadAllPages(
      training::v1::ListSweepsRequest(),
      [&](auto* context, const auto& asked, auto* page) {
        return session.service.ListSweeps(context, asked, page);
      },
      &all);
  if (!status.ok()) return ReportError(status, session);
  if (PrintMessage(all, session)) return ExitCode::kOk;
  Table table({"SWEEP", "STATE", ">ENDED", ">TRIALS", "METRIC", "OWNER", "CREATED"});
  for (const Sweep& each : all.sweeps()) {
    table.AddRow({Printable(each.id()), ShortEnumName(each.state()),
                  absl::StrCat(each.ended_trials()), absl::StrCat(each.trial_count()),
                  Printable(each.spec().metric()), Printable(each.owner()),
                  FormatTimestamp(each.create_time())});
  }
  session.out << (all.sweeps().empty() ? "no sweeps\n" : table.ToString(session.table_width()));
  return ExitCode::kOk;
}

ExitCode RunTrials(const Arguments& arguments, Session& session) {
  const std::string& id = arguments.operands.front();
  if (const std::string fault = NameFault("sweep", id); !fault.empty()) {
    return ReportUsage(fault, session);
  }
  if (arguments.Has("watch")) return WatchSweep(id, session);
  training::v1::GetSweepRequest request;
  request.set_sweep_id(id);
  training::v1::GetSweepResponse response;
  const grpc::Status status = Call(&Service::GetSweep, request, response, session);
  if (!status.ok()) return ReportError(status, session);
  if (!PrintMessage(response.sweep(), session)) {
    session.out << Summary(response.sweep())
                << TrialsTable(response.sweep(), session.table_width());
  }
  return ExitCode::kOk;
}

ExitCode RunSweepCancel(const Arguments& arguments, Session& session) {
  training::v1::CancelSweepRequest request;
  request.set_sweep_id(arguments.operands.front());
  if (const std::string fault = NameFault("sweep", request.sweep_id()); !fault.empty()) {
    return ReportUsage(fault, session);
  }
  training::v1::CancelSweepResponse response;
  const grpc::Status status = Call(&Service::CancelSweep, request, response, session);
  if (!status.ok()) return ReportError(status, session);
  if (!PrintMessage(response.sweep(), session)) session.out << Summary(response.sweep());
  return ExitCode::kOk;
}

}  // namespace genesis::cli
