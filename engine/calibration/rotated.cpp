#include "engine/calibration/rotated.hpp"

#include <array>

#include "kernels/ops.hpp"
#include "kernels/rotation.hpp"

namespace pagoda::calibration {

using kernels::kRotationBlock;

Status rotate_columns(kernels::Device& device, kernels::Stream& stream, float* rows, std::int64_t num_rows,
                      std::int64_t columns) {
  PAGODA_ASSERT(columns % kRotationBlock == 0, "whole blocks");
  return device.ops().host_work(stream, {.num_tasks = num_rows, .run = [=](std::int64_t row) {
                                           float* const begin = rows + row * columns;
                                           for (std::int64_t k = 0; k < columns; k += kRotationBlock) {
                                             kernels::rotate_block(begin + k, kernels::kOrthogonalFactor);
                                           }
                                         }});
}

Status rotate_products(kernels::Device& device, kernels::Stream& stream, float* products, std::int64_t size) {
  if (Status status = rotate_columns(device, stream, products, size, size); !status) return status;
  return device.ops().host_work(stream, {.num_tasks = size / kRotationBlock, .run = [=](std::int64_t block) {
                                           float* const begin = products + block * kRotationBlock * size;
                                           std::array<float, kRotationBlock> column;
                                           for (std::int64_t k = 0; k < size; ++k) {
                                             for (int i = 0; i < kRotationBlock; ++i) column[i] = begin[i * size + k];
                                             kernels::rotate_block(column.data(), kernels::kOrthogonalFactor);
                                             for (int i = 0; i < kRotationBlock; ++i) begin[i * size + k] = column[i];
                                           }
                                         }});
}

}  // namespace pagoda::calibration
