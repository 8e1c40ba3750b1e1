#include "cli/progress_line.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/text/enum_names.h"
#include "cli/text.h"
#include "config/job/final_state.h"

namespace genesis::cli {
namespace {

using training::v1::Job;
using training::v1::Progress;

constexpr int kLongestBar = 30;
constexpr int kShortestBar = 10;

std::string Bar(double part, int cells) {
  const int full = std::clamp(static_cast<int>(part * cells), 0, cells);
  return absl::StrCat("[", std::string(static_cast<size_t>(full), '#'),
                      std::string(static_cast<size_t>(cells - full), '.'), "]  ");
}

std::string Figures(const Job& job, const JobSketch& sketch) {
  const Progress& progress = job.progress();
  const double percent =
      100.0 * static_cast<double>(progress.step()) / static_cast<double>(progress.total_steps());
  std::string text = absl::StrFormat("%d/%d  %.1f%%  loss %s%s%s  scale %s", progress.step(),
                                     progress.total_steps(), percent, FormatFigure(progress.loss()),
                                     sketch.loss.empty() ? "" : " ", sketch.loss,
                                     FormatFigure(progress.loss_scale()));
  if (progress.skipped_steps() > 0) {
    absl::StrAppend(&text, "  skipped ", progress.skipped_steps());
  }
  absl::StrAppendFormat(&text, "  %.0f samples/s", progress.samples_per_second());
  if (sketch.memory_bytes > 0) absl::StrAppend(&text, "  ", FormatBytes(sketch.memory_bytes));
  const std::string eta = RenderEta(job);
  if (!eta.empty()) absl::StrAppend(&text, "  ETA ", eta);
  return text;
}

}  // namespace

std::string RenderEta(const Job& job) {
  const Progress& progress = job.progress();
  if (IsFinal(job.state()) || !job.waiting_reason().empty()) return "";
  const int64_t steps_left = progress.total_steps() - progress.step();
  if (progress.step() <= 0 || steps_left <= 0 || progress.samples() <= 0 ||
      !(progress.samples_per_second() > 0)) {
    return "";
  }
  const double samples_per_step =
      static_cast<double>(progress.samples()) / static_cast<double>(progress.step());
  const double seconds =
      static_cast<double>(steps_left) * samples_per_step / progress.samples_per_second();
  constexpr double kTooLong = 1e8;  // Three years; the rate is not meaningful yet.
  return seconds < kTooLong ? FormatSeconds(seconds) : "";
}

std::string RenderProgress(const Job& job, int width, const JobSketch& sketch) {
  const std::string head =
      absl::StrCat(Printable(job.id()), "  ", ShortEnumName(job.state()), "  ");
  const Progress& progress = job.progress();
  std::string line;
  if (!job.waiting_reason().empty()) {
    line = absl::StrCat(head, Printable(job.waiting_reason()));
  } else if (progress.step() <= 0 || progress.total_steps() <= 0) {
    line = job.queue_position() > 0
               ? absl::StrCat(head, "place ", job.queue_position(), " in the queue")
               : absl::StrCat(head, Printable(job.state_reason()));
  } else {
    const std::string figures = Figures(job, sketch);
    constexpr int kBarFrame = 4;  // Columns of "[" and "]  ".
    const int room = width - static_cast<int>(TextWidth(head) + TextWidth(figures)) - kBarFrame;
    const double part =
        static_cast<double>(progress.step()) / static_cast<double>(progress.total_steps());
    const std::string bar = room < kShortestBar ? "" : Bar(part, std::min(room, kLongestBar));
    line = absl::StrCat(head, bar, figures);
  }
  line = CutToWidth(std::move(line), static_cast<size_t>(width));
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

std::string RenderEnd(const Job& job) {
  std::string text =
      absl::StrCat("job ", Printable(job.id()), " ", ShortEnumName(job.state()),
                   job.state_reason().empty() ? "" : ": ", Printable(job.state_reason()), "\n");
  if (job.has_failure()) {
    absl::StrAppend(&text, "cause: ", ShortEnumName(job.failure().cause()), "\n");
    for (const absl::string_view line : absl::StrSplit(job.failure().message(), '\n')) {
      absl::StrAppend(&text, "  ", Printable(line), "\n");
    }
    if (job.failure().log_tail_size() > 0) text += "last log lines of the worker:\n";
    for (const std::string& line : job.failure().log_tail()) {
      absl::StrAppend(&text, "  ", Printable(line), "\n");
    }
  }
  if (job.has_held_out()) {
    const training::v1::HeldOutError& error = job.held_out();
    absl::StrAppend(&text, "held-out error: model ", FormatFigure(error.model()), ", persistence ",
                    FormatFigure(error.persistence()), ", mean ", FormatFigure(error.mean()),
                    " (on ", error.transitions(), " transitions)\n");
  }
  if (job.has_latest_checkpoint()) {
    const training::v1::Checkpoint& checkpoint = job.latest_checkpoint();
    absl::StrAppend(&text, "checkpoint: ", Printable(checkpoint.path()), " (step ",
                    checkpoint.step(), ", ", FormatBytes(checkpoint.size_bytes()), ")\n");
  }
  return text;
}

ProgressLine::ProgressLine(std::ostream& out, bool terminal, int width,
                           std::function<absl::Time()> now)
    : out_(out), terminal_(terminal), width_(width), now_(std::move(now)) {}

void ProgressLine::Update(const Job& job, const JobSketch& sketch) {
  if (terminal_) {
    // A line of full width would wrap and could not be redrawn.
    out_ << "\r" << RenderProgress(job, width_ - 1, sketch) << "\x1b[K" << std::flush;
    open_ = true;
    return;
  }
  const absl::Time time = now_();
  if (job.state() == last_state_ && time - last_print_ < absl::Seconds(1)) return;
  last_state_ = job.state();
  last_print_ = time;
  constexpr int kPlainWidth = 200;
  out_ << RenderProgress(job, kPlainWidth) << "\n" << std::flush;
}

void ProgressLine::Warn(const std::vector<std::string>& warnings) {
  if (warnings == warned_) return;
  warned_ = warnings;
  Close();
  for (const std::string& warning : warnings) out_ << "warning: " << warning << "\n";
}

void ProgressLine::Close() {
  if (open_) out_ << "\n" << std::flush;
  open_ = false;
}

}  // namespace genesis::cli
