#include "server/logging.h"

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text/text.h"
#include "spdlog/details/file_helper.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

// Like spdlog's basic_file_sink, but replaces the old file only once the new one is open.
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

// A formatter that writes the message as one bounded line, because callers and workers can choose
// parts of its text. Only the daemon itself can start a record.
class OneLineMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& line) override {
    const std::string text =
        OneLine(absl::string_view(message.payload.data(), message.payload.size()), kMaxRecordBytes);
    line.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<OneLineMessage>();
  }

 private:
  // Twice the longest message, that of a failure, to leave space for the text around it.
  static constexpr size_t kMaxRecordBytes = 2 * kMaxMessageBytes;
};

std::unique_ptr<spdlog::formatter> MakeFormatter() {
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

absl::Status InitLogging(const std::string& file, const std::string& level) {
  std::vector<spdlog::sink_ptr> sinks = {std::make_shared<spdlog::sinks::stderr_color_sink_mt>()};
  try {
    OpenLogFile() = std::make_shared<LogFile>(file);
  } catch (const spdlog::spdlog_ex& error) {
    return CannotOpen(absl::StrCat(file, ": ", error.what()));
  }
  sinks.push_back(OpenLogFile());
  auto logger = std::make_shared<spdlog::logger>("genesisd", sinks.begin(), sinks.end());
  logger->set_formatter(MakeFormatter());
  logger->set_level(spdlog::level::from_str(level));
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
