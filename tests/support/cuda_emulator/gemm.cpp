/// Implements the interface of kernels/cuda/gemm.hpp with plain loops in place of cuBLASLt.

#include "kernels/cuda/gemm.hpp"

#include <memory>
#include <utility>

#include "kernels/cuda/device_functions.cuh"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.hpp"

namespace pagoda::kernels::cuda {
namespace {

// Block r computes row r.
void gemm_kernel(GemmParams p) {
  const std::int64_t row = blockIdx.x;
  for (std::int64_t column = 0; column < p.columns; ++column) {
    float sum = 0;
    for (std::int64_t k = 0; k < p.in; ++k) {
      sum += load_element(p.x, p.dtype, row * p.in + k) * load_element(p.weight, p.dtype, column * p.in + k);
    }
    if (p.bias != nullptr) sum += p.bias[column];
    float& out = p.out[row * p.out_stride + column];
    out = p.accumulate ? out + sum : sum;
  }
}

}  // namespace

struct Gemm::State {};

Gemm::Gemm(std::unique_ptr<State> state) : state_(std::move(state)) {}
Gemm::~Gemm() = default;

Result<std::unique_ptr<Gemm>> Gemm::create() {
  return std::unique_ptr<Gemm>(new Gemm(std::make_unique<State>()));
}

Status Gemm::multiply(cudaStream_t stream, const GemmParams& params) {
  // cuBLASLt may refuse unaligned outputs too.
  if (!all_aligned_16(params.out)) return fail(ErrorCode::unsupported, "the emulated product writes aligned rows");
  return launch("gemm", gemm_kernel, dim3(static_cast<unsigned>(params.rows)), dim3(1), 0, stream, params);
}

}  // namespace pagoda::kernels::cuda
