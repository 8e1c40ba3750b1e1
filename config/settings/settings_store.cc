// Settings for the store: retention, and the check of the database.
#include "config/settings/setting_group.h"
#include "config/settings/settings_rows.h"

namespace genesis {

std::vector<SettingRow> StoreRows() {
  constexpr int kCentury = 36500;
  SettingGroup retention(
      "retention", [](auto& s) -> auto& { return s.retention; });
  retention
      .Number("jobs", &RetentionSettings::jobs, {0, 10000000}, "jobs",
              "Jobs that have ended are kept up to this number; those that ended first are "
              "forgotten with their events. Their checkpoints stay and are listed.")
      .Number("days", &RetentionSettings::days, {0, kCentury}, "days",
              "Jobs that ended longer ago are forgotten likewise; 0 for no limit.");
  SettingGroup store(
      "store", [](auto& s) -> auto& { return s.store; });
  store.Add("check", &StoreSettings::full_check, OneOf<bool>({{"quick", false}, {"full", true}}),
            "",
            "How the database is checked at start: quick reads its pages and is given up after a "
            "quarter of a second, so that a large store does not delay the start; full compares "
            "every index with its rows, however long that takes.");
  return RowsOf(retention, store);
}

}  // namespace genesis
