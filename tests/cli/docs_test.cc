// docs/job_file.md and docs/errors.md say what the programs do.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text/yaml_document.h"
#include "cli/commands/arguments.h"
#include "config/job/job_file.h"
#include "config/job/job_spec.h"
#include "config/precision/gate.h"
#include "config/settings/settings.h"
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
  ASSERT_EQ(blocks.size(), 4u);
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
  // It names these pages for the other kinds of model and data, and for rehearsals.
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

// The fixed words of a row's first column, around its "<...>".
std::vector<std::string> FixedWords(absl::string_view text) {
  std::vector<std::string> words = {""};
  bool inside = false;
  for (size_t i = 0; i < text.size(); ++i) {
    // '<' before a letter begins a placeholder; in "< 1" it is text.
    if (text[i] == '<' && i + 1 < text.size() && absl::ascii_isalpha(text[i + 1])) {
      inside = true;
    } else if (inside && text[i] == '>') {
      inside = false;
      words.emplace_back();
    } else if (!inside) {
      words.back() += text[i];
    }
  }
  return words;
}

// True when `text` is the fixed words in their order with something between each two.
bool MatchesRow(absl::string_view text, const std::vector<std::string>& words) {
  if (words.size() == 1) return text == words.front();
  if (!absl::ConsumePrefix(&text, words.front())) return false;
  if (!absl::ConsumeSuffix(&text, words.back())) return false;
  for (size_t i = 1; i + 1 < words.size(); ++i) {
    const size_t at = text.find(words[i], 1);
    if (at == absl::string_view::npos) return false;
    text.remove_prefix(at + words[i].size());
  }
  return !text.empty();
}

std::vector<std::vector<std::string>> ErrorRows() {
  std::vector<std::vector<std::string>> rows;
  const std::string page = ReadPage("errors.md");
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    // The row for whatever a daemon answers would match everything.
    if (!absl::StartsWith(line, "| `") || absl::StartsWith(line, "| `<CODE>:")) continue;
    rows.push_back(FixedWords(line.substr(3, line.find("` |") - 3)));
  }
  return rows;
}

// Without the place before a fault in a file, which the page describes once above its tables.
absl::string_view WithoutPlace(absl::string_view fault) {
  if (!absl::ConsumePrefix(&fault, "job.yaml:")) return fault;
  while (!fault.empty() && (absl::ascii_isdigit(fault[0]) || fault[0] == ':')) {
    fault.remove_prefix(1);
  }
  absl::ConsumePrefix(&fault, " ");
  return fault;
}

// Messages that programs print, one fault each.
std::vector<std::string> PrintedFaults() {
  const auto nothing = [](const std::string&) { return std::nullopt; };
  const auto open_gate = [](const std::string& name) -> std::optional<std::string> {
    if (name == "ENABLE_FP16_TRAINING") return "Yes";
    if (name == "FEATURE_FLAGS") return "fp16_training";
    if (name == "FP16_LOSS_SCALE") return "big";
    return std::nullopt;
  };
  std::vector<std::string> faults = ReadPrecisionGate(open_gate, true).errors;
  const std::vector<std::string> flags = {"--grpc-listen=0.0.0.0:1",
                                          "--http-listen=1",
                                          "--data-dir=~/x",
                                          "--nope",
                                          "--grpc-listn=1",
                                          "word",
                                          "--help=1",
                                          "--config=/nowhere",
                                          "--queue-max-jobs=many",
                                          "--log-level"};
  const LoadedSettings loaded = LoadSettings(flags, open_gate, "/");
  for (const FieldError& error : loaded.errors) faults.push_back(error.ToString());
  faults.insert(faults.end(), loaded.warnings.begin(), loaded.warnings.end());
  for (const std::string yaml :
       {"", "- a", "a: b: c", "a: 1\n---\nb: 1", "'\xff'", "model: 1\nmodel: 2\nzzz: 1\nepochs: 1",
        "? [a]\n: 1", "training: {epochs: 1, max_steps: 2, seed: many}\nmax_restarts: 1001",
        "precision: {mode: AUTO}\ndataset: {trajectories: {path: ../a}}\nmodle:",
        "precision: {mode: FP32, loss_scale: 1}\ndataset: {trajectories: }"}) {
    const std::string message(ParseJobFile(yaml, "job.yaml").status().message());
    for (const absl::string_view line : absl::StrSplit(message, '\n')) faults.emplace_back(line);
  }
  faults.push_back(JobIdFault("A"));
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{},
                                             {"jbs"},
                                             {"xyzzy"},
                                             {"jobs", "--stat=a"},
                                             {"jobs", "--xyzzy"},
                                             {"jobs", "--watch"},
                                             {"jobs", "--state"},
                                             {"train", "--watch=1"},
                                             {"job"},
                                             {"job", "a", "b"},
                                             {"jobs", "--output=xml", "--server=x"}}) {
    for (const std::string& error : cli::ParseArguments(args, nothing).errors) {
      faults.push_back(error);
    }
  }
  return faults;
}

TEST(ErrorsPageTest, HasARowForWhatIsPrinted) {
  const std::vector<std::vector<std::string>> rows = ErrorRows();
  EXPECT_GT(rows.size(), 50u);
  const std::vector<std::string> faults = PrintedFaults();
  EXPECT_GT(faults.size(), 40u);
  for (const std::string& fault : faults) {
    const bool found = std::any_of(rows.begin(), rows.end(), [&fault](const auto& row) {
      return MatchesRow(fault, row) || MatchesRow(WithoutPlace(fault), row);
    });
    EXPECT_TRUE(found) << "docs/errors.md has no row for: " << fault;
  }
}

}  // namespace
}  // namespace genesis
