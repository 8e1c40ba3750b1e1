// The `history` command.
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/sql_time.h"
#include "base/text/enum_names.h"
#include "base/text/field_error.h"
#include "base/timestamp.h"
#include "cli/commands/commands.h"
#include "cli/table.h"
#include "cli/text.h"
#include "config/precision/precision.h"

namespace genesis::cli {
namespace {

using training::v1::GetHistoryRequest;
using training::v1::GetHistoryResponse;
using training::v1::HistoryRow;

constexpr int kPageSize = 1000;
constexpr char kCsvHeader[] =
    "timestamp,job_id,step,mode,loss,baseline_loss,loss_scale,training_steps,fp16_steps,"
    "overflow_steps,overflow_rate,fp16_enabled,memory_allocated_bytes,samples_per_second,state,"
    "divergence_ratio,held_out_loss,divergences\n";

// Parses an age such as "7d". Returns InfiniteDuration for "all", nullopt if it is invalid.
std::optional<absl::Duration> ParseAge(const std::string& text) {
  if (text == "all") return absl::InfiniteDuration();
  // Require digits and one letter.
  if (text.empty() || text.find_first_not_of("0123456789") != text.size() - 1) return std::nullopt;
  constexpr std::pair<char, int64_t> kUnits[] = {
      {'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};
  constexpr int64_t kMax = 1000000;
  for (const auto& [unit, seconds] : kUnits) {
    int64_t count = 0;
    if (text.back() != unit || !absl::SimpleAtoi(text.substr(0, text.size() - 1), &count)) continue;
    if (count >= 1 && count <= kMax) return absl::Seconds(count * seconds);
  }
  return std::nullopt;
}

std::string TimeText(const HistoryRow& row) { return FormatSqlTime(FromTimestamp(row.time())); }

std::string ModeText(const HistoryRow& row, const char* none) {
  return row.mode() == training::v1::PRECISION_MODE_UNSPECIFIED ? none : ShortEnumName(row.mode());
}

// Formats a row as `sqlite3 -csv` does: values that were not measured are empty.
std::string CsvLine(const HistoryRow& row) {
  const auto real = [](bool measured, double value) {
    return measured ? FormatNumber(value) : std::string();
  };
  return absl::StrJoin(
             {TimeText(row), row.job_id(), absl::StrCat(row.step()), ModeText(row, ""),
              real(row.has_loss(), row.loss()), real(row.has_baseline_loss(), row.baseline_loss()),
              real(row.has_loss_scale(), row.loss_scale()), absl::StrCat(row.training_steps()),
              absl::StrCat(row.fp16_steps()), absl::StrCat(row.overflow_steps()),
              real(row.has_overflow_rate(), row.overflow_rate()),
              absl::StrCat(row.fp16_enabled() ? 1 : 0),
              row.has_memory_allocated_bytes() ? absl::StrCat(row.memory_allocated_bytes()) : "",
              real(row.has_samples_per_second(), row.samples_per_second()),
              ShortEnumName(row.state()), real(row.has_divergence_ratio(), row.divergence_ratio()),
              real(row.has_held_out_loss(), row.held_out_loss()),
              row.has_divergences() ? absl::StrCat(row.divergences()) : ""},
             ",") +
         "\n";
}

void AddRow(const HistoryRow& row, Table& table) {
  const auto figure = [](bool measured, double value) {
    return measured ? FormatFigure(value) : std::string("-");
  };
  table.AddRow({TimeText(row), Printable(row.job_id()), ShortEnumName(row.state()),
                absl::StrCat(row.step()), ModeText(row, "-"), figure(row.has_loss(), row.loss()),
                figure(row.has_baseline_loss(), row.baseline_loss()),
                figure(row.has_loss_scale(), row.loss_scale()),
                row.has_overflow_rate() ? absl::StrFormat("%.2f %%", 100 * row.overflow_rate())
                                        : std::string("-"),
                row.has_samples_per_second() ? absl::StrFormat("%.0f", row.samples_per_second())
                                             : std::string("-")});
}

}  // namespace

ExitCode RunHistory(const Arguments& arguments, Session& session) {
  const std::string since = arguments.Has("since") ? arguments.Value("since") : "24h";
  const std::optional<absl::Duration> age = ParseAge(since);
  if (!age) {
    return ReportUsage(absl::StrCat("--since is ", QuoteValue(since),
                                    "; accepted: a number with s, m, h, d or w such as 7d, or all"),
                       session);
  }
  const bool csv = arguments.Has("csv");
  if (csv && session.output != OutputFormat::kTable) {
    return ReportUsage("--csv and --output are two forms; give one of them", session);
  }
  GetHistoryRequest request;
  request.set_job_id(arguments.Value("job"));
  request.set_page_size(kPageSize);
  if (*age != absl::InfiniteDuration())
    *request.mutable_since() = ToTimestamp(session.now() - *age);
  Table table({"TIME", "JOB", "STATE", ">STEP", "MODE", ">LOSS", ">FP32 LOSS", ">SCALE",
               ">OVERFLOW", ">SAMPLES/S"});
  GetHistoryResponse all;
  if (csv) session.out << kCsvHeader;
  do {
    GetHistoryResponse page;
    const grpc::Status status = Call(&Service::GetHistory, request, page, session);
    if (!status.ok()) return ReportError(status, session);
    request.set_page_token(page.next_page_token());
    page.clear_next_page_token();
    for (const HistoryRow& row : page.rows()) {
      if (csv) session.out << CsvLine(row);
      if (session.output == OutputFormat::kTable && !csv) AddRow(row, table);
    }
    if (session.output != OutputFormat::kTable) all.MergeFrom(page);
  } while (!request.page_token().empty());
  if (!csv && !PrintMessage(all, session)) session.out << table.ToString(session.table_width());
  return ExitCode::kOk;
}

}  // namespace genesis::cli
