#include "curves/curve_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "base/files/crc32c.h"

namespace genesis {
namespace {

constexpr absl::string_view kMagic = "GCRV";
constexpr size_t kCheckedAt = 8;           // First checked byte, after magic and checksum.
constexpr size_t kMaxPointsOfBlock = 512;  // Bounds the loss by one flipped bit.
// Maximum number of damaged blocks in a file. After them the file is not read, to save checksums.
constexpr int kMaxFaults = 100;

struct BlockHeader {
  uint32_t level = 0;
  uint32_t count = 0;
  int64_t first_step = 0;
  int64_t first_samples = 0;
  int64_t time_ms = 0;
  double seconds = 0;
  int64_t last_samples = 0;
};
static_assert(sizeof(BlockHeader) == 48, "part of the format");

struct StepRow {
  float offset_seconds = 0;
  uint8_t mode = 0;
  uint8_t skipped = 0;
  uint16_t zero = 0;
  std::array<float, kCurveMetrics> metrics = {};
};
static_assert(sizeof(StepRow) == kStepRowBytes, "part of the format");

template <typename T>
void Put(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <typename T>
T Get(absl::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// Returns the block of a header and rows.
std::string Block(const BlockHeader& header, absl::string_view rows) {
  std::string bytes(kMagic);
  Put(bytes, uint32_t{0});
  Put(bytes, header);
  bytes.append(rows.data(), rows.size());
  const uint32_t checksum = Crc32c(0, bytes.data() + kCheckedAt, bytes.size() - kCheckedAt);
  std::memcpy(bytes.data() + kMagic.size(), &checksum, sizeof(checksum));
  return bytes;
}

size_t RowSize(const BlockHeader& header) {
  return header.level == 0 ? sizeof(StepRow) : sizeof(CurvePoint);
}

// Returns the size of the valid block at the beginning of `bytes`; 0 if there is none.
size_t ValidBlock(absl::string_view bytes, BlockHeader& header) {
  constexpr size_t kHeader = kCheckedAt + sizeof(BlockHeader);
  if (bytes.size() < kHeader || bytes.substr(0, kMagic.size()) != kMagic) return 0;
  header = Get<BlockHeader>(bytes, kCheckedAt);
  const uint64_t size = kHeader + uint64_t{header.count} * RowSize(header);
  if (size > bytes.size()) return 0;
  const uint32_t checksum = Crc32c(0, bytes.data() + kCheckedAt, size - kCheckedAt);
  return checksum == Get<uint32_t>(bytes, kMagic.size()) ? size : 0;
}

// Calls `see(header, rows)` for each valid block. Returns the number of bytes outside valid blocks.
template <typename See>
size_t ForEachBlock(absl::string_view bytes, See see) {
  size_t damaged = 0;
  int faults = 0;
  while (!bytes.empty()) {
    BlockHeader header;
    const size_t size = faults < kMaxFaults ? ValidBlock(bytes, header) : 0;
    if (size > 0) {
      const size_t rows = uint64_t{header.count} * RowSize(header);
      see(header, bytes.substr(size - rows, rows));
      bytes.remove_prefix(size);
      continue;
    }
    ++faults;
    const size_t next =
        faults < kMaxFaults ? std::min(bytes.find(kMagic, 1), bytes.size()) : bytes.size();
    damaged += next;
    bytes.remove_prefix(next);
  }
  return damaged;
}

void AppendRows(const BlockHeader& header, absl::string_view rows,
                std::vector<CurvePoint>& points) {
  // Every step of a run has the same number of samples.
  const int64_t samples_per_step =
      header.count < 2 ? 0 : (header.last_samples - header.first_samples) / (header.count - 1);
  for (uint32_t i = 0; i < header.count; ++i) {
    if (header.level != 0) {
      AppendPoint(Get<CurvePoint>(rows, i * sizeof(CurvePoint)), points);
      continue;
    }
    const auto row = Get<StepRow>(rows, i * sizeof(StepRow));
    AppendPoint(PointOf({.step = header.first_step + i,
                         .samples = header.first_samples + i * samples_per_step,
                         .time_ms = header.time_ms + std::llround(row.offset_seconds * 1000.0),
                         .seconds = header.seconds + row.offset_seconds,
                         .mode = row.mode,
                         .skipped = row.skipped != 0,
                         .metrics = row.metrics}),
                points);
  }
}

void CombineRange(const CurveRange& later, CurveRange& to) {
  if (later.count == 0) return;
  if (to.count == 0) {
    to = later;
    return;
  }
  const uint32_t count = to.count + later.count;
  to.min = std::min(to.min, later.min);
  to.max = std::max(to.max, later.max);
  to.mean =
      static_cast<float>((double{to.mean} * to.count + double{later.mean} * later.count) / count);
  to.count = count;
}

}  // namespace

CurvePoint PointOf(const CurveStep& step) {
  CurvePoint point{.first_step = step.step,
                   .last_step = step.step,
                   .samples = step.samples,
                   .time_ms = step.time_ms,
                   .seconds = step.seconds,
                   .steps = 1,
                   .skipped = static_cast<uint16_t>(step.skipped ? 1 : 0),
                   .modes = static_cast<uint16_t>(1U << (step.mode & 15U))};
  for (size_t i = 0; i < kCurveMetrics; ++i) {
    const float value = step.metrics[i];
    if (std::isfinite(value)) point.metrics[i] = {value, value, value, 1};
  }
  return point;
}

void Combine(const CurvePoint& later, CurvePoint& to) {
  constexpr uint32_t kMaxSkipped = std::numeric_limits<uint16_t>::max();
  to.last_step = later.last_step;
  to.samples = later.samples;
  to.time_ms = later.time_ms;
  to.seconds = later.seconds;
  to.steps += later.steps;
  to.skipped = static_cast<uint16_t>(std::min(kMaxSkipped, uint32_t{to.skipped} + later.skipped));
  to.modes = static_cast<uint16_t>(to.modes | later.modes);
  for (size_t i = 0; i < kCurveMetrics; ++i) CombineRange(later.metrics[i], to.metrics[i]);
}

void AppendPoint(const CurvePoint& point, std::vector<CurvePoint>& points) {
  while (!points.empty() && points.back().last_step >= point.first_step) points.pop_back();
  points.push_back(point);
}

std::vector<CurvePoint> Thinned(const std::vector<CurvePoint>& points, int64_t first_step,
                                int64_t width) {
  std::vector<CurvePoint> thinned;
  for (const CurvePoint& point : points) {
    const bool begins = thinned.empty() || (thinned.back().first_step - first_step) / width !=
                                               (point.last_step - first_step) / width;
    if (begins) {
      thinned.push_back(point);
    } else {
      Combine(point, thinned.back());
    }
  }
  return thinned;
}

std::string CurveFileName::ToString() const {
  return absl::StrFormat("%010d-%06d.%d", claim, number, level);
}

bool CurveFileName::operator<(const CurveFileName& other) const {
  return std::tuple(claim, number, -level) < std::tuple(other.claim, other.number, -other.level);
}

std::optional<CurveFileName> ParseCurveFileName(const std::string& name) {
  constexpr size_t kDash = 10;
  constexpr size_t kDot = 17;
  CurveFileName parsed;
  if (name.find_first_not_of("0123456789-.") != std::string::npos || name[0] == '-' ||
      name.size() != kDot + 2 || !absl::SimpleAtoi(name.substr(0, kDash), &parsed.claim) ||
      !absl::SimpleAtoi(name.substr(kDash + 1, kDot - kDash - 1), &parsed.number) ||
      !absl::SimpleAtoi(name.substr(kDot + 1), &parsed.level)) {
    return std::nullopt;
  }
  if (parsed.level >= kCurveLevels || parsed.ToString() != name) return std::nullopt;
  return parsed;
}

std::string EncodeSteps(absl::Span<const CurveStep> steps) {
  const CurveStep& first = steps.front();
  std::string rows;
  rows.reserve(steps.size() * sizeof(StepRow));
  for (const CurveStep& step : steps) {
    Put(rows, StepRow{.offset_seconds = static_cast<float>(step.seconds - first.seconds),
                      .mode = step.mode,
                      .skipped = static_cast<uint8_t>(step.skipped ? 1 : 0),
                      .metrics = step.metrics});
  }
  return Block({.level = 0,
                .count = static_cast<uint32_t>(steps.size()),
                .first_step = first.step,
                .first_samples = first.samples,
                .time_ms = first.time_ms,
                .seconds = first.seconds,
                .last_samples = steps.back().samples},
               rows);
}

std::string EncodePoints(const std::vector<CurvePoint>& points, int level) {
  std::string bytes;
  for (size_t begin = 0; begin < points.size(); begin += kMaxPointsOfBlock) {
    const size_t count = std::min(kMaxPointsOfBlock, points.size() - begin);
    bytes += Block({.level = static_cast<uint32_t>(level),
                    .count = static_cast<uint32_t>(count),
                    .first_step = points[begin].first_step},
                   {reinterpret_cast<const char*>(&points[begin]), count * sizeof(CurvePoint)});
  }
  return bytes;
}

int64_t FirstStep(absl::string_view bytes) {
  int64_t first = std::numeric_limits<int64_t>::max();
  ForEachBlock(bytes, [&first](const BlockHeader& header, absl::string_view) {
    first = std::min(first, header.first_step);
  });
  return first;
}

size_t DecodeBlocks(absl::string_view bytes, std::vector<CurvePoint>& points) {
  return ForEachBlock(bytes, [&points](const BlockHeader& header, absl::string_view rows) {
    AppendRows(header, rows, points);
  });
}

}  // namespace genesis
