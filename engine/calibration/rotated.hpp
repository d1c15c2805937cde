#pragma once

/// Weights of a layer and products of its inputs when its columns are rotated (kernels/rotation.hpp). With R = H S /
/// sqrt(32) for each block, which is orthogonal, rows w become R w, and x^T x becomes R x^T x R^T.

#include <cstdint>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::calibration {

/// Rotates `rows` [num_rows, columns] in place; `columns` must be whole blocks. Call inside Stream::submit, on a device
/// that computes on the host.
Status rotate_columns(kernels::Device& device, kernels::Stream& stream, float* rows, std::int64_t num_rows,
                      std::int64_t columns);

/// Rotates `products` [size, size], which are symmetric, in place; `size` must be whole blocks. Call as rotate_columns.
Status rotate_products(kernels::Device& device, kernels::Stream& stream, float* products, std::int64_t size);

}  // namespace pagoda::calibration
