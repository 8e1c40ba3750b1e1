#include "server/api/runtime_config.h"

#include <sys/stat.h>

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/settings/settings_table.h"
#include "spdlog/spdlog.h"

namespace genesis {
namespace {

using training::v1::GetConfigResponse;
using training::v1::ReloadConfigResponse;
using training::v1::SettingValue;

SettingValue ValueOf(const EffectiveSetting& effective) {
  SettingValue value;
  value.set_key(effective.key);
  value.set_value(effective.value);
  value.set_source(effective.source);
  const SettingRow* row = FindByKey(effective.key);
  value.set_reloadable(row != nullptr && row->reloadable);
  return value;
}

// Returns the settings in `next` whose values differ from `now`.
std::vector<SettingValue> Changes(const LoadedSettings& now, const LoadedSettings& next) {
  std::map<std::string, std::string> before;
  for (const EffectiveSetting& each : now.effective) before[each.key] = each.value;
  std::vector<SettingValue> changes;
  for (const EffectiveSetting& each : next.effective) {
    if (before[each.key] != each.value) changes.push_back(ValueOf(each));
  }
  return changes;
}

absl::Status CheckReloadable(const std::vector<SettingValue>& changes) {
  std::vector<std::string> faults;
  for (const SettingValue& change : changes) {
    if (change.reloadable()) continue;
    faults.push_back(absl::StrCat(change.key(), " would become ", QuoteValue(change.value()), " (",
                                  change.source(),
                                  "), which needs a restart; restart genesisd, or take the change "
                                  "back and reload"));
  }
  if (faults.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrJoin(faults, "\n"));
}

// Returns the metadata of the files that `settings` names, without reading them.
std::string LookOf(const Settings& settings) {
  std::string look;
  for (const std::string& path :
       {settings.tls.certificate_file, settings.tls.key_file, settings.tls.client_ca_file,
        settings.auth.tokens_file, settings.auth.jwks_file, settings.webhooks.file}) {
    struct stat info = {};
    if (path.empty() || stat(path.c_str(), &info) != 0) {
      look += "-;";
    } else {
      absl::StrAppend(&look, info.st_ino, ":", info.st_size, ":", info.st_mtim.tv_sec, ".",
                      info.st_mtim.tv_nsec, ":", info.st_mode, ";");
    }
  }
  return look;
}

}  // namespace

RuntimeConfig::RuntimeConfig(LoadedSettings loaded, Metrics* metrics)
    : metrics_(metrics),
      loaded_(std::move(loaded)),
      files_in_use_(LookOf(loaded_.settings)),
      files_seen_(files_in_use_) {}

Settings RuntimeConfig::settings() const {
  absl::MutexLock lock(&mutex_);
  return loaded_.settings;
}

GetConfigResponse RuntimeConfig::Get() const {
  GetConfigResponse response;
  absl::MutexLock lock(&mutex_);
  for (const EffectiveSetting& each : loaded_.effective) *response.add_settings() = ValueOf(each);
  for (const std::string& error : loaded_.settings.gate.errors) response.add_warnings(error);
  for (const std::string& warning : loaded_.warnings) response.add_warnings(warning);
  for (const std::string& note : InsecureNotes(loaded_.settings)) response.add_warnings(note);
  return response;
}

void RuntimeConfig::Request(bool validate_only, const Callback<ReloadConfigResponse>& callback) {
  {
    absl::MutexLock lock(&mutex_);
    if (!closed_) {
      pending_.push_back({validate_only, callback});
      return;
    }
  }
  callback(absl::UnavailableError("the daemon is draining; try again when it has started anew"));
}

void RuntimeConfig::Close() {
  std::deque<PendingReload> pending;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    pending.swap(pending_);
  }
  for (const PendingReload& request : pending) {
    request.callback(
        absl::UnavailableError("the daemon is draining; try again when it has started anew"));
  }
}

void RuntimeConfig::Tend() {
  std::deque<PendingReload> pending;
  {
    absl::MutexLock lock(&mutex_);
    pending.swap(pending_);
  }
  for (const PendingReload& request : pending) request.callback(Reload(request.validate_only));
  LookAtFiles();
}

absl::StatusOr<ReloadConfigResponse> RuntimeConfig::Reload(bool validate_only) {
  absl::StatusOr<ReloadConfigResponse> response = TryReload(validate_only);
  if (!validate_only) Count(response.status(), "the configuration");
  return response;
}

absl::StatusOr<ReloadConfigResponse> RuntimeConfig::TryReload(bool validate_only) {
  LoadedSettings now;
  {
    absl::MutexLock lock(&mutex_);
    now = loaded_;
  }
  if (!now.again) {
    return absl::FailedPreconditionError(
        "this daemon was given its settings by a program, which has no file to read again");
  }
  // `look` is taken before PrepareAll reads the files, so that a later change is detected.
  LoadedSettings next = now.again();
  const std::string look = LookOf(next.settings);
  if (!next.errors.empty()) return ToStatus(next.errors);
  const std::vector<SettingValue> changes = Changes(now, next);
  const absl::Status possible = CheckReloadable(changes);
  if (!possible.ok()) return possible;
  const absl::StatusOr<std::vector<Commit>> commits = PrepareAll(next.settings);
  if (!commits.ok()) return commits.status();
  ReloadConfigResponse response;
  for (const SettingValue& change : changes) *response.add_changed() = change;
  if (validate_only) return response;
  for (const Commit& commit : *commits) commit();
  for (const SettingValue& change : changes) {
    spdlog::info("{} is now {} ({})", change.key(), change.value(), change.source());
  }
  for (const std::string& warning : next.warnings) spdlog::warn("{}", warning);
  files_in_use_ = files_seen_ = look;
  absl::MutexLock lock(&mutex_);
  loaded_ = std::move(next);
  return response;
}

absl::StatusOr<std::vector<RuntimeConfig::Commit>> RuntimeConfig::PrepareAll(
    const Settings& next) const {
  std::vector<Commit> commits;
  std::vector<std::string> faults;
  absl::StatusCode code = absl::StatusCode::kOk;
  for (const Prepare& prepare : parts_) {
    absl::StatusOr<Commit> commit = prepare(next);
    if (commit.ok()) {
      commits.push_back(*std::move(commit));
      continue;
    }
    // An unreadable file is an invalid argument of the reload, whatever the error.
    const bool restart = absl::IsFailedPrecondition(commit.status());
    if (!restart || code == absl::StatusCode::kOk) {
      code = restart ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kInvalidArgument;
    }
    faults.emplace_back(commit.status().message());
  }
  if (!faults.empty()) return absl::Status(code, absl::StrJoin(faults, "\n"));
  return commits;
}

void RuntimeConfig::Count(const absl::Status& status, const std::string& what) {
  metrics_->ConfigReloaded(status.ok());
  if (status.ok()) {
    spdlog::info("reloaded {}", what);
  } else {
    spdlog::error("failed to reload {}; keeping the current settings: {}", what,
                  std::string(status.message()));
  }
}

void RuntimeConfig::LookAtFiles() {
  const Settings now = settings();
  const std::string look = LookOf(now);
  const bool settled = look == files_seen_;
  files_seen_ = look;
  if (look == files_in_use_ || !settled) return;
  // Set even on failure, because the same files would fail again and fill the log.
  files_in_use_ = look;
  const absl::StatusOr<std::vector<Commit>> commits = PrepareAll(now);
  if (commits.ok()) {
    for (const Commit& commit : *commits) commit();
  }
  Count(commits.status(), "a file of tokens, keys, certificates or webhooks");
}

}  // namespace genesis
