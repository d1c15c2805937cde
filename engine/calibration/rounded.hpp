#pragma once

#include <cstdint>

#include "engine/calibration/gptq_grid.hpp"
#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::calibration {

/// Rounds `weights` [rows, columns] in place to the values that integers of the format stand for, each group by itself.
/// With `rotated` it rounds rotated columns (rotated.hpp) and rotates them back. The result shows what a layer loses
/// when its errors are not compensated. Call inside Stream::submit, on a device that computes on the host. Errors:
/// bad_file (a weight that is not finite, or a scale that its type does not hold).
Status round_weights(kernels::Device& device, kernels::Stream& stream, float* weights, std::int64_t rows,
                     std::int64_t columns, const GptqFormat& format, bool rotated);

}  // namespace pagoda::calibration
