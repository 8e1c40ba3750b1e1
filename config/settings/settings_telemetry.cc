// Settings for the log, the history and OpenTelemetry.
#include <algorithm>

#include "absl/strings/string_view.h"
#include "config/settings/listen_address.h"
#include "config/settings/setting_group.h"
#include "config/settings/settings_rows.h"

namespace genesis {
namespace {

// A base URL without user, query and fragment, because it is logged and shown.
bool IsBaseUrl(absl::string_view text) {
  const size_t scheme = text.find("://");
  if (text.substr(0, scheme) != "http" && text.substr(0, scheme) != "https") return false;
  const absl::string_view rest = text.substr(scheme + 3);
  const bool printable = std::all_of(rest.begin(), rest.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
  if (!printable || rest.find_first_of("?#@\\\"") != absl::string_view::npos) return false;
  const std::string host(rest.substr(0, rest.find('/')));
  const bool has_port = host.rfind(':') != std::string::npos && host.back() != ']';
  return ParseHostPort(has_port ? host : absl::StrCat(host, ":80")).has_value();
}

}  // namespace

std::vector<SettingRow> TelemetryRows() {
  constexpr int kCentury = 36500;
  constexpr int64_t kPebibyte = int64_t{1} << 50;
  SettingGroup log(
      "log", [](auto& s) -> auto& { return s.log; });
  log.Path("file", &LogSettings::file, "<data_dir>/log/orchestrator.log",
           "File that the log is appended to; the log goes to stderr too.")
      .Add("level", &LogSettings::level, OneOfWords({"debug", "info", "warning", "error"}), "",
           "The least important message that is logged.")
      .Reloadable()
      .Add(
          "format", &LogSettings::format, OneOfWords({"text", "json"}), "",
          "Form of a record: a line of text, or a JSON object with time, level, message and, if it "
          "is about a job, job_id, owner, trace_id and span_id.");
  SettingGroup history(
      "history", [](auto& s) -> auto& { return s.history; });
  history
      .Number("interval_seconds", &HistorySettings::interval_seconds, {1, 86400}, "seconds",
              "How often a row on each job that is on a worker is added to the table fp16_stats of "
              "<data_dir>/metrics.db; see docs/history.md.")
      .Number("retention_days", &HistorySettings::retention_days, {1, kCentury}, "days",
              "Rows of that table that are older are removed.")
      .Number("max_curves_bytes", &HistorySettings::max_curves_bytes, {0, kPebibyte}, "bytes",
              "Total size of the curves of all jobs, in <checkpoints.dir>; beyond it, the steps of "
              "the jobs that ended longest ago are kept more coarsely.");
  SettingGroup otlp(
      "otlp", [](auto& s) -> auto& { return s.otlp; });
  otlp.Text(
      "endpoint", &OtlpSettings::endpoint,
      OptionalText("a base URL, such as http://127.0.0.1:4318", &IsBaseUrl), "URL", "(none)",
      "Base URL of an OpenTelemetry collector. Spans of jobs are sent to /v1/traces below it, "
      "and metrics once a minute to /v1/metrics, as OTLP/HTTP with JSON; see "
      "docs/tracing.md. Nothing is sent without it.");
  return RowsOf(log, history, otlp);
}

}  // namespace genesis
