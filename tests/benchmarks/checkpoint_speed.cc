// How fast checkpoints are taken, written and read: checkpoint_speed FOLDER MIB
// Prints one round as JSON. The state is a model of 2048 x 2048 layers with the two moments of
// AdamW, as genesis-worker writes it, of about MIB mebibytes in all; what a step waits for when it
// saves (copy, finite test, hand-over) is timed as RunCheckpoints does it. Files are read after the
// kernel was asked to forget them.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/trainer/state_for_test.h"
#include "trainer/checkpoint/async_writer.h"
#include "trainer/checkpoint/checkpoint_reader.h"

namespace genesis {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "checkpoint_speed: %s\n", message.c_str());
  std::exit(1);
}

void Require(const absl::Status& status) {
  if (!status.ok()) Die(std::string(status.message()));
}

template <typename Work>
double Seconds(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TrainingState MakeState(int64_t mebibytes) {
  constexpr int64_t kSide = 2048;
  // Weight and two moments, four bytes each.
  const int64_t layers = std::max<int64_t>(1, mebibytes * (1 << 20) / (kSide * kSide * 12));
  TrainingState state = StateForTest(training::v1::OPTIMIZER_KIND_ADAMW, 1);
  state.model.clear();
  state.tied.clear();
  state.ema.clear();
  state.optimizer.parameters.clear();
  state.optimizer.groups = {{.weight_decay = 0.01, .parameters = {}}};
  for (int64_t i = 0; i < layers; ++i) {
    state.model.emplace_back(absl::StrCat("layers.", i, ".weight"), at::randn({kSide, kSide}));
    state.optimizer.groups[0].parameters.push_back(i);
    state.optimizer.parameters.push_back({{"step", at::full({}, 7, at::kFloat)},
                                          {"exp_avg", at::randn({kSide, kSide})},
                                          {"exp_avg_sq", at::rand({kSide, kSide})}});
  }
  return state;
}

TrainingState Snapshot(const TrainingState& state) {
  TrainingState copy = state;
  for (auto& [name, tensor] : copy.model) tensor = tensor.clone();
  for (auto& entry : copy.optimizer.parameters) {
    for (auto& [name, tensor] : entry) tensor = tensor.clone();
  }
  return copy;
}

void Forget(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) Die("cannot open " + path);
  close(file);
}

void ReadPlainly(const std::string& path) {
  std::vector<char> buffer(4 << 20);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) Die("cannot open " + path);
  while (read(file, buffer.data(), buffer.size()) > 0) {
  }
  close(file);
}

void Measure(const std::string& folder, int64_t mebibytes) {
  const TrainingState state = MakeState(mebibytes);
  CheckpointFolder names(folder, "speed");
  Require(names.Prepare());
  TrainingState copy;
  const double snapshot = Seconds([&] { copy = Snapshot(state); });
  const double finite_test = Seconds([&] {
    if (!FirstNonFinite(copy).empty()) Die("a state without Inf has one");
  });
  copy = {};

  const std::string path = names.Path(state.position.step);
  const double synchronous = Seconds([&] {
    TrainingState taken = Snapshot(state);
    if (!FirstNonFinite(taken).empty()) Die("a state without Inf has one");
    Require(WriteCheckpoint(taken, path).status());
  });
  const auto bytes = fs::file_size(path);
  fs::remove(path);

  double stall = 0;
  double background = 0;
  {
    CheckpointWriter writer(names, {.keep_last = 1});
    stall = Seconds([&] {
      TrainingState taken = Snapshot(state);
      if (!FirstNonFinite(taken).empty()) Die("a state without Inf has one");
      Require(writer.Submit(std::move(taken), {.job_id = "speed"},
                            [&](const WrittenCheckpoint& done) { background = done.seconds; }));
    });
    Require(writer.Flush());
  }
  Forget(path);
  const double plain = Seconds([&] { ReadPlainly(path); });
  Forget(path);
  const double resume = Seconds([&] { Require(ReadCheckpoint(path).status()); });
  std::printf(
      "{\"bytes\": %lld, \"snapshot\": %.6f, \"finite_test\": %.6f, \"synchronous\": %.6f, "
      "\"stall\": %.6f, \"background\": %.6f, \"plain_read\": %.6f, \"resume\": %.6f}\n",
      static_cast<long long>(bytes), snapshot, finite_test, synchronous, stall, background, plain,
      resume);
}

}  // namespace
}  // namespace genesis

int main(int argc, char** argv) {
  const int64_t mebibytes = argc == 3 ? std::atoll(argv[2]) : 0;
  if (mebibytes < 1) genesis::Die("usage: checkpoint_speed FOLDER MIB");
  genesis::Measure(argv[1], mebibytes);
}
