#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/cuda_stream.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels::cuda {

/// Most scratch memory that an op over many rows asks for; it takes the rows in passes instead.
constexpr std::size_t kMaxScratchBytes = std::size_t{64} << 20;

/// Ops::linear. Up to kMaxSkinnyRows rows of x, and weights that are not aligned to 16 bytes, are multiplied in
/// float32 (skinny_linear.hpp). More rows are rounded to the type of the weights and multiplied on tensor cores with
/// float32 sums; parts whose weights lie behind each other are one product. Within each of the two ways an output has
/// the same bits for any number of rows, as far as cuBLASLt's algorithm does not change. 8-bit floats:
/// float8_linear.hpp.
Status cuda_linear(CudaStream& stream, const LinearParams& p);

/// from [count], a multiple of 8 and aligned to 16 bytes -> to, rounded to `dtype` (16 bits).
Status narrow_rows(cudaStream_t stream, const float* from, std::int64_t count, DType dtype, void* to);

/// Parts [first, first + count) of LinearParams, of one type and behind each other in memory.
struct LinearPiece {
  std::size_t first_part = 0;
  std::size_t num_parts = 0;
  std::int64_t rows = 0;          ///< output features
  std::int64_t first_column = 0;  ///< of out

  bool operator==(const LinearPiece&) const = default;
};

/// The parts in order, joined to as few pieces as can be.
std::vector<LinearPiece> linear_pieces(const LinearParams& p);

/// How many rows of which each takes `row_bytes` of scratch go in a pass: at most `rows`; else as many as `most_bytes`
/// hold, in whole tiles of 128, but one tile at least.
std::int64_t rows_per_pass(std::int64_t rows, std::int64_t row_bytes, std::size_t most_bytes);

}  // namespace pagoda::kernels::cuda
