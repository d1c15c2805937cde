#pragma once

/// What a layer's weights and the products of its inputs are when its columns are rotated (kernels/rotation.hpp), with
/// R = H S / sqrt(32) for each block, which is orthogonal: rows w become R w, and x^T x becomes R x^T x R^T.

#include <cstdint>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::calibration {

/// `rows` [num_rows, columns] in place; whole blocks. Inside Stream::submit, on a device that computes on the host.
Status rotate_columns(kernels::Device& device, kernels::Stream& stream, float* rows, std::int64_t num_rows,
                      std::int64_t columns);

/// `products` [size, size], symmetric, in place; likewise.
Status rotate_products(kernels::Device& device, kernels::Stream& stream, float* products, std::int64_t size);

}  // namespace pagoda::calibration
