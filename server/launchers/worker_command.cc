#include "server/launchers/worker_command.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/local_address.h"
#include "config/settings/listen_address.h"

namespace genesis {

std::vector<std::string> WorkerWords(const WorkerCommand& command, const std::string& reservation,
                                     int threads) {
  const LauncherSettings& settings = command.settings;
  std::vector<std::string> words = {settings.worker_program,
                                    "--daemon",
                                    settings.daemon_address,
                                    "--checkpoint-dir",
                                    command.checkpoints_dir,
                                    "--reservation",
                                    reservation};
  const std::pair<const char*, const std::string&> files[] = {{"--token-file", settings.token_file},
                                                              {"--tls-ca", settings.tls_ca},
                                                              {"--tls-cert", settings.tls_cert},
                                                              {"--tls-key", settings.tls_key}};
  for (const auto& [flag, path] : files) {
    if (!path.empty()) words.insert(words.end(), {flag, path});
  }
  if (threads > 0) words.insert(words.end(), {"--threads", absl::StrCat(threads)});
  return words;
}

std::string DaemonAddressFor(const std::string& given, const std::string& listens) {
  if (!given.empty()) return given;
  const std::optional<HostPort> parsed = ParseHostPort(listens);
  if (!parsed.has_value() || (parsed->host != "0.0.0.0" && parsed->host != "::")) return listens;
  return absl::StrCat(HostName(), ":", parsed->port);
}

}  // namespace genesis
