#pragma once

#include <cstdint>

#include "kernels/cuda/cuda_stream.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels::cuda {

/// Ops::quantized_linear: x is rounded to 8-bit integers in the scratch, then multiplied on integer tensor cores. Up to
/// kMaxStreamedRows rows stream the weights once; more go in tiles of 128 rows, many more through dequantized_linear
/// where their alignment allows it. Products of a group are exact; the groups are added in one fixed order in each way,
/// whatever the number of rows. To the product of a group of asymmetric weights, whose integers are taken from their
/// middle, comes what q in the middle stands for times the sum of x.
Status cuda_quantized_linear(CudaStream& stream, const QuantizedLinearParams& p);

/// Up to this many rows of x the weights are streamed once.
constexpr std::int64_t kMaxStreamedRows = 16;

/// Tokens are handled in eights, as the tensor cores take them.
constexpr std::int64_t kTokenTile = 8;

/// Rows of x as integers, in scratch: integers [tokens, columns], then scales [groups, tokens], and for asymmetric
/// weights sums likewise, where the tokens are filled up to a multiple of kTokenTile and the columns to one of 32, with
/// zeros.
struct QuantizedX {
  std::int64_t tokens = 0;
  std::int64_t columns = 0;
  std::int64_t groups = 0;
  bool with_sums = false;

  std::int64_t bytes() const {
    return tokens * columns + (with_sums ? 2 : 1) * tokens * groups * static_cast<std::int64_t>(sizeof(float));
  }
};

/// The shape for `num_tokens` rows of x against weights of this shape.
QuantizedX quantized_x(std::int64_t num_tokens, const QuantizedMatrix& weight);

}  // namespace pagoda::kernels::cuda
