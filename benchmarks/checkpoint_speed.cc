// Measures how fast checkpoints are taken, written and read: checkpoint_speed FOLDER MIB
// Prints one round as JSON. The state is a model of 2048 x 2048 layers with the two moments of
// AdamW, as genesis-worker writes it, about MIB mebibytes in total. A step is forward, backward and
// update of that model with a batch of 128. The delay of a step by a checkpoint is measured as in
// TrainingSession, TrainStep and RunCheckpoints. Files are dropped from the page cache before they
// are read.
#include <fcntl.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/trainer/state_for_test.h"
#include "trainer/checkpoint/checkpoint_reader.h"
#include "trainer/checkpoint/checkpoint_writer.h"

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
  // Weight and two moments have four bytes per element each.
  const int64_t layers = std::max<int64_t>(1, mebibytes * (1 << 20) / (kSide * kSide * 12));
  TrainingState state = StateForTest(training::v1::OPTIMIZER_KIND_ADAMW, 1);
  state.model.clear();
  state.tied.clear();
  state.ema.clear();
  state.optimizer.parameters.clear();
  state.optimizer.groups = {{.weight_decay = 0.01, .parameters = {}}};
  for (int64_t i = 0; i < layers; ++i) {
    state.model.emplace_back(absl::StrCat("layers.", i, ".weight"),
                             at::randn({kSide, kSide}).div_(std::sqrt(kSide)));
    state.optimizer.groups[0].parameters.push_back(i);
    state.optimizer.parameters.push_back({{"step", at::full({}, 7, at::kFloat)},
                                          {"exp_avg", at::randn({kSide, kSide})},
                                          {"exp_avg_sq", at::rand({kSide, kSide})}});
  }
  return state;
}

// Starts to copy the state; returns it with its copy.
std::pair<TrainingState, std::shared_ptr<StateCopy>> Begin(const TrainingState& state) {
  const auto copy = std::make_shared<StateCopy>();
  TrainingState begun = state;
  for (auto& [name, tensor] : begun.model) tensor = copy->Add(tensor);
  for (auto& entry : begun.optimizer.parameters) {
    for (auto& [name, tensor] : entry) tensor = copy->Add(tensor);
  }
  begun.copy = copy;
  copy->Start();
  return {std::move(begun), copy};
}

// A training step on the tensors of a state.
class Step {
 public:
  explicit Step(const TrainingState& state) : state_(state) {
    for (const auto& [name, tensor] : state.model) {
      weights_.push_back(tensor.detach().requires_grad_());
    }
  }

  void ForwardAndBackward() {
    at::Tensor values = input_;
    for (const at::Tensor& weight : weights_) values = at::tanh(at::linear(values, weight));
    for (at::Tensor& weight : weights_) weight.mutable_grad().reset();
    values.square().mean().backward();
  }

  void Update() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < weights_.size(); ++i) {
      const auto& moments = state_.optimizer.parameters[i];
      const at::Tensor& gradient = weights_[i].grad();
      moments[1].second.lerp_(gradient, 0.1);
      moments[2].second.mul_(0.999).addcmul_(gradient, gradient, 0.001);
      weights_[i].addcdiv_(moments[1].second, at::sqrt(moments[2].second).add_(1e-8), -1e-6);
    }
  }

 private:
  const TrainingState& state_;
  const at::Tensor input_ = at::randn({128, 2048});
  std::vector<at::Tensor> weights_;
};

// Removes a file and syncs, so that no later write pays for the removal: some file systems discard
// removed blocks at the next sync.
void Remove(const std::string& path) {
  fs::remove(path);
  sync();
}

void Forget(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0) Die("cannot open " + path);
  close(file);
}

void ReadPlainly(const std::string& path) {
  Forget(path);
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
  const double snapshot = Seconds([&] { Begin(state).first.Complete(); });
  const double finite_test = Seconds([&] {
    if (!FirstNonFinite(state).empty()) Die("a state without Inf has one");
  });

  const std::string path = names.Path(state.position.progress.step());
  sync();
  const double synchronous = Seconds([&] {
    if (!FirstNonFinite(state).empty()) Die("a state without Inf has one");
    Require(WriteCheckpoint(state, path).status());
  });
  const auto bytes = fs::file_size(path);
  Remove(path);

  Step step(state);
  const auto make_step = [&] {
    step.ForwardAndBackward();
    step.Update();
  };
  make_step();
  const double plain_step = Seconds(make_step);
  double stall = 0;
  double saving_step = 0;
  double background = 0;
  {
    CheckpointWriter writer(names, {.keep_last = 1});
    saving_step = Seconds([&] {
      std::shared_ptr<StateCopy> copy;
      stall = Seconds([&] {
        auto [taken, begun] = Begin(state);
        copy = begun;
        Require(writer.Submit(std::move(taken), {.job_id = "speed"}, nullptr));
      });
      step.ForwardAndBackward();
      copy->HoldUpdate();
      stall += copy->held_seconds();
      step.Update();
    });
    Require(writer.Flush());
    Remove(path);
    // Write without concurrent steps, so that the disk is measured, not contention for processors.
    auto [taken, copy] = Begin(state);
    copy->Wait();
    Require(writer.Submit(std::move(taken), {.job_id = "speed"},
                          [&](const WrittenCheckpoint& done) { background = done.seconds; }));
    Require(writer.Flush());
  }
  // Use the faster of the reads before and after, because a virtual disk may cache the file.
  const double before = Seconds([&] { ReadPlainly(path); });
  Forget(path);
  const double resume = Seconds([&] { Require(ReadCheckpoint(path).status()); });
  const double plain = std::min(before, Seconds([&] { ReadPlainly(path); }));
  std::printf(
      "{\"bytes\": %lld, \"snapshot\": %.6f, \"finite_test\": %.6f, \"synchronous\": %.6f, "
      "\"stall\": %.6f, \"plain_step\": %.6f, \"saving_step\": %.6f, \"background\": %.6f, "
      "\"plain_read\": %.6f, \"resume\": %.6f}\n",
      static_cast<long long>(bytes), snapshot, finite_test, synchronous, stall, plain_step,
      saving_step, background, plain, resume);
}

}  // namespace
}  // namespace genesis

int main(int argc, char** argv) {
  const int64_t mebibytes = argc == 3 ? std::atoll(argv[2]) : 0;
  if (mebibytes < 1) genesis::Die("usage: checkpoint_speed FOLDER MIB");
  genesis::Measure(argv[1], mebibytes);
}
