#pragma once

/// Matrix multiplication on tensor cores: cuBLASLt behind a small interface. Tests that run without a GPU implement the
/// same interface with plain loops (tests/support/cuda_emulator/gemm.cpp).

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
  float* out = nullptr;         ///< [rows, out_stride]; the product fills the first `columns` of each row
  std::int64_t out_stride = 0;
  bool accumulate = false;  ///< whether the product is added to out; otherwise it replaces out
};

/// Returns the number of rows for which an algorithm is chosen: the next power of two, at least 16. So calls with
/// similar numbers of rows share an algorithm, independent of the order of the calls.
constexpr std::int64_t gemm_row_bucket(std::int64_t rows) {
  std::int64_t bucket = 16;
  while (bucket < rows) bucket *= 2;
  return bucket;
}

/// A cuBLASLt handle with its workspace and the algorithms chosen so far. It is made once per stream, outside of graph
/// capture; multiply() may be captured. Only one thread may use it at a time.
class Gemm {
 public:
  /// Creates a Gemm for the current device. Errors: out_of_memory; internal, with the name that cuBLAS gives the error.
  static Result<std::unique_ptr<Gemm>> create();
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  /// Enqueues the product. Errors: unsupported, if cuBLASLt has no algorithm for these shapes and alignments.
  Status multiply(cudaStream_t stream, const GemmParams& params);

 private:
  struct State;
  explicit Gemm(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace pagoda::kernels::cuda
