#pragma once

/// Matrix multiplication on tensor cores: cuBLASLt behind a small interface. The tests that run without a GPU put plain
/// loops behind the same interface (tests/support/cuda_emulator/gemm.cpp).

#include <cstddef>
#include <cstdint>
#include <memory>

#include <cuda_runtime_api.h>

#include "kernels/dtype.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels::cuda {

/// out = x * weight^T (+ bias) (+ out), summed in float32. All pointers are device memory.
struct GemmParams {
  const void* x = nullptr;       ///< [rows, in] of dtype
  const void* weight = nullptr;  ///< [columns, in] of dtype
  DType dtype = DType::bf16;     ///< float32 is multiplied as float32, not as TF32
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t columns = 0;
  const float* bias = nullptr;  ///< [columns] or null
  float* out = nullptr;         ///< [rows, out_stride], the first `columns` of each row
  std::int64_t out_stride = 0;
  bool accumulate = false;
};

/// The number of rows that an algorithm is chosen for: the next power of two from 16 on. So calls with about as many
/// rows share an algorithm, whichever came first.
constexpr std::int64_t gemm_row_bucket(std::int64_t rows) {
  std::int64_t bucket = 16;
  while (bucket < rows) bucket *= 2;
  return bucket;
}

/// A cuBLASLt handle with its workspace and the algorithms chosen so far. Made once per stream, outside of graph
/// capture; multiply() may be captured. One thread uses it at a time.
class Gemm {
 public:
  /// For the current device. Errors: out_of_memory; internal, with cuBLAS's name of the error.
  static Result<std::unique_ptr<Gemm>> create();
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  /// Errors: unsupported, when cuBLASLt has no algorithm for these shapes and alignments.
  Status multiply(cudaStream_t stream, const GemmParams& params);

 private:
  struct State;
  explicit Gemm(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace pagoda::kernels::cuda
