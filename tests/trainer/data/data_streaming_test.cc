// Tests that files larger than dataset.memory_limit_bytes are read during training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "absl/strings/str_cat.h"
#include "config/job/job_spec.h"
#include "replay/replay_writer.h"
#include "tests/replay/transitions.h"
#include "tests/temp_dir.h"
#include "tests/trainer/data_files.h"
#include "tests/trainer/npz_writer.h"

namespace genesis {
namespace {

using testing::HasSubstr;
using training::v1::JobSpec;

constexpr int64_t kSmallLimit = 1 << 20;
constexpr int64_t kLargeLimit = 1 << 30;
constexpr int64_t kMiB = 1 << 20;

absl::StatusOr<std::unique_ptr<Dataset>> Open(JobSpec spec, int64_t limit) {
  spec.mutable_dataset()->set_memory_limit_bytes(limit);
  return OpenDataset(WithDefaults(spec, LossScaleSettings()));
}

// A job with at least 12 MB of data, and the name of a file that tests can damage, if any.
struct Sample {
  JobSpec spec;
  std::string file;
};

using Writer = std::function<Sample(const TempDir&)>;

std::vector<float> Wave(size_t size, float step) {
  std::vector<float> values(size);
  for (size_t i = 0; i < size; ++i) values[i] = std::sin(static_cast<float>(i) * step);
  return values;
}

constexpr int kRows = 12000;
constexpr int kColumns = 128;

std::map<std::string, RawTensor> WideTensors() {
  std::string flags(kRows, '\0');
  for (size_t i = 99; i < flags.size(); i += 100) flags[i] = 1;
  return {{"observations", {"F32", {kRows, kColumns}, RawBytes(Wave(kRows * kColumns, 0.1f))}},
          {"next_observations", {"F32", {kRows, kColumns}, RawBytes(Wave(kRows * kColumns, 0.2f))}},
          {"actions", {"F32", {kRows, 1}, RawBytes(Wave(kRows, 0.3f))}},
          {"rewards", {"F32", {kRows}, RawBytes(Wave(kRows, 0.4f))}},
          {"terminals", {"BOOL", {kRows}, flags}},
          {"timeouts", {"BOOL", {kRows}, std::string(kRows, '\0')}}};
}

std::map<std::string, std::string> WideRecords() {
  std::map<std::string, std::string> records;
  for (const auto& [name, tensor] : WideTensors()) {
    const std::string shape = tensor.shape.size() == 1
                                  ? absl::StrCat("(", tensor.shape[0], ",)")
                                  : absl::StrCat("(", tensor.shape[0], ", ", tensor.shape[1], ")");
    records[name + ".npy"] = NpyBytes(tensor.type == "F32" ? "<f4" : "|b1", shape, tensor.bytes);
  }
  return records;
}

Sample Trajectories(const TempDir& folder, const std::string& name, const std::string& bytes) {
  folder.Write(name, bytes);
  Sample sample{.spec = WorldModelJob(3), .file = folder.path() + "/" + name};
  sample.spec.mutable_dataset()->mutable_trajectories()->set_path(sample.file);
  return sample;
}

Sample Npz(const TempDir& folder) { return Trajectories(folder, "a.npz", ZipBytes(WideRecords())); }
Sample Safetensors(const TempDir& folder) {
  return Trajectories(folder, "a.safetensors", SafetensorsBytes(WideTensors()));
}
Sample Jsonl(const TempDir& folder) {
  return Trajectories(folder, "a.jsonl", SpiralLines(1000, 120));
}
Sample Replay(const TempDir& folder) {
  const std::string path = folder.path() + "/replay";
  const ReplayLayout layout = ReplayLayout::OfVectors(kColumns, 1);
  auto writer = ReplayWriter::Open(path, {.layout = layout, .capacity = kRows});
  EXPECT_TRUE(writer.ok()) << writer.status();
  const std::vector<float> wave = Wave((kRows + 1) * kColumns, 0.1f);
  std::vector<ReplayTransition> batch;
  for (int i = 0; i < kRows; ++i) {
    const auto at = wave.begin() + i * kColumns;
    batch.push_back({.observation = {at, at + kColumns},
                     .action = {wave[static_cast<size_t>(i)]},
                     .next_observation = {at + kColumns, at + 2 * kColumns},
                     .terminal = i % 100 == 99,
                     .priority = {}});
    if (batch.size() < 1000) continue;
    EXPECT_TRUE(AppendTo(**writer, absl::StrCat(i), batch, layout).ok());
    batch.clear();
  }
  Sample sample{.spec = WorldModelJob(3), .file = ""};
  sample.spec.mutable_dataset()->mutable_replay()->set_path(path);
  return sample;
}
Sample Tokens(const TempDir& folder) {
  std::vector<uint16_t> tokens(6 << 20);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i * i % 50000);
  folder.Write("a.bin", RawBytes(tokens));
  Sample sample{.spec = TransformerJob(50000, 256), .file = folder.path() + "/a.bin"};
  sample.spec.mutable_dataset()->mutable_tokens()->set_path(sample.file);
  return sample;
}
Sample Arrays(const TempDir& folder) {
  folder.Write("a.npy", NpyBytes("<f4", "(768, 1, 64, 64)", RawBytes(Wave(768 * 4096, 0.1f))));
  Sample sample{.spec = RadioUnetJob(), .file = folder.path() + "/a.npy"};
  sample.spec.mutable_dataset()->mutable_arrays()->set_path(sample.file);
  return sample;
}

const std::pair<const char*, Writer> kWriters[] = {{"npz", Npz},       {"safetensors", Safetensors},
                                                   {"jsonl", Jsonl},   {"replay", Replay},
                                                   {"tokens", Tokens}, {"arrays", Arrays}};

// Returns some examples, spread over the dataset.
std::vector<int64_t> Some(const Dataset& dataset) {
  std::vector<int64_t> examples;
  for (int64_t i = 0; i < 32; ++i) examples.push_back(i * 104729 % dataset.size());
  return examples;
}

TEST(DataStreamingTest, GivesTheSameNumbersAsFromMemory) {
  for (const auto& [name, write] : kWriters) {
    SCOPED_TRACE(name);
    const TempDir folder;
    const Sample sample = write(folder);
    const auto kept = Open(sample.spec, kLargeLimit);
    const auto read = Open(sample.spec, kSmallLimit);
    ASSERT_TRUE(kept.ok()) << kept.status();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ((*read)->Describe(),
              absl::StrCat((*kept)->Describe(), "; read from the file while training"));
    EXPECT_EQ((*read)->size(), (*kept)->size());
    EXPECT_EQ((*read)->priorities(), (*kept)->priorities());
    EXPECT_EQ(GatherAll(**read, Some(**kept)), GatherAll(**kept, Some(**kept)));
    for (const auto& [field, statistics] : (*kept)->statistics()) {
      EXPECT_EQ((*read)->statistics().at(field).mean, statistics.mean) << field;
      EXPECT_EQ((*read)->statistics().at(field).deviation, statistics.deviation) << field;
    }
  }
}

TEST(DataStreamingTest, RefusesAFileThatChangesUnderTheRun) {
  for (const auto& [name, write] : kWriters) {
    SCOPED_TRACE(name);
    const TempDir folder;
    const Sample sample = write(folder);
    if (sample.file.empty()) continue;  // Replay reads snapshots, see replay_buffer_test.
    const auto dataset = Open(sample.spec, kSmallLimit);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    std::ofstream(sample.file, std::ios::binary | std::ios::app) << "more";
    std::vector<std::string> columns;
    std::vector<std::byte*> out;
    columns.reserve((*dataset)->fields().size());
    for (const Field& field : (*dataset)->fields()) {
      columns.emplace_back(static_cast<size_t>(field.bytes()), '\0');
      out.push_back(reinterpret_cast<std::byte*>(columns.back().data()));
    }
    const absl::Status status = (*dataset)->Gather({0}, out);
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("was changed while it was in use"));
  }
}

TEST(DataStreamingTest, RefusesACompressedFileThatIsTooLarge) {
  const TempDir folder;
  std::map<std::string, std::string> records = WideRecords();
  for (const char* name : {"observations.npy", "next_observations.npy"}) {
    // Zeros instead of sines, because compressing sines is slow.
    const size_t header = records[name].find('\n') + 1;
    records[name].replace(header, std::string::npos, records[name].size() - header, '\0');
  }
  const Sample sample = Trajectories(folder, "packed.npz", ZipBytes(records, /*deflate=*/true));
  const absl::Status status = Open(sample.spec, 4 * kMiB).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("packed.npz: observations is compressed and takes 6144"),
                             HasSubstr("save the file with np.savez instead of "
                                       "np.savez_compressed")));
  EXPECT_TRUE(Open(sample.spec, 64 * kMiB).ok());
}

// Not with AddressSanitizer and ThreadSanitizer, which keep freed and shadow memory resident.
#ifndef GENESIS_SANITIZED

int64_t PeakKiB() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6));
  }
  return -1;
}

// Returns by how many bytes `work`, run in a child process, raises the peak resident memory.
int64_t PeakGrowth(const std::function<void()>& work) {
  int pipes[2];
  EXPECT_EQ(pipe(pipes), 0);
  const pid_t child = fork();
  if (child == 0) {
    malloc_trim(0);
    // Reset the peak to the current resident memory.
    std::ofstream("/proc/self/clear_refs") << "5";
    const int64_t before = PeakKiB();
    work();
    const int64_t growth = (PeakKiB() - before) * 1024;
    _exit(write(pipes[1], &growth, sizeof(growth)) == sizeof(growth) ? 0 : 1);
  }
  close(pipes[1]);
  int64_t growth = -1;
  EXPECT_EQ(read(pipes[0], &growth, sizeof(growth)), static_cast<ssize_t>(sizeof(growth)));
  close(pipes[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return growth;
}

TEST(DataStreamingTest, KeepsMemoryBelowTheLimit) {
  // Make protobuf build its descriptors now, so that no measurement includes them.
  WithDefaults(JobSpec(), LossScaleSettings());
  for (const auto& [name, write] : kWriters) {
    SCOPED_TRACE(name);
    const TempDir folder;
    const Sample sample = write(folder);
    const auto read = [&sample](int64_t limit) {
      const auto dataset = Open(sample.spec, limit);
      if (!dataset.ok()) _exit(2);
      for (int i = 0; i < 20; ++i) GatherAll(**dataset, Some(**dataset));
    };
    const auto use = [&read](int64_t limit) { return PeakGrowth([&] { read(limit); }); };
    // Pages of code that are loaded at the first use do not count.
    read(kSmallLimit);
    // Pieces of 1 MiB, lists of episodes and lines, and the allocator's memory add to the limit:
    // 3 to 6 MiB, which differ between machines.
    const int64_t streamed = use(kSmallLimit);
    EXPECT_LT(streamed, kSmallLimit + 8 * kMiB);
    // Check that the measurement includes cached examples.
    const int64_t kept = use(kLargeLimit);
    EXPECT_GT(kept, streamed + 1 * kMiB);
    std::cout << name << ": " << streamed / 1024 << " KiB streamed, " << kept / 1024
              << " KiB kept\n";
  }
}

#endif

}  // namespace
}  // namespace genesis
