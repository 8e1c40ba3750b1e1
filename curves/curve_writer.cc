#include "curves/curve_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/time/time.h"
#include "base/files/errno_status.h"
#include "curves/curve_folder.h"

namespace genesis {
namespace {

constexpr absl::Duration kPeriod = absl::Seconds(1);
constexpr size_t kMaxPending = size_t{1} << 18;  // Steps held while the disk is slow.
constexpr size_t kMaxOfBlock = 4096;

}  // namespace

CurveWriter::CurveWriter(std::string folder, int64_t claim,
                         std::function<void(const absl::Status&)> on_fault, CurveLimits limits)
    : folder_(std::move(folder)),
      claim_(claim),
      on_fault_(std::move(on_fault)),
      limits_(limits),
      thread_([this] { Loop(); }) {}

CurveWriter::~CurveWriter() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
  absl::MutexLock writing(&writing_);
  if (file_ >= 0) close(file_);
}

void CurveWriter::Add(const CurveStep& step) {
  absl::MutexLock lock(&mutex_);
  if (pending_.size() < kMaxPending) pending_.push_back(step);
}

void CurveWriter::Flush() {
  absl::MutexLock writing(&writing_);
  std::vector<CurveStep> steps;
  {
    absl::MutexLock lock(&mutex_);
    steps.swap(pending_);
    pending_.reserve(steps.size());
  }
  Write(steps);
}

void CurveWriter::Loop() {
  for (bool stopping = false; !stopping;) {
    {
      absl::MutexLock lock(&mutex_);
      stopping = changed_.WaitUntil(mutex_, SteadyNow() + kPeriod,
                                    [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_; });
    }
    Flush();
  }
}

void CurveWriter::Write(const std::vector<CurveStep>& steps) {
  for (size_t begin = 0, end = 0; begin < steps.size(); begin = end) {
    end = begin + 1;
    while (end < steps.size() && end - begin < kMaxOfBlock &&
           steps[end].step == steps[end - 1].step + 1) {
      ++end;
    }
    absl::Status status = OpenNext();
    if (status.ok()) {
      status = WriteBlock(EncodeSteps(absl::MakeConstSpan(steps).subspan(begin, end - begin)));
    }
    if (status.ok()) steps_in_file_ += static_cast<int64_t>(end - begin);
    if (!status.ok() && !std::exchange(told_, true)) on_fault_(status);
  }
}

absl::Status CurveWriter::OpenNext() {
  if (file_ >= 0 && steps_in_file_ < limits_.steps_of_file) return absl::OkStatus();
  if (file_ >= 0) close(std::exchange(file_, -1));
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return ErrnoStatus(folder_, error.value());
  const std::string path = folder_ + "/" + CurveFileName{claim_, number_, 0}.ToString();
  file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
  if (file_ < 0) return ErrnoStatus(path, errno);
  ++number_;
  steps_in_file_ = 0;
  absl::Status status;
  for (int level = 0; status.ok() && level < kCurveLevels; ++level) status = ThinLevel(level);
  return status;
}

absl::Status CurveWriter::WriteBlock(const std::string& block) {
  size_t written = 0;
  while (written < block.size()) {
    const ssize_t count = write(file_, block.data() + written, block.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(folder_ + ": writing the curves", errno);
    written += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

absl::Status CurveWriter::ThinLevel(int level) {
  absl::StatusOr<std::vector<CurveFile>> files = ListCurveFiles(folder_);
  if (!files.ok()) return files.status();
  std::erase_if(*files, [&](const CurveFile& file) { return file.name.level != level; });
  int64_t bytes = 0;
  for (const CurveFile& file : *files) bytes += file.size_bytes;
  const int64_t most = level == 0 ? limits_.steps * static_cast<int64_t>(kStepRowBytes)
                                  : limits_.points * static_cast<int64_t>(sizeof(CurvePoint));
  const bool many = static_cast<int>(files->size()) > limits_.files;
  if (files->size() < 2 || (!many && bytes <= most)) return absl::OkStatus();
  files->resize(files->size() / 2);
  return CombineCurveFiles(folder_, *files);
}

}  // namespace genesis
