// Settings for paths: data, datasets, checkpoints.
#include "config/settings/setting_group.h"
#include "config/settings/settings_rows.h"

namespace genesis {

std::vector<SettingRow> FileRows() {
  constexpr int64_t kPebibyte = int64_t{1} << 50;
  SettingGroup top(
      "", [](auto& s) -> auto& { return s; });
  top.Add("data_dir", &Settings::data_dir, RequiredPath(), "path",
          "Folder of everything that this daemon keeps: database, logs, datasets, checkpoints.")
      .Add("deployment", &Settings::deployment, OneOfWords({"stable", "canary"}), "",
           "Value of the label `deployment` on every metric.");
  SettingGroup datasets(
      "datasets", [](auto& s) -> auto& { return s.datasets; });
  datasets
      .Path("root", &DatasetSettings::root, "<data_dir>/datasets",
            "Folder that the dataset paths of jobs are relative to and may not leave.")
      .Number("max_uploads_bytes", &DatasetSettings::max_uploads_bytes, {0, kPebibyte}, "bytes",
              "Total size of the files that clients have uploaded, in <datasets.root>/uploads; "
              "another one is refused with RESOURCE_EXHAUSTED. 0 for no uploads.");
  SettingGroup checkpoints(
      "checkpoints", [](auto& s) -> auto& { return s.checkpoints; });
  checkpoints
      .Path("dir", &CheckpointSettings::dir, "<data_dir>/checkpoints",
            "Folder that checkpoints are written to.")
      .Number("max_import_bytes", &CheckpointSettings::max_import_bytes, {1, kPebibyte}, "bytes",
              "Size of the largest file that ImportCheckpoint takes; a larger one is refused with "
              "RESOURCE_EXHAUSTED.");
  return RowsOf(top, datasets, checkpoints);
}

}  // namespace genesis
