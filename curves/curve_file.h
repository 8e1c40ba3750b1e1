#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

// The files of a job's curves: the metrics of every step. All numbers are little-endian; every
// checksum is CRC-32C.
//
//   FOLDER/<claim>-<number>.<level>   10, 6 and 1 digits. Steps of the attempt with that
//                                     StartJob.claim, or points that combine older files
//
//   file:    blocks
//   block:   header, 56 bytes:  "GCRV" u32, checksum of the rest of the block u32,
//                               level u32, count u32; of the first step: step i64, samples i64,
//                               Unix time in milliseconds i64, training time in seconds f64;
//                               samples of the last step i64
//            level 0:           count consecutive steps, 32 bytes each: seconds since
//                               the first one f32, mode u8, skipped u8, 0 u16, metrics f32 [6]
//            level 1 to 3:      count points, 144 bytes each: a CurvePoint as it is in memory
//
// A point of level k combines up to 64^k steps. Files are read in the order of claim and number; if
// both are equal, higher levels first. A step replaces all earlier ones with the same or a larger
// number, because the run went back to the step before it.
namespace genesis {

// A metric of each step.
enum class CurveMetric : uint8_t {
  kLoss,
  kLossScale,
  kGradNorm,  // Unscaled, before clipping.
  kLearningRate,
  kStepSeconds,
  kMemoryBytes,  // Held by the CUDA allocator; NaN on a CPU.
};
inline constexpr size_t kCurveMetrics = 6;
inline constexpr std::array<absl::string_view, kCurveMetrics> kCurveNames = {
    "loss", "loss_scale", "grad_norm", "learning_rate", "step_seconds", "memory_bytes"};

inline constexpr size_t kStepRowBytes = 32;
inline constexpr int kCurveLevels = 4;
inline constexpr int64_t kCurveThinning = 64;

// One step of a run.
struct CurveStep {
  int64_t step = 0;
  int64_t samples = 0;   // Training examples over all attempts, this step included.
  int64_t time_ms = 0;   // Unix time at its end.
  double seconds = 0;    // Training time over all attempts.
  uint8_t mode = 0;      // PrecisionMode.
  bool skipped = false;  // The update was skipped.
  std::array<float, kCurveMetrics> metrics = {};
};

// The finite values of one metric over some steps.
struct CurveRange {
  float min = 0;
  float max = 0;
  float mean = 0;
  uint32_t count = 0;  // Finite values; 0: the rest is 0.
};

// Several successive steps, combined into one point.
struct CurvePoint {
  int64_t first_step = 0;
  int64_t last_step = 0;
  int64_t samples = 0;   // After the last step.
  int64_t time_ms = 0;   // Unix time after the last step.
  double seconds = 0;    // After the last step.
  uint32_t steps = 0;    // May be fewer than the range holds: the others were lost.
  uint16_t skipped = 0;  // At most 65,535.
  uint16_t modes = 0;    // Bit m is set if a step ran in PrecisionMode m.
  std::array<CurveRange, kCurveMetrics> metrics = {};
};
static_assert(sizeof(CurvePoint) == 144, "part of the format");

CurvePoint PointOf(const CurveStep& step);
// Adds a later point to `to`.
void Combine(const CurvePoint& later, CurvePoint& to);
// Appends a point, after removing the points that end at or after its first step.
void AppendPoint(const CurvePoint& point, std::vector<CurvePoint>& points);
// Combines the points of each `width` consecutive steps, counted from `first_step`.
std::vector<CurvePoint> Thinned(const std::vector<CurvePoint>& points, int64_t first_step,
                                int64_t width);

struct CurveFileName {
  int64_t claim = 0;
  int64_t number = 0;
  int level = 0;

  std::string ToString() const;
  // Orders files as they are read.
  bool operator<(const CurveFileName& other) const;
};
std::optional<CurveFileName> ParseCurveFileName(const std::string& name);

// Returns a block of level 0. `steps` are consecutive, and at least one.
std::string EncodeSteps(absl::Span<const CurveStep> steps);
// Returns blocks of a level from 1 to 3.
std::string EncodePoints(const std::vector<CurvePoint>& points, int level);

// Returns the lowest first step of the valid blocks of a file; the largest int64_t if it has none.
int64_t FirstStep(absl::string_view bytes);

// Adds the blocks of a file to `points` with AppendPoint. Skips bytes that are not a valid block.
// Returns the number of skipped bytes.
size_t DecodeBlocks(absl::string_view bytes, std::vector<CurvePoint>& points);

}  // namespace genesis
