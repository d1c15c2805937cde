#pragma once

/// Linear layers that convert their weights to bfloat16 and multiply them with cuBLASLt.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/cuda/bias.hpp"
#include "kernels/cuda/cuda_stream.hpp"
#include "kernels/cuda/device_functions.cuh"
#include "kernels/cuda/gemm.hpp"
#include "kernels/cuda/linear.hpp"

namespace pagoda::kernels::cuda {

/// Areas of the scratch of a call.
struct DequantizedScratch {
  std::byte* x = nullptr;
  std::byte* weight = nullptr;
  float* bias = nullptr;
};

/// Returns whether x and the outputs of a LinearParams or QuantizedLinearParams are aligned as cuBLASLt needs: to whole
/// 16 bytes.
template <class Params>
bool fits_gemm(const Params& p) {
  constexpr std::int64_t kOutFloats = 4;
  constexpr std::int64_t kNarrowElements = 8;
  const bool whole_parts =
      std::all_of(p.weights.begin(), p.weights.end(), [](const auto& weight) { return weight.rows % kOutFloats == 0; });
  return whole_parts && p.in % kNarrowElements == 0 && p.out_stride % kOutFloats == 0 && all_aligned_16(p.x, p.out);
}

/// Multiplies all rows of x in scratch with weight rows [first, first + count) of part `index`, whose outputs begin at
/// `out`.
template <class Params, class Dequantize>
Status multiply_dequantized_piece(CudaStream& stream, Gemm& gemm, const Params& p, std::size_t index,
                                  std::int64_t first, std::int64_t count, const DequantizedScratch& scratch,
                                  std::int64_t num_tokens, float* out, const Dequantize& dequantize) {
  Status status = dequantize(index, first, count, scratch.weight);
  const void* bias = p.biases.empty() ? nullptr : p.biases[index];
  if (status && bias != nullptr) {
    const auto offset = first * static_cast<std::int64_t>(size_of(p.bias_dtype));
    status = widen_bias(stream.get(), static_cast<const std::byte*>(bias) + offset, p.bias_dtype, count, scratch.bias);
  }
  if (!status) return status;
  status = gemm.multiply(stream.get(), {.x = scratch.x,
                                        .weight = scratch.weight,
                                        .dtype = DType::bf16,
                                        .rows = num_tokens,
                                        .in = p.in,
                                        .columns = count,
                                        .bias = bias == nullptr ? nullptr : scratch.bias,
                                        .out = out + first,
                                        .out_stride = p.out_stride,
                                        .accumulate = p.accumulate});
  if (status || status.error().code != ErrorCode::unsupported) return status;
  // Other pieces may already be written.
  return fail(ErrorCode::internal, "dequantized weights: " + status.error().message);
}

/// Computes a LinearParams or QuantizedLinearParams for which fits_gemm() is true, with x and the weights rounded to
/// bfloat16 and with float32 sums. Weights are converted piece by piece in scratch. `narrow_x(first, count, to)` writes
/// rows of x as bfloat16, and `dequantize(part, first, count, to)` writes rows of a part's weights as bfloat16; `first`
/// is a multiple of 128. Rows of x and weights are processed in passes of at most `max_bytes` each, or of one tile.
template <class Params, class NarrowX, class Dequantize>
Status multiply_dequantized(CudaStream& stream, const Params& p, const NarrowX& narrow_x, const Dequantize& dequantize,
                            std::size_t max_bytes = kMaxScratchBytes) {
  constexpr std::int64_t kElementBytes = 2;
  constexpr std::size_t kAlignment = 256;
  const auto area = [](std::int64_t bytes) {
    return ceil_divide(static_cast<std::size_t>(bytes), kAlignment) * kAlignment;
  };
  const Result<Gemm*> gemm = stream.gemm();
  if (!gemm) return fail(gemm.error());
  std::int64_t max_rows = 0;
  for (const auto& weight : p.weights) max_rows = std::max(max_rows, weight.rows);
  const std::int64_t tokens = rows_per_pass(p.num_tokens, p.in * kElementBytes, max_bytes);
  const std::int64_t piece = rows_per_pass(max_rows, p.in * kElementBytes, max_bytes);
  const std::size_t x_bytes = area(tokens * p.in * kElementBytes);
  const std::size_t weight_bytes = area(piece * p.in * kElementBytes);
  const std::size_t bias_bytes = area(piece * static_cast<std::int64_t>(sizeof(float)));
  const Result<std::byte*> memory = stream.scratch(x_bytes + weight_bytes + bias_bytes);
  if (!memory) return fail(memory.error());
  const DequantizedScratch scratch{*memory, *memory + x_bytes,
                                   reinterpret_cast<float*>(*memory + x_bytes + weight_bytes)};
  for (std::int64_t first_token = 0; first_token < p.num_tokens; first_token += tokens) {
    const std::int64_t count = std::min(tokens, p.num_tokens - first_token);
    Status status = narrow_x(first_token, count, scratch.x);
    float* out = p.out + first_token * p.out_stride;
    for (std::size_t i = 0; i < p.weights.size(); ++i) {
      const std::int64_t rows = p.weights[i].rows;
      for (std::int64_t first = 0; first < rows && status; first += piece) {
        status = multiply_dequantized_piece(stream, **gemm, p, i, first, std::min(piece, rows - first), scratch, count,
                                            out, dequantize);
      }
      out += rows;
    }
    if (!status) return status;
  }
  return {};
}

}  // namespace pagoda::kernels::cuda
