// Tests of job files and their parsing: scalars, nearest keys, YAML to messages.
#include "config/job/job_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/text/nearest.h"
#include "base/text/scalars.h"
#include "base/text/yaml_document.h"
#include "config/job/yaml_to_message.h"
#include "genesis/training/v1/worker_service.pb.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"

namespace genesis {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::HasSubstr;
using training::v1::JobSpec;

constexpr char kFullJob[] = R"(# A whole job.
model:
  world_model:
    hidden_size: 512
    latent_size: 32
dataset:
  trajectories:
    path: walks/hopper.npz
    holdout_fraction: 0.25
training:
  max_steps: 1000
  batch_size: 64
  gradient_accumulation_steps: 2
  max_grad_norm: -1
  seed: 18446744073709551615
optimizer:
  learning_rate: 3e-4
  beta1: .8
  beta2: 0.95
  epsilon: 1e-7
  weight_decay: -1
precision:
  mode: MIXED_FP16
  loss_scale: 1024
  growth_factor: 4
  backoff_factor: 0.25
  growth_interval: 100
checkpoint:
  every_steps: 50
  keep_last: 5
max_restarts: 0
)";

// Returns a job file whose first two lines are valid, followed by `rest`.
std::string Job(const std::string& rest) {
  return "model: {world_model: {}}\ndataset: {trajectories: {path: a.npz}}\n" + rest;
}

std::string Fault(const std::string& yaml) {
  const absl::StatusOr<JobSpec> spec = ParseJobFile(yaml, "job.yaml");
  if (spec.ok()) return "no fault";
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(spec.status().message());
}

TEST(JobFileTest, ReadsEveryField) {
  const absl::StatusOr<JobSpec> spec = ParseJobFile(kFullJob, "job.yaml");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->model().world_model().hidden_size(), 512);
  EXPECT_EQ(spec->model().world_model().latent_size(), 32);
  EXPECT_EQ(spec->dataset().trajectories().path(), "walks/hopper.npz");
  EXPECT_EQ(spec->dataset().trajectories().holdout_fraction(), 0.25);
  EXPECT_EQ(spec->training().max_steps(), 1000);
  EXPECT_EQ(spec->training().batch_size(), 64);
  EXPECT_EQ(spec->training().gradient_accumulation_steps(), 2);
  EXPECT_EQ(spec->training().max_grad_norm(), -1);
  EXPECT_EQ(spec->training().seed(), ~uint64_t{0});
  EXPECT_EQ(spec->optimizer().learning_rate(), 3e-4);
  EXPECT_EQ(spec->optimizer().beta1(), 0.8);
  EXPECT_EQ(spec->optimizer().beta2(), 0.95);
  EXPECT_EQ(spec->optimizer().epsilon(), 1e-7);
  EXPECT_EQ(spec->optimizer().weight_decay(), -1);
  EXPECT_EQ(spec->precision().mode(), training::v1::PRECISION_MODE_MIXED_FP16);
  EXPECT_EQ(spec->precision().loss_scale(), 1024);
  EXPECT_EQ(spec->precision().growth_factor(), 4);
  EXPECT_EQ(spec->precision().backoff_factor(), 0.25);
  EXPECT_EQ(spec->precision().growth_interval(), 100);
  EXPECT_EQ(spec->checkpoint().every_steps(), 50);
  EXPECT_EQ(spec->checkpoint().keep_last(), 5);
  EXPECT_TRUE(spec->has_max_restarts());
  EXPECT_EQ(spec->max_restarts(), 0);
}

TEST(JobFileTest, ReadsTheJsonOfASpecificationBack) {
  const JobSpec spec = ParseJobFile(kFullJob, "job.yaml").value();
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  ASSERT_TRUE(google::protobuf::util::MessageToJsonString(spec, &json, options).ok());
  const absl::StatusOr<JobSpec> again = ParseJobFile(json, "job.json");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(MessageDifferencer::Equals(spec, *again));
}

TEST(JobFileTest, TakesAKindWithoutKeysAsItsDefaults) {
  EXPECT_EQ(Fault("model:\n  world_model:\ndataset: {trajectories: {path: a.npz}}\n"
                  "training: {epochs: 1}\n"),
            "no fault");
}

TEST(JobFileTest, SaysWhatAJobNeedsWhenTheFileIsEmpty) {
  for (const char* yaml : {"", "# nothing\n", "---\n", "~"}) {
    EXPECT_EQ(Fault(yaml), "job.yaml: empty; a job needs at least model, dataset and training");
  }
}

TEST(JobFileTest, RefusesARootThatIsNoMapping) {
  EXPECT_EQ(Fault("- a\n"),
            "job.yaml:1:1: the file is a list; accepted: keys and values (key: value)");
  EXPECT_EQ(Fault("train please"),
            "job.yaml:1:1: the file is \"train please\"; accepted: keys and values (key: value)");
}

TEST(JobFileTest, PlacesSyntaxErrors) {
  EXPECT_EQ(Fault("model: {\ntraining: 1"),
            "job.yaml:2:1: not readable as YAML: end of map flow not found");
  EXPECT_EQ(Fault("a: b: c"), "job.yaml:1:5: not readable as YAML: illegal map value");
  EXPECT_EQ(Fault("a: *b"),
            "job.yaml:1:4: not readable as YAML: the referenced anchor is not defined");
  EXPECT_EQ(Fault(std::string(5000, '[')), "job.yaml: not readable as YAML: nested too deeply");
}

TEST(JobFileTest, RefusesSeveralDocuments) {
  EXPECT_EQ(Fault("a: 1\n---\nb: 2\n"),
            "job.yaml:2:1: holds more than one YAML document; accepted: one (remove \"---\")");
}

TEST(JobFileTest, RefusesAStrayCommaWithoutReadingForEver) {
  EXPECT_EQ(Fault(", a: 1\n"), "job.yaml:1:1: not readable as YAML: no key or value begins here");
}

TEST(JobFileTest, RefusesBytesThatAreNotUtf8) {
  EXPECT_EQ(Fault("a: ö\nb: '\xff'"), "job.yaml:2:5: not UTF-8 text; save the file as UTF-8");
  for (const char* bytes : {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe0\x80\x80", "\x80",
                            "\xf0\x80\x80\x80", "\xc3"}) {
    EXPECT_EQ(Fault(bytes), "job.yaml:1:1: not UTF-8 text; save the file as UTF-8");
  }
}

TEST(JobFileTest, PlacesAValueOutOfRange) {
  EXPECT_EQ(Fault(Job("training:\n  max_steps: 5\n  batch_size: -4\n")),
            "job.yaml:5:15: training.batch_size is -4; accepted: 1 to 1048576");
}

TEST(JobFileTest, RefusesValuesOfAnotherType) {
  EXPECT_EQ(Fault(Job("training: {max_steps: 5, batch_size: many}")),
            "job.yaml:3:38: training.batch_size is \"many\"; accepted: a whole number");
  for (const std::string value : {"1e6", "1_000", "0x10", "010", "+5", "1.0", "5 5", "true"}) {
    EXPECT_EQ(Fault(Job("training:\n  max_steps: " + value)).substr(0, 36),
              "job.yaml:4:14: training.max_steps is")
        << value;
  }
  EXPECT_EQ(Fault(Job("training: {max_steps: 1, batch_size: 99999999999}")),
            "job.yaml:3:38: training.batch_size is \"99999999999\"; accepted: a whole number of at "
            "most 2147483647");
  EXPECT_EQ(Fault(Job("training: {max_steps: 1, seed: -1}")),
            "job.yaml:3:32: training.seed is \"-1\"; accepted: a whole number from 0 to "
            "18446744073709551615");
  EXPECT_EQ(Fault(Job("training: {max_steps: 1, max_grad_norm: .nan}")),
            "job.yaml:3:41: training.max_grad_norm is \".nan\"; accepted: a number, such as 0.5 or "
            "1e-3");
  EXPECT_EQ(Fault(Job("training: {max_steps: [1, 2]}")),
            "job.yaml:3:23: training.max_steps is a list; accepted: a whole number");
  EXPECT_EQ(Fault(Job("training: {max_steps: {}}")),
            "job.yaml:3:23: training.max_steps is a group of keys; accepted: a whole number");
  EXPECT_EQ(Fault(Job("training: {epochs: 1}\nmax_restarts:\n\n")),
            "job.yaml:4:1: max_restarts is empty; accepted: a whole number");
  EXPECT_EQ(Fault(Job("training: 7")),
            "job.yaml:3:11: training is \"7\"; accepted: a group of keys: max_steps, epochs, "
            "batch_size, gradient_accumulation_steps, max_grad_norm, seed, ema_decay, "
            "time_limit_seconds, target_loss, use_ddp");
  EXPECT_EQ(Fault("model: {world_model: {}}\ntraining: {epochs: 1}\ndataset:\n  trajectories:\n"
                  "    path: [a.npz]"),
            "job.yaml:5:11: dataset.trajectories.path is a list; accepted: text");
}

TEST(JobFileTest, NamesTheModes) {
  EXPECT_EQ(Fault(Job("training: {epochs: 1}\nprecision: {mode: FP61}")),
            "job.yaml:4:19: precision.mode is \"FP61\"; accepted: FP32, FP16, BF16, MIXED_FP16, "
            "MIXED_BF16, AUTO");
  EXPECT_EQ(Fault(Job("training: {epochs: 1}\nprecision: {mode: PRECISION_MODE_FP32}")),
            "no fault");
}

TEST(JobFileTest, ReadsListsAndPlacesTheirFaults) {
  const std::string job = "training: {epochs: 1}\n";
  EXPECT_EQ(Fault(Job(job + "precision: {mode: BF16, fallbacks: [MIXED_BF16, FP32]}\n"
                            "rehearsals: [{kind: NAN, at_step: 3}]")),
            "no fault");
  EXPECT_EQ(Fault(Job(job + "precision: {fallbacks: FP32}")),
            "job.yaml:4:24: precision.fallbacks is \"FP32\"; accepted: a list, such as [a, b]");
  EXPECT_EQ(Fault(Job(job + "precision: {fallbacks: [FP32, FP61]}")),
            "job.yaml:4:31: precision.fallbacks[1] is \"FP61\"; accepted: FP32, FP16, BF16, "
            "MIXED_FP16, MIXED_BF16, AUTO");
  EXPECT_EQ(
      Fault(Job(job + "rehearsals: [{kind: NAN, at_step: 3}, 4]")),
      "job.yaml:4:39: rehearsals[1] is \"4\"; accepted: a group of keys: kind, at_step, steps, "
      "micro_batch, amount");
  EXPECT_EQ(Fault(Job(job + "rehearsals: [{kind: NAN, at_stop: 3}]")),
            "job.yaml:4:26: rehearsals[0].at_stop: unknown key; did you mean "
            "rehearsals[0].at_step?");
}

TEST(JobFileTest, NamesTheNearestKnownKey) {
  EXPECT_EQ(Fault(Job("training:\n  max_steps: 5\n  batchsize: 4\n")),
            "job.yaml:5:3: training.batchsize: unknown key; did you mean training.batch_size?");
  EXPECT_EQ(Fault(Job("training: {epochs: 1}\nbatch_size: 4\n")),
            "job.yaml:4:1: batch_size: unknown key; did you mean training.batch_size?");
  // Keys that other programs use.
  EXPECT_EQ(Fault(Job("training: {epochs: 1}\namp: True\n")),
            "job.yaml:4:1: amp: unknown key; did you mean precision.mode?");
  EXPECT_EQ(Fault(Job("training: {epochs: 1}\noptimizer: {lr: 1e-5}\n")),
            "job.yaml:4:13: optimizer.lr: unknown key; did you mean optimizer.learning_rate?");
  EXPECT_EQ(Fault("model: {torchscript: {path: net.pt}}\ndataset: {arrays: {path: rows.npz}}\n"
                  "training: {epochs: 1}\n"),
            "job.yaml:1:9: model.torchscript: unknown key; did you mean model.exported?");
  EXPECT_EQ(Fault(Job("trainer: {fp16: False}\n")),
            "job.yaml:3:1: trainer: unknown key; did you mean training?");
  EXPECT_EQ(Fault(Job("training: {epochs: 1}\ncheckpoint: {zzz: 4}\n")),
            "job.yaml:4:14: checkpoint.zzz: unknown key; accepted here: every_steps, keep_last, "
            "keep_best, sharded");
  EXPECT_EQ(Fault(Job("training: {epochs: 1}\n\"a\\e[31m\": 4\n")),
            "job.yaml:4:1: \"a\\x1b[31m\": unknown key; accepted here: model, dataset, training, "
            "optimizer, precision, checkpoint, max_restarts, evaluation, rehearsals, scheduling, "
            "start_from_checkpoint, trace, distributed, continue_from_checkpoint");
}

TEST(JobFileTest, DoesNotReportAMisspeltFieldAsMissingToo) {
  EXPECT_EQ(Fault(Job("trainin: {max_steps: 5}")),
            "job.yaml:3:1: trainin: unknown key; did you mean training?");
  EXPECT_EQ(Fault(Job("training: {max_step: 5}")),
            "job.yaml:3:12: training.max_step: unknown key; did you mean training.max_steps?");
}

TEST(JobFileTest, RefusesRepeatedKeysAndKeysThatAreNoNames) {
  EXPECT_EQ(Fault(Job("training:\n  epochs: 1\n  seed: 1\n  epochs: 2\n")),
            "job.yaml:6:3: training.epochs: given twice; first at line 4; keep one");
  EXPECT_EQ(Fault(Job("training: {epochs: 1, ? [a] : b}")),
            "job.yaml:3:25: training: a key is a list; accepted: a name");
}

TEST(JobFileTest, FindsAllFaultsAtOnceInTheOrderOfTheFile) {
  EXPECT_EQ(Fault("training:\n  batch_size: -4\n  max_steps: lots\n  sead: 1\n"
                  "model:\n  world_model: {hidden_size: 0.5}\nprecision:\n  loss_scale: 8\n"
                  "  mode: FP32\n"),
            "job.yaml:2:15: training.batch_size is -4; accepted: 1 to 1048576\n"
            "job.yaml:3:14: training.max_steps is \"lots\"; accepted: a whole number\n"
            "job.yaml:4:3: training.sead: unknown key; did you mean training.seed?\n"
            "job.yaml:6:30: model.world_model.hidden_size is \"0.5\"; accepted: a whole number\n"
            "job.yaml:8:15: precision.loss_scale: 8 conflicts with precision.mode FP32, which has "
            "no loss scale; remove one of the two\n"
            "job.yaml: dataset: required; give it one kind of dataset: trajectories, replay, "
            "tokens, arrays or "
            "synthetic");
}

TEST(JobFileTest, PlacesWhatIsMissingAtTheGroupThatShouldHoldIt) {
  EXPECT_EQ(
      Fault("model: {world_model: {}}\ndataset:\n  trajectories: {}\ntraining: {epochs: 1}\n"),
      "job.yaml:3:3: dataset.trajectories.path: required; give the path of an .npz, .jsonl or "
      ".safetensors file "
      "below the dataset root");
  EXPECT_EQ(Fault(Job("training:\n  seed: 1\n")),
            "job.yaml:3:1: training: its length is required; give training.max_steps (1 to "
            "1000000000000) or training.epochs (1 to 1000000)");
}

TEST(JobFileTest, AnOverrideSetsAFieldAndIsNamedByItsErrors) {
  const std::string file =
      "model: {world_model: {}}\ndataset: {trajectories: {path: a.npz}}\n"
      "training: {max_steps: 10}\n";
  const absl::StatusOr<JobSpec> spec = ParseJobFile(
      file, "job.yaml",
      {"training.max_steps=20", "optimizer.schedule.kind=COSINE", "scheduling.labels.team=walk",
       "scheduling.labels.name=", "dataset.trajectories.path=b=c.npz"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->training().max_steps(), 20);
  EXPECT_EQ(spec->optimizer().schedule().kind(), training::v1::SCHEDULE_KIND_COSINE);
  EXPECT_EQ(spec->scheduling().labels().at("team"), "walk");
  EXPECT_EQ(spec->dataset().trajectories().path(), "b=c.npz");
  const auto fault = [&file](const std::string& override) {
    return std::string(ParseJobFile(file, "job.yaml", {override}).status().message());
  };
  EXPECT_EQ(fault("training.max_steps=-1"),
            "training.max_steps=-1: training.max_steps is -1; accepted: 1 to 1000000000000");
  EXPECT_EQ(
      fault("training.max_step=1"),
      "training.max_step=1: training.max_step: unknown key; did you mean training.max_steps?");
  EXPECT_EQ(fault("training.max_steps.x=1").rfind("training.max_steps.x=1: cannot be set: ", 0),
            0U);
  for (const std::string override : {"training.max_steps", "=1", "training..max_steps=1", ""}) {
    EXPECT_THAT(fault(override), HasSubstr("write it as training.max_steps=100")) << override;
  }
  EXPECT_THAT(fault("training.max_steps=[1"), HasSubstr("cannot be set"));
}

TEST(JobFileTest, SurvivesDamage) {
  // Each result must be a specification or INVALID_ARGUMENT, without an exception or a crash.
  std::mt19937 random(1);
  const std::string whole = kFullJob;
  const std::string alphabet = "{}[]:,-&*!|>'\"%@`#?~ \n\t\\0aZ\xff";
  for (int round = 0; round < 3000; ++round) {
    std::string damaged =
        whole.substr(0, random() % 4 == 0 ? random() % whole.size() : whole.size());
    for (unsigned i = 0; i <= random() % 4 && !damaged.empty(); ++i) {
      damaged[random() % damaged.size()] = alphabet[random() % alphabet.size()];
    }
    const absl::StatusOr<JobSpec> spec = ParseJobFile(damaged, "job.yaml");
    EXPECT_TRUE(spec.ok() || spec.status().code() == absl::StatusCode::kInvalidArgument);
  }
}

class FileTest : public testing::Test {
 protected:
  FileTest()
      : path_(testing::TempDir() + "/genesis_job_file_test_" + std::to_string(getpid()) + ".yaml") {
  }
  ~FileTest() override { std::filesystem::remove(path_); }
  void Write(const std::string& text) { std::ofstream(path_) << text; }
  const std::string path_;
};

TEST_F(FileTest, IsReadAndNamedInFaults) {
  Write(kFullJob);
  EXPECT_TRUE(ReadJobFile(path_).ok());
  Write("");
  EXPECT_THAT(std::string(ReadJobFile(path_).status().message()), HasSubstr(".yaml: empty;"));
}

TEST_F(FileTest, IsReportedWhenItCannotBeRead) {
  const absl::Status missing = ReadJobFile(path_ + ".missing").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), path_ + ".missing: no such file; check the path");
  EXPECT_EQ(ReadJobFile(testing::TempDir()).status().code(), absl::StatusCode::kInvalidArgument);
  Write(std::string((1 << 20) + 1, '#'));
  EXPECT_EQ(ReadJobFile(path_).status().message(),
            path_ + ": larger than 1 MiB; accepted: a YAML file of at most 1 MiB");
}

TEST(YamlToMessageTest, RefusesTwoMembersOfOneOneof) {
  std::vector<FieldError> errors;
  const auto root = LoadYamlMapping("stop_job: {checkpoint: maybe}\nstart_job:\n", errors);
  training::v1::AttachResponse message;
  const YamlReading reading = ReadYamlMessage(root.value(), message);
  ASSERT_EQ(reading.errors.size(), 2u);
  EXPECT_EQ(reading.errors[0].ToString(),
            "line 1:24: stop_job.checkpoint is \"maybe\"; accepted: true or false");
  EXPECT_EQ(reading.errors[1].ToString(),
            "line 2:1: start_job: conflicts with stop_job; give one of start_job, "
            "take_checkpoint, stop_job, acknowledged, leave_reduced_precision, "
            "store_response, metric_values, publish_weights");
}

TEST(NearestTest, FindsSlipsOfTheHand) {
  const std::vector<std::string> keys = {"max_steps", "epochs", "batch_size", "seed"};
  EXPECT_EQ(Nearest("batchsize", keys), "batch_size");
  EXPECT_EQ(Nearest("Epoch", keys), "epochs");
  EXPECT_EQ(Nearest("sede", keys), "seed");
  EXPECT_EQ(Nearest("max-steps", keys), "max_steps");
}

TEST(NearestTest, StaysSilentWhenNothingIsNear) {
  EXPECT_EQ(Nearest("zebra", {"seed", "epochs"}), "");
  EXPECT_EQ(Nearest("", {"seed"}), "");
  EXPECT_EQ(Nearest("seed", {}), "");
  EXPECT_EQ(Nearest(std::string(100000, 's'), {"seed"}), "");
}

TEST(ScalarsTest, ReadWholeTextsOnly) {
  EXPECT_EQ(ParseInt64("-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(ParseInt64("0"), 0);
  EXPECT_EQ(ParseUint64("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(ParseDouble("1e-3"), 1e-3);
  EXPECT_EQ(ParseDouble("-0.5"), -0.5);
  EXPECT_EQ(ParseBool("true"), true);
  EXPECT_EQ(ParseBool("false"), false);
  for (const char* text : {"", " 1", "1 ", "+1", "1_0", "0x1", "1e2", "9223372036854775808", "01",
                           "-01", "--1", "1.", "inf"}) {
    EXPECT_EQ(ParseInt64(text), std::nullopt) << text;
  }
  for (const char* text : {"", "nan", "inf", "-inf", "1e999", "0x1p3", "1,5", "+1", " 1", "1f"}) {
    EXPECT_EQ(ParseDouble(text), std::nullopt) << text;
  }
  for (const char* text : {"", "-1", "18446744073709551616", "00"}) {
    EXPECT_EQ(ParseUint64(text), std::nullopt) << text;
  }
  for (const char* text : {"", "True", "1", "yes", "true "}) {
    EXPECT_EQ(ParseBool(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace genesis
