#include "server/logging.h"

#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/text/json.h"
#include "base/text/text.h"
#include "server/base/job_log.h"
#include "server/base/trace_context.h"
#include "spdlog/details/file_helper.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

// A sink like spdlog's basic_file_sink that replaces the old file only once the new one is open.
class LogFile final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit LogFile(std::string path) : path_(std::move(path)), file_(Open(path_)) {}

  void Reopen() {
    std::unique_ptr<spdlog::details::file_helper> file = Open(path_);
    const std::lock_guard<std::mutex> lock(mutex_);
    file_.swap(file);
  }

 private:
  // Throws spdlog_ex if the file cannot be opened.
  static std::unique_ptr<spdlog::details::file_helper> Open(const std::string& path) {
    auto file = std::make_unique<spdlog::details::file_helper>();
    file->open(path, /*truncate=*/false);
    return file;
  }
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    file_->write(line);
  }
  void flush_() override { file_->flush(); }

  const std::string path_;
  std::unique_ptr<spdlog::details::file_helper> file_;
};

// Twice the longest message, that of a failure, to leave space for the text around it.
constexpr size_t kMaxRecordBytes = 2 * kMaxMessageBytes;

// Returns the message as one bounded line, because callers and workers can choose parts of its
// text. Only the daemon itself can start a record.
std::string Bounded(const spdlog::details::log_msg& message) {
  return OneLine(absl::string_view(message.payload.data(), message.payload.size()),
                 kMaxRecordBytes);
}

// The flag of a text pattern that writes the message.
class OneLineMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& line) override {
    const JobLog* const job = JobLog::Current();
    const std::string text = job == nullptr
                                 ? Bounded(message)
                                 : absl::StrCat("job ", job->job_id(), ": ", Bounded(message));
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<OneLineMessage>();
  }
};

// A formatter that writes one JSON object per line, for log collectors.
class JsonLines final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& line) override {
    Json record;
    record["time"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromChrono(message.time),
                                      absl::UTCTimeZone());
    record["level"] = LevelName(message.level);
    record["message"] = Bounded(message);
    if (const JobLog* const job = JobLog::Current()) {
      record["job_id"] = job->job_id();
      if (!job->owner().empty()) record["owner"] = job->owner();
      if (const std::optional<TraceContext> trace = job->trace()) {
        record["trace_id"] = trace->trace_id;
        record["span_id"] = trace->span_id;
      }
    }
    const std::string text = record.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<formatter> clone() const override { return std::make_unique<JsonLines>(); }

 private:
  static std::string LevelName(spdlog::level::level_enum level) {
    const spdlog::string_view_t name = spdlog::level::to_string_view(level);
    return {name.data(), name.size()};
  }
};

std::unique_ptr<spdlog::formatter> MakeFormatter(const std::string& format) {
  if (format == "json") return std::make_unique<JsonLines>();
  auto formatter = std::make_unique<spdlog::pattern_formatter>(spdlog::pattern_time_type::utc);
  formatter->add_flag<OneLineMessage>('*').set_pattern("%Y-%m-%dT%H:%M:%S.%e+00:00 %^%l%$ %*");
  return formatter;
}

std::shared_ptr<LogFile>& OpenLogFile() {
  static auto& file = *new std::shared_ptr<LogFile>;
  return file;
}

absl::Status CannotOpen(const std::string& what) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot open the log file ", what, "; choose another with --log-file"));
}

}  // namespace

absl::Status InitLogging(const LogSettings& settings) {
  std::vector<spdlog::sink_ptr> sinks = {std::make_shared<spdlog::sinks::stderr_color_sink_mt>()};
  try {
    OpenLogFile() = std::make_shared<LogFile>(settings.file);
  } catch (const spdlog::spdlog_ex& error) {
    return CannotOpen(absl::StrCat(settings.file, ": ", error.what()));
  }
  sinks.push_back(OpenLogFile());
  auto logger = std::make_shared<spdlog::logger>("genesisd", sinks.begin(), sinks.end());
  logger->set_formatter(MakeFormatter(settings.format));
  logger->set_level(spdlog::level::from_str(settings.level));
  // The last line before a crash must reach the file.
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

void SetLogLevel(const std::string& level) {
  spdlog::default_logger()->set_level(spdlog::level::from_str(level));
}

absl::Status ReopenLog() {
  try {
    OpenLogFile()->Reopen();
  } catch (const spdlog::spdlog_ex& error) {
    return CannotOpen(error.what());
  }
  return absl::OkStatus();
}

}  // namespace genesis
