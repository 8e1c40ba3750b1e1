#include "server/logging.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "spdlog/sinks/basic_file_sink.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace genesis {

absl::Status InitLogging(const std::string& file, const std::string& level) {
  std::vector<spdlog::sink_ptr> sinks = {std::make_shared<spdlog::sinks::stderr_color_sink_mt>()};
  try {
    sinks.push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(file));
  } catch (const spdlog::spdlog_ex& error) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cannot open the log file ", file, ": ", error.what(), "; choose another with --log-file"));
  }
  auto logger = std::make_shared<spdlog::logger>("genesisd", sinks.begin(), sinks.end());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %^%l%$ %v");
  logger->set_level(spdlog::level::from_str(level));
  // The last line before a crash is the one that is needed.
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

}  // namespace genesis
