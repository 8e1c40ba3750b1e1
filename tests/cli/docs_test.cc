// Tests that docs/job_file.md matches the programs.
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/text/yaml_document.h"
#include "config/job/job_file.h"
#include "config/job/job_spec.h"
#include "config/precision/gate.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace genesis {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::HasSubstr;
using training::v1::JobSpec;

std::string ReadPage(const std::string& name) {
  const absl::StatusOr<std::string> page = ReadTextFile(GENESIS_DOCS_DIR "/" + name);
  EXPECT_TRUE(page.ok()) << page.status();
  return page.value_or("");
}

std::vector<std::string> YamlBlocks(const std::string& page) {
  std::vector<std::string> blocks;
  bool inside = false;
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    if (!inside && line == "```yaml") {
      inside = true;
      blocks.emplace_back();
    } else if (line == "```") {
      inside = false;
    } else if (inside) {
      blocks.back().append(line.data(), line.size()).append("\n");
    }
  }
  return blocks;
}

TEST(JobFilePageTest, HoldsOnlyJobsThatAreRead) {
  const std::vector<std::string> blocks = YamlBlocks(ReadPage("job_file.md"));
  ASSERT_EQ(blocks.size(), 3u);
  for (const std::string& block : blocks) {
    const absl::StatusOr<JobSpec> spec = ParseJobFile(block, "job_file.md");
    EXPECT_TRUE(spec.ok()) << spec.status();
  }
}

void ExpectNamed(const google::protobuf::Descriptor& type, const std::string& text) {
  for (int i = 0; i < type.field_count(); ++i) {
    EXPECT_THAT(text, HasSubstr(type.field(i)->name()));
    if (type.field(i)->message_type() != nullptr) ExpectNamed(*type.field(i)->message_type(), text);
  }
}

TEST(JobFilePageTest, NamesEveryKeyAndShowsItsDefault) {
  const std::string block = YamlBlocks(ReadPage("job_file.md")).at(1);
  // For other kinds of models and data, and for rehearsals, job_file.md refers to these pages.
  ExpectNamed(*JobSpec::descriptor(),
              absl::StrCat(block, ReadPage("models.md"), ReadPage("data.md"),
                           ReadPage("mixed_precision.md")));
  const JobSpec shown = ParseJobFile(block, "job_file.md").value();
  JobSpec defaults = shown;
  defaults.mutable_model()->mutable_world_model()->Clear();
  defaults.mutable_dataset()->mutable_trajectories()->clear_holdout_fraction();
  defaults.mutable_dataset()->clear_memory_limit_bytes();
  defaults.mutable_dataset()->clear_sampling();
  defaults.mutable_training()->Clear();
  defaults.mutable_training()->set_epochs(shown.training().epochs());
  defaults.clear_optimizer();
  defaults.clear_precision();
  defaults.mutable_precision()->set_mode(shown.precision().mode());
  defaults.mutable_checkpoint()->clear_keep_last();
  defaults.mutable_checkpoint()->clear_keep_best();
  defaults.clear_max_restarts();
  defaults.clear_scheduling();
  defaults.mutable_trace()->clear_steps();
  EXPECT_TRUE(MessageDifferencer::Equals(shown, WithDefaults(defaults, LossScaleSettings())));
}

TEST(JobFilePageTest, ShowsFaultsAsTheyArePrinted) {
  const absl::Status status =
      ParseJobFile(
          "model: {world_model: {}}\ndataset: {trajectories: {path: a.npz}}\ntraining:\n"
          "  max_steps: 5\n  batch_size: -4\n  learning_rate: 1\n",
          "job.yaml")
          .status();
  EXPECT_THAT(ReadPage("job_file.md"),
              HasSubstr("```\n" + std::string(status.message()) + "\n```"));
}

}  // namespace
}  // namespace genesis
