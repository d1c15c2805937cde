#pragma once

#include <cstdint>

#include "kernels/cuda/cuda_stream.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels::cuda {

/// Ops::quantized_linear: x is rounded to 8-bit integers in the scratch, then multiplied on integer tensor cores. Up to
/// kMaxStreamedRows rows stream the weights once; more rows are processed in tiles of 128 rows, and many more by
/// dequantized_linear if their alignment allows it. Products of a group are exact. Each path adds the groups in one
/// fixed order that does not depend on the number of rows. The integers of asymmetric weights are stored relative to
/// the middle of their range, so the value of that middle times the sum of x is added to the product of each group.
Status cuda_quantized_linear(CudaStream& stream, const QuantizedLinearParams& p);

/// Up to this many rows of x, the weights are streamed once.
constexpr std::int64_t kMaxStreamedRows = 16;

/// The tensor cores process tokens in tiles of 8.
constexpr std::int64_t kTokenTile = 8;

/// Layout of the rows of x as integers in scratch: integers [tokens, columns], then scales [groups, tokens], and for
/// asymmetric weights sums [groups, tokens]. The tokens are padded with zeros to a multiple of kTokenTile, and the
/// columns to a multiple of 32.
struct QuantizedX {
  std::int64_t tokens = 0;
  std::int64_t columns = 0;
  std::int64_t groups = 0;
  bool with_sums = false;

  std::int64_t bytes() const {
    return tokens * columns + (with_sums ? 2 : 1) * tokens * groups * static_cast<std::int64_t>(sizeof(float));
  }
};

/// Returns the layout for `num_tokens` rows of x and weights of this shape.
QuantizedX quantized_x(std::int64_t num_tokens, const QuantizedMatrix& weight);

}  // namespace pagoda::kernels::cuda
