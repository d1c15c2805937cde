#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/cuda_stream.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels::cuda {

/// Maximum scratch memory of an op over many rows; the op processes the rows in passes to stay below it.
constexpr std::size_t kMaxScratchBytes = std::size_t{64} << 20;

/// Ops::linear. Up to kMaxSkinnyRows rows of x, and weights that are not aligned to 16 bytes, are multiplied in float32
/// (skinny_linear.hpp). More rows are rounded to the type of the weights and multiplied on tensor cores with float32
/// sums; parts whose weights are adjacent in memory become one product. Within each of the two paths an output has the
/// same bits for any number of rows, as long as cuBLASLt uses the same algorithm. 8-bit floats: float8_linear.hpp.
Status cuda_linear(CudaStream& stream, const LinearParams& p);

/// Rounds from [count] to `dtype` (16 bits) and writes the result to `to`. count is a multiple of 8, and `from` is
/// aligned to 16 bytes.
Status narrow_rows(cudaStream_t stream, const float* from, std::int64_t count, DType dtype, void* to);

/// Parts [first_part, first_part + num_parts) of LinearParams, which have one type and are adjacent in memory.
struct LinearPiece {
  std::size_t first_part = 0;
  std::size_t num_parts = 0;
  std::int64_t rows = 0;          ///< output features
  std::int64_t first_column = 0;  ///< first column of out

  bool operator==(const LinearPiece&) const = default;
};

/// Returns the parts in order, joined into as few pieces as possible.
std::vector<LinearPiece> linear_pieces(const LinearParams& p);

/// Returns the number of rows of a pass, if each row needs `row_bytes` of scratch: `rows` if they fit into
/// `max_bytes`; otherwise the number that fits, in whole tiles of 128, but at least one tile.
std::int64_t rows_per_pass(std::int64_t rows, std::int64_t row_bytes, std::size_t max_bytes);

}  // namespace pagoda::kernels::cuda
