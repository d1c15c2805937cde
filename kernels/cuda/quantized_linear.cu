#include <algorithm>

#include "kernels/cuda/dequantized_linear.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/linear.hpp"
#include "kernels/cuda/quantized_fragments.cuh"
#include "kernels/cuda/quantized_linear.hpp"
#include "kernels/cuda/quantized_products.hpp"
#include "kernels/cuda/rotation.cuh"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kQuantizeWarps = 8;

struct QuantizeArgs {
  const float* x = nullptr;
  /// [columns]: column k of the weights is multiplied by column order[k] of x; null = by column k.
  const std::int32_t* order = nullptr;
  int num_tokens = 0;
  int in = 0;
  int tokens = 0;
  int x_columns = 0;
  Groups groups;
  bool rotated = false;
  bool pairs_bounded = false;
  float factor = 1.0F;  ///< factor of the scales
  std::int8_t* q = nullptr;
  float* scales = nullptr;
  float* sums = nullptr;  ///< null = no sums are written
};

// Quantises x [num_tokens, in] to q [tokens, x_columns], scales, and sums of scale * q [groups, tokens]. Block (b, t):
// groups from 8b on of token t, one per warp.
template <bool kOrdered>
__global__ __launch_bounds__(kQuantizeWarps * 32) void quantize_x_kernel(const __grid_constant__ QuantizeArgs args) {
  wait_for_stream();
  constexpr float kMinMagnitude = 1e-30F;  // below this maximum all integers are 0, so that 1 / scale is finite
  constexpr int kPerLane = static_cast<int>(kMaxGroupSize) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group = static_cast<int>(blockIdx.x) * kQuantizeWarps + static_cast<int>(threadIdx.x) / 32;
  const int token = static_cast<int>(blockIdx.y);
  if (group >= args.groups.count) return;
  const int first = group * args.groups.size;
  const int columns = token < args.num_tokens ? min(args.groups.size, args.in - first) : 0;
  const float* x = args.x + std::int64_t{token} * args.in + (kOrdered ? 0 : first);
  float values[kPerLane];
  float max_magnitude = 0.0F;
  float nan_if_not_finite = 0.0F;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int column = i * 32 + lane;
    if constexpr (kOrdered) {
      values[i] = column < columns ? x[args.order[first + column]] : 0.0F;
    } else {
      values[i] = column < columns ? x[column] : 0.0F;
    }
    if (args.rotated) values[i] = rotated_x(values[i], lane);
    max_magnitude = fmaxf(max_magnitude, fabsf(values[i]));
    if (args.pairs_bounded)
      max_magnitude = fmaxf(max_magnitude, fabsf(values[i] + __shfl_xor_sync(kFullWarp, values[i], 1)));
    nan_if_not_finite += values[i] * 0.0F;
  }
  max_magnitude = warp_max(max_magnitude) + warp_sum(nan_if_not_finite);
  const float inverse = max_magnitude >= kMinMagnitude ? 127.0F / max_magnitude : 0.0F;
  // The last group also fills the padding of the row.
  const int end = group + 1 == args.groups.count ? args.x_columns - first : args.groups.size;
  std::int8_t* q = args.q + std::int64_t{token} * args.x_columns + first;
  float sum_of_q = 0.0F;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int column = i * 32 + lane;
    const int integer = __float2int_rn(values[i] * inverse);
    if (column < args.groups.size) q[column] = static_cast<std::int8_t>(integer);
    sum_of_q += static_cast<float>(integer);
  }
  if (args.groups.size + lane < end) q[args.groups.size + lane] = 0;
  const std::int64_t at = std::int64_t{group} * args.tokens + token;
  if (lane == 0) args.scales[at] = max_magnitude / 127.0F * args.factor;
  if (args.sums == nullptr) return;
  sum_of_q = warp_sum(sum_of_q);
  if (lane == 0) args.sums[at] = max_magnitude / 127.0F * sum_of_q;
}

/// Function that multiplies weights of a format, and the factor of its fragments (kFragmentFactor).
struct Multiplier {
  Status (*multiply)(cudaStream_t, const QuantizedProduct&);
  float fragment_factor;
};

Multiplier multiplier_of(const QuantizedFormat& format) {
  switch (coding_of(format)) {
    case Coding::int4:
      return {multiply_int4, kFragmentFactor<Coding::int4>};
    case Coding::int5:
      return {multiply_int5, kFragmentFactor<Coding::int5>};
    case Coding::int6:
      return {multiply_int6, kFragmentFactor<Coding::int6>};
    case Coding::codebook:
      return {multiply_codebook, kFragmentFactor<Coding::codebook>};
    case Coding::int8:
      break;
  }
  return {multiply_int8, kFragmentFactor<Coding::int8>};
}

Status quantize(cudaStream_t stream, const QuantizedLinearParams& p, const QuantizedX& shape, std::int64_t first,
                std::int64_t count, void* x_data) {
  const QuantizedMatrix& front = p.weights.front();
  QuantizeArgs args;
  args.x = p.x + first * p.in;
  args.order = front.order;
  args.num_tokens = static_cast<int>(count);
  args.in = static_cast<int>(p.in);
  args.tokens = static_cast<int>(shape.tokens);
  args.x_columns = static_cast<int>(shape.columns);
  args.groups = groups_of(front.format.group_size, shape.groups);
  args.rotated = front.format.rotated;
  args.pairs_bounded = front.format.pairs_bounded();
  args.factor = 1.0F / multiplier_of(front.format).fragment_factor;
  args.q = static_cast<std::int8_t*>(x_data);
  args.scales = reinterpret_cast<float*>(args.q + shape.tokens * shape.columns);
  if (shape.with_sums) args.sums = args.scales + shape.tokens * shape.groups;
  const dim3 grid(static_cast<unsigned>(ceil_divide<std::int64_t>(shape.groups, kQuantizeWarps)),
                  static_cast<unsigned>(shape.tokens));
  return launch(Start::early, "quantize_x", front.order == nullptr ? quantize_x_kernel<false> : quantize_x_kernel<true>,
                grid, dim3(kQuantizeWarps * 32), 0, stream, args);
}

}  // namespace

QuantizedX quantized_x(std::int64_t num_tokens, const QuantizedMatrix& weight) {
  return {ceil_divide(num_tokens, kTokenTile) * kTokenTile,
          ceil_divide<std::int64_t>(weight.padded_columns(), kStepColumns) * kStepColumns, weight.groups(),
          weight.format.asymmetric};
}

Status cuda_quantized_linear(CudaStream& stream, const QuantizedLinearParams& p) {
  if (p.num_tokens == 0) return {};
  if (p.num_tokens >= kMinDequantizedRows) {
    Status status = dequantized_linear(stream, p);
    if (status || status.error().code != ErrorCode::unsupported) return status;
  }
  constexpr std::int64_t kMaxRows = 32768;  // maximum of a grid dimension
  const QuantizedMatrix& front = p.weights.front();
  const auto multiply = multiplier_of(front.format).multiply;
  const std::int64_t row_bytes = quantized_x(kTokenTile, front).bytes() / kTokenTile;
  const std::int64_t rows = std::min(kMaxRows, rows_per_pass(p.num_tokens, row_bytes, kMaxScratchBytes));
  const Result<std::byte*> scratch = stream.scratch(static_cast<std::size_t>(quantized_x(rows, front).bytes()));
  if (!scratch) return fail(scratch.error());
  for (std::int64_t first = 0; first < p.num_tokens; first += rows) {
    const std::int64_t count = std::min(rows, p.num_tokens - first);
    const QuantizedX shape = quantized_x(count, front);
    Status status = quantize(stream.get(), p, shape, first, count, *scratch);
    if (status) status = multiply(stream.get(), {p, shape, first, count, *scratch});
    if (!status) return status;
  }
  return {};
}

}  // namespace pagoda::kernels::cuda
