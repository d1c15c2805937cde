#include <algorithm>

#include "kernels/cuda/bias.hpp"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/float8_linear.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/linear.hpp"
#include "kernels/cuda/skinny_linear.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 8;

// Converts from [count], a multiple of 8, to `to` [count].
template <class T>
__global__ __launch_bounds__(kThreads) void narrow_kernel(const float* from, std::int64_t count, T* to) {
  const std::int64_t first = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kPerThread;
  wait_for_stream();
  if (first >= count) return;
  const auto* source = reinterpret_cast<const float4*>(from + first);
  const float4 a = source[0];
  const float4 b = source[1];
  *reinterpret_cast<uint4*>(to + first) = {word_of<T>(a.x, a.y), word_of<T>(a.z, a.w), word_of<T>(b.x, b.y),
                                           word_of<T>(b.z, b.w)};
}

/// Returns the params of parts [first, first + count) alone.
LinearParams part_of(const LinearParams& p, std::size_t first, std::size_t count, std::int64_t first_column) {
  LinearParams part = p;
  part.weights = p.weights.subspan(first, count);
  if (!p.biases.empty()) part.biases = p.biases.subspan(first, count);
  part.out = p.out + first_column;
  return part;
}

/// Returns the params of tokens [first, first + count) alone.
LinearParams tokens_of(const LinearParams& p, std::int64_t first, std::int64_t count) {
  LinearParams some = p;
  some.num_tokens = count;
  if (p.narrow_x) {
    some.narrow_x.data = static_cast<std::byte*>(p.narrow_x.data) + first * p.in * 2;
  } else {
    some.x = p.x + first * p.in;
  }
  some.out = p.out + first * p.out_stride;
  return some;
}

bool one_type(const LinearParams& p) {
  return std::all_of(p.weights.begin(), p.weights.end(),
                     [&](const WeightMatrix& w) { return w.dtype == p.weights.front().dtype; });
}

/// Multiplies in float32; all parts are one launch if they have one type.
Status stream_weights(cudaStream_t stream, const LinearParams& p) {
  if (one_type(p)) return skinny_linear(stream, p);
  std::int64_t column = 0;
  for (std::size_t i = 0; i < p.weights.size(); ++i) {
    if (Status status = skinny_linear(stream, part_of(p, i, 1, column)); !status) return status;
    column += p.weights[i].rows;
  }
  return {};
}

bool has_bias(const LinearParams& p) {
  return std::any_of(p.biases.begin(), p.biases.end(), [](const void* bias) { return bias != nullptr; });
}

/// Multiplies one piece on tensor cores.
Status multiply_piece(CudaStream& stream, Gemm& gemm, const LinearParams& p, std::int64_t columns) {
  constexpr std::size_t kAlignment = 256;
  const DType dtype = p.weights.front().dtype;
  const std::int64_t row_bytes = dtype == DType::f32 || p.narrow_x ? 0 : p.in * 2;
  const std::int64_t rows = rows_per_pass(p.num_tokens, row_bytes, kMaxScratchBytes);
  const std::size_t bias_bytes =
      has_bias(p) ? ceil_divide(static_cast<std::size_t>(columns) * sizeof(float), kAlignment) * kAlignment : 0;
  const Result<std::byte*> scratch = stream.scratch(bias_bytes + static_cast<std::size_t>(rows * row_bytes));
  if (!scratch) return fail(scratch.error());
  GemmParams product{.weight = p.weights.front().data,
                     .dtype = dtype,
                     .in = p.in,
                     .columns = columns,
                     .out_stride = p.out_stride,
                     .accumulate = p.accumulate};
  if (has_bias(p)) {
    auto* biases = reinterpret_cast<float*>(*scratch);
    product.bias = biases;
    for (std::size_t i = 0; i < p.weights.size(); ++i) {
      if (Status s = widen_bias(stream.get(), p.biases[i], p.bias_dtype, p.weights[i].rows, biases); !s) return s;
      biases += p.weights[i].rows;
    }
  }
  void* narrow_x = *scratch + bias_bytes;
  for (std::int64_t first = 0; first < p.num_tokens; first += rows) {
    product.rows = std::min(rows, p.num_tokens - first);
    product.x = p.narrow_x ? p.narrow_x.data : p.x + first * p.in;  // narrow rows need one pass only
    product.out = p.out + first * p.out_stride;
    if (row_bytes > 0) {
      const Status status = narrow_rows(stream.get(), p.x + first * p.in, product.rows * p.in, dtype, narrow_x);
      if (!status) return status;
      product.x = narrow_x;
    }
    Status status = gemm.multiply(stream.get(), product);
    // cuBLASLt cannot write some outputs, for example of a part that begins at an odd column.
    if (!status && status.error().code == ErrorCode::unsupported) {
      status = stream_weights(stream.get(), tokens_of(p, first, product.rows));
    }
    if (!status) return status;
  }
  return {};
}

}  // namespace

Status narrow_rows(cudaStream_t stream, const float* from, std::int64_t count, DType dtype, void* to) {
  const std::int64_t per_block = std::int64_t{kThreads} * kPerThread;
  const dim3 grid(static_cast<unsigned>((count + per_block - 1) / per_block));
  if (dtype == DType::f16) {
    return launch(Start::early, "narrow", narrow_kernel<__half>, grid, dim3(kThreads), 0, stream, from, count,
                  static_cast<__half*>(to));
  }
  return launch(Start::early, "narrow", narrow_kernel<__nv_bfloat16>, grid, dim3(kThreads), 0, stream, from, count,
                static_cast<__nv_bfloat16*>(to));
}

std::vector<LinearPiece> linear_pieces(const LinearParams& p) {
  std::vector<LinearPiece> pieces;
  std::int64_t column = 0;
  for (std::size_t i = 0; i < p.weights.size(); ++i) {
    const WeightMatrix& weight = p.weights[i];
    bool joins = false;
    if (i > 0) {
      const WeightMatrix& last = p.weights[i - 1];
      const auto* end = static_cast<const std::byte*>(last.data) +
                        last.rows * last.columns * static_cast<std::int64_t>(size_of(last.dtype));
      joins = weight.dtype == last.dtype && weight.data == end;
    }
    if (!joins) pieces.push_back({i, 0, 0, column});
    ++pieces.back().num_parts;
    pieces.back().rows += weight.rows;
    column += weight.rows;
  }
  return pieces;
}

std::int64_t rows_per_pass(std::int64_t rows, std::int64_t row_bytes, std::size_t max_bytes) {
  constexpr std::int64_t kTileRows = 128;
  if (rows * row_bytes <= static_cast<std::int64_t>(max_bytes)) return rows;
  const std::int64_t tiles = static_cast<std::int64_t>(max_bytes) / (kTileRows * row_bytes);
  return std::min(rows, std::max<std::int64_t>(1, tiles) * kTileRows);
}

Status cuda_linear(CudaStream& stream, const LinearParams& p) {
  if (p.weights.front().scales != nullptr) return float8_linear(stream, p);
  if (p.num_tokens <= kMaxSkinnyRows || !reads_in_vectors(p)) return stream_weights(stream.get(), p);
  const Result<Gemm*> gemm = stream.gemm();
  if (!gemm) return fail(gemm.error());
  for (const LinearPiece& piece : linear_pieces(p)) {
    const LinearParams part = part_of(p, piece.first_part, piece.num_parts, piece.first_column);
    if (Status status = multiply_piece(stream, **gemm, part, piece.rows); !status) return status;
  }
  return {};
}

}  // namespace pagoda::kernels::cuda
