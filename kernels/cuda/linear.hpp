#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <cuda_runtime_api.h>

#include "kernels/cuda/gemm.hpp"
#include "kernels/ops.hpp"

namespace pagoda::kernels::cuda {

/// Device memory of one stream that an op may use until it has ended in stream order. It stays where it is while graphs
/// are replayed that were captured with it.
struct Scratch {
  void* data = nullptr;  ///< aligned to 256 bytes
  std::size_t bytes = 0;
};

/// Ops::linear. Up to kMostSkinnyRows rows of x, and weights that are not aligned to 16 bytes, are multiplied in
/// float32 (skinny_linear.hpp). More rows are rounded to the type of the weights, as many at a time as the scratch
/// holds, and multiplied on tensor cores with float32 sums; parts whose weights lie behind each other are one product.
/// Within each of the two ways an output has the same bits for any number of rows, as far as cuBLASLt's algorithm does
/// not change. Errors: internal when the scratch does not hold one row.
Status cuda_linear(cudaStream_t stream, Gemm& gemm, const Scratch& scratch, const LinearParams& p);

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

/// How many rows of x are converted and multiplied at a time: at most `num_tokens`, a multiple of 128 when it is less
/// and there is room for as many. 0 when the scratch does not hold the biases ([columns] float32) and one row.
std::int64_t rows_at_a_time(std::int64_t num_tokens, std::int64_t in, std::int64_t columns, DType dtype,
                            std::size_t scratch_bytes);

}  // namespace pagoda::kernels::cuda
