// Settings of the store: how long things are kept, and how the database is checked.
#include "absl/strings/str_cat.h"
#include "config/settings/setting_values.h"
#include "config/settings/settings_rows.h"

namespace genesis {

std::vector<SettingRow> StoreRows() {
  using Text = const std::string&;
  return {
      {"retention.jobs", "GENESIS_RETENTION_JOBS", "10000", false, "jobs", "0 to 10000000",
       "Jobs that have ended are kept up to this number; those that ended first are forgotten with "
       "their events. Their checkpoints stay and are listed.",
       [](Text t, Settings& s) { return SetInt(t, 0, 10000000, s.retention_jobs); },
       [](const Settings& s) { return absl::StrCat(s.retention_jobs); }},
      {"retention.days", "GENESIS_RETENTION_DAYS", "0", false, "days", "0 to 36500",
       "Jobs that ended longer ago are forgotten likewise; 0 for no limit.",
       [](Text t, Settings& s) { return SetInt(t, 0, 36500, s.retention_days); },
       [](const Settings& s) { return absl::StrCat(s.retention_days); }},
      {"history.interval_seconds", "GENESIS_HISTORY_INTERVAL_SECONDS", "30", false, "seconds",
       "1 to 86400",
       "How often a row on each job that is on a worker is added to the table fp16_stats of "
       "<data_dir>/metrics.db; see docs/history.md.",
       [](Text t, Settings& s) { return SetInt(t, 1, 86400, s.history_interval_s); },
       [](const Settings& s) { return absl::StrCat(s.history_interval_s); }},
      {"history.retention_days", "GENESIS_HISTORY_RETENTION_DAYS", "30", false, "days",
       "1 to 36500", "Rows of that table that are older are removed.",
       [](Text t, Settings& s) { return SetInt(t, 1, 36500, s.history_days); },
       [](const Settings& s) { return absl::StrCat(s.history_days); }},
      {"store.check", "GENESIS_STORE_CHECK", "quick", false, "", "quick or full",
       "How the database is checked at start: quick reads its pages and is given up after a "
       "quarter "
       "of a second, so that a large store does not delay the start; full compares every index "
       "with its rows, however long that takes.",
       [](Text t, Settings& s) {
         std::string word;
         std::string accepted = SetWord(t, {"quick", "full"}, word);
         if (accepted.empty()) s.store_check_full = word == "full";
         return accepted;
       },
       [](const Settings& s) -> std::string { return s.store_check_full ? "full" : "quick"; }},
  };
}

}  // namespace genesis
