#include "trainer/run/weights_publisher.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/files/crc32c.h"
#include "base/files/safetensors_head.h"
#include "c10/util/BFloat16.h"
#include "trainer/checkpoint/element_scalar.h"
#include "trainer/formats/safetensors.h"

namespace genesis {
namespace {

using training::v1::PublishedTensor;
using training::v1::PublishedWeights;
using training::v1::WantedWeights;

at::ScalarType TypeIn(training::v1::WeightsFormat format, const at::Tensor& tensor) {
  const bool rounded =
      format == training::v1::WEIGHTS_FORMAT_BF16 && tensor.scalar_type() == at::kFloat;
  return rounded ? at::kBFloat16 : tensor.scalar_type();
}

// Writes a float32 tensor rounded to BF16. `to` would start a second team of OpenMP threads next to
// that of the step.
absl::Status WriteRounded(const at::Tensor& tensor, MemoryFile& file) {
  constexpr int64_t kAtOnce = 16384;
  std::array<c10::BFloat16, kAtOnce> rounded;
  const float* const values = tensor.const_data_ptr<float>();
  for (int64_t begin = 0; begin < tensor.numel(); begin += kAtOnce) {
    const int64_t count = std::min(kAtOnce, tensor.numel() - begin);
    std::copy_n(values + begin, count, rounded.begin());
    const absl::Status written =
        file.Write(rounded.data(), static_cast<size_t>(count) * sizeof(c10::BFloat16));
    if (!written.ok()) return written;
  }
  return absl::OkStatus();
}

}  // namespace

WeightsPublisher::WeightsPublisher(const training::v1::StartJob& start, RunControl& control,
                                   RunObserver& observer, TrainingSession& session)
    : start_(start), control_(control), observer_(observer), session_(session) {}

WeightsPublisher::~WeightsPublisher() {
  if (!thread_.joinable()) return;
  {
    const absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  thread_.join();
}

void WeightsPublisher::AtBoundary(int64_t step) {
  if (task_ != nullptr && !task_->done.HasBeenNotified()) return;
  ReadRequest();
  if (!newest_.empty()) Begin(step, std::chrono::steady_clock::now(), /*last=*/false);
}

void WeightsPublisher::Finish(int64_t step) {
  if (task_ != nullptr) task_->done.WaitForNotification();
  ReadRequest();
  if (newest_.empty()) return;
  Begin(step, Time::max(), /*last=*/true);
  task_->done.WaitForNotification();
}

// Every request leads to a new version of each kind, because the daemon may lack the newest.
void WeightsPublisher::ReadRequest() {
  if (request_ == control_.weights_request()) return;
  request_ = control_.weights_request();
  const training::v1::PublishWeights request = control_.WantedWeights();
  std::map<Kind, Newest> wanted;
  for (const WantedWeights& each : request.wanted()) {
    if (each.average() && !session_.has_average()) continue;
    const Kind kind(each.format(), each.average());
    Newest& newest = wanted[kind];
    if (const auto found = newest_.find(kind); found != newest_.end()) {
      newest = std::move(found->second);
    }
    newest.interval_seconds = each.interval_seconds();
    newest.step = -1;
    newest.next = {};
    newest.again = true;
  }
  newest_ = std::move(wanted);
}

void WeightsPublisher::Begin(int64_t step, Time now, bool last) {
  auto task = std::make_shared<Task>();
  for (auto& [kind, newest] : newest_) {
    if (!last && (newest.step == step || now < newest.next)) continue;
    newest.step = step;
    if (!last) {
      newest.next = now + std::chrono::duration_cast<Time::duration>(
                              std::chrono::duration<double>(newest.interval_seconds));
    }
    task->versions.push_back(Describe(kind, step, last));
  }
  if (task->versions.empty()) return;
  task_ = task;
  // A GPU itself runs the copy before later updates.
  if (!session_.device().is_cuda()) {
    session_.step().WaitFor([task] { task->copied.WaitForNotification(); });
  }
  {
    const absl::MutexLock lock(&mutex_);
    waiting_ = std::move(task);
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
}

WeightsPublisher::Version WeightsPublisher::Describe(Kind kind, int64_t step, bool last) {
  Version version;
  PublishedWeights& weights = version.weights;
  weights.set_job_id(start_.job_id());
  weights.set_claim(start_.claim());
  weights.set_last(last);
  weights.set_seconds(
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count());
  weights.mutable_version()->set_number(start_.claim() * kVersionsOfAttempt + ++number_);
  weights.mutable_version()->set_step(step);
  weights.mutable_version()->set_format(kind.first);
  weights.mutable_version()->set_average(kind.second);
  version.tensors = session_.CurrentWeights(kind.second);
  // Larger elements come first, so that all are aligned.
  std::stable_sort(version.tensors.begin(), version.tensors.end(),
                   [&](const auto& a, const auto& b) {
                     return c10::elementSize(TypeIn(kind.first, a.second)) >
                            c10::elementSize(TypeIn(kind.first, b.second));
                   });
  if (session_.device().is_cuda()) version.on_host = std::make_shared<StateCopy>();
  for (auto& [name, tensor] : version.tensors) {
    const at::ScalarType type = TypeIn(kind.first, tensor);
    PublishedTensor& described = *weights.add_tensors();
    described.set_name(name);
    described.set_type(SafetensorsTypeName(ToElementType(type).value_or(ElementType::kFloat32)));
    for (const int64_t size : tensor.sizes()) described.add_shape(size);
    described.set_size_bytes(tensor.numel() * static_cast<int64_t>(c10::elementSize(type)));
    tensor = tensor.contiguous();
    if (version.on_host != nullptr) tensor = version.on_host->Add(tensor);
  }
  if (version.on_host != nullptr) version.on_host->Start();
  return version;
}

void WeightsPublisher::Work() {
  for (;;) {
    std::shared_ptr<Task> task;
    {
      const absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &WeightsPublisher::HasWork));
      if (waiting_ == nullptr) return;
      task = std::move(waiting_);
      waiting_ = nullptr;
    }
    Make(*task);
    task->done.Notify();
  }
}

void WeightsPublisher::Make(Task& task) {
  std::vector<absl::StatusOr<std::unique_ptr<MemoryFile>>> files;
  files.reserve(task.versions.size());
  for (const Version& version : task.versions) files.push_back(Copy(version));
  for (Version& version : task.versions) version.tensors.clear();
  task.copied.Notify();
  for (size_t i = 0; i < files.size(); ++i) {
    Log(files[i].ok() ? Publish(task.versions[i], *std::move(files[i])) : files[i].status());
  }
}

absl::StatusOr<std::unique_ptr<MemoryFile>> WeightsPublisher::Copy(const Version& version) {
  if (version.on_host != nullptr) version.on_host->Wait();
  absl::StatusOr<std::unique_ptr<MemoryFile>> file = MemoryFile::Create();
  if (!file.ok()) return file;
  const std::string head = WeightsHead(version.weights, [](const auto&) { return true; });
  absl::Status written = (*file)->Write(head.data(), head.size());
  for (size_t i = 0; i < version.tensors.size() && written.ok(); ++i) {
    const at::Tensor& tensor = version.tensors[i].second;
    const bool rounded = TypeIn(version.weights.version().format(), tensor) != tensor.scalar_type();
    written = rounded ? WriteRounded(tensor, **file)
                      : (*file)->Write(tensor.const_data_ptr(), tensor.nbytes());
  }
  if (!written.ok()) return written;
  return file;
}

absl::Status WeightsPublisher::Publish(Version& version, std::unique_ptr<MemoryFile> file) {
  if (absl::Status sealed = file->Seal(); !sealed.ok()) return sealed;
  PublishedWeights& weights = version.weights;
  Newest& newest = newest_.at({weights.version().format(), weights.version().average()});
  const std::vector<std::string_view> elements = WeightsElements(weights, file->content());
  std::vector<std::string_view> before;
  if (newest.file != nullptr) {
    before = WeightsElements(newest.weights, newest.file->content());
  }
  bool changed = std::exchange(newest.again, false) || weights.last();
  for (size_t i = 0; i < elements.size(); ++i) {
    PublishedTensor& tensor = *weights.mutable_tensors(static_cast<int>(i));
    tensor.set_crc32c(Crc32c(0, elements[i].data(), elements[i].size()));
    const PublishedTensor* const old =
        before.empty() ? nullptr : &newest.weights.tensors(static_cast<int>(i));
    // Also compare the bytes, because different tensors may have the same checksum.
    const bool same =
        old != nullptr && old->crc32c() == tensor.crc32c() && elements[i] == before[i];
    tensor.set_changed_in(same ? old->changed_in() : weights.version().number());
    changed = changed || !same;
  }
  if (!changed) return absl::OkStatus();
  absl::Status sent = observer_.OnWeights(weights, *file);
  newest.again = !sent.ok();
  newest.weights = std::move(weights);
  newest.file = std::move(file);
  return sent;
}

// Logs an error, but only the first of successive errors.
void WeightsPublisher::Log(const absl::Status& status) {
  if (!status.ok() && !failing_) {
    observer_.OnLog(absl::StrCat("a version of the weights was dropped: ", status.message()));
  }
  failing_ = !status.ok();
}

}  // namespace genesis
