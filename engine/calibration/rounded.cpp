#include "engine/calibration/rounded.hpp"

#include <atomic>
#include <cmath>
#include <vector>

#include "kernels/ops.hpp"
#include "kernels/rotation.hpp"

namespace pagoda::calibration {
namespace {

using kernels::kRotationBlock;

/// Returns false when a value is not finite.
bool round_row(float* row, std::int64_t columns, const GptqFormat& format, const float* importance) {
  const std::int64_t size = format.group_size;
  for (std::int64_t first = 0; first < columns; first += size) {
    const std::span<float> group(row + first, static_cast<std::size_t>(size));
    const GptqGrid grid = best_grid(group, importance, format);
    if (!std::isfinite(grid.scale) || !std::isfinite(grid.min)) return false;
    for (float& weight : group) {
      if (!std::isfinite(weight)) return false;
      weight = grid.value(grid.steps(weight));
    }
  }
  return true;
}

}  // namespace

Status round_weights(kernels::Device& device, kernels::Stream& stream, float* weights, std::int64_t rows,
                     std::int64_t columns, const GptqFormat& format, bool rotated) {
  PAGODA_ASSERT(columns % format.group_size == 0 && (!rotated || columns % kRotationBlock == 0), "whole groups");
  const std::vector<float> importance(static_cast<std::size_t>(format.group_size), 1.0F);
  std::atomic<bool> finite = true;
  const auto round = [&](std::int64_t row) {
    float* const begin = weights + row * columns;
    for (std::int64_t k = 0; k < columns && rotated; k += kRotationBlock) {
      kernels::rotate_block(begin + k, kernels::kOrthogonalFactor);
    }
    if (!round_row(begin, columns, format, importance.data())) finite = false;
    for (std::int64_t k = 0; k < columns && rotated; k += kRotationBlock) {
      kernels::rotate_block_back(begin + k, kernels::kOrthogonalFactor);
    }
  };
  if (Status status = device.ops().host_work(stream, {.num_tasks = rows, .run = round}); !status) return status;
  if (!finite) return fail(ErrorCode::bad_file, "a weight is not finite or too large to be quantised");
  return {};
}

}  // namespace pagoda::calibration
