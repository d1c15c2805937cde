#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/quads.cuh"
#include "kernels/cuda/row_ops.hpp"

namespace pagoda::kernels::cuda {
namespace {

/// Number of quads of a row that each thread keeps in registers, so that it reads them from memory only once. In rows
/// of more than 16 * threads elements, the remaining elements are read again.
constexpr int kKeptQuads = 4;  // a kernel keeps none if a short program matters more than a second read
constexpr int kNarrowThreads = 256;
constexpr int kWideThreads = 1024;

struct NormArgs {
  const float* x;
  float* residual;  ///< or null
  const void* weight;
  const void* bias;
  DType weight_dtype;
  DType bias_dtype;
  float weight_offset;
  float eps;
  OutRows out;
  std::int64_t hidden;
};

/// The row of one thread block: x, or the residual after x was added to it.
template <bool packed, int threads, int kept = kKeptQuads>
class Row {
 public:
  __device__ Row(const NormArgs& args) : hidden_(args.hidden), quads_(ceil_divide<std::int64_t>(hidden_, kQuad)) {
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * hidden_;
    const float* x = args.x + first;
    float* residual = args.residual == nullptr ? nullptr : args.residual + first;
    row_ = residual == nullptr ? x : residual;
    for_quads([&](int i, std::int64_t q) {
      float4 value = load_quad<packed>(x, q, hidden_);
      if (residual != nullptr) {
        value = load_quad<packed>(residual, q, hidden_) + value;
        store_quad<packed>(residual, q, hidden_, value);
      }
      if (i < kept) kept_[i] = value;
    });
  }

  /// Calls f(quad index, its values) for each quad of this thread. Elements beyond the row's end are 0 (load_quad's
  /// default).
  template <class F>
  __device__ void for_each(const F& f) const {
    for_quads([&](int i, std::int64_t q) { f(q, i < kept ? kept_[i] : load_quad<packed>(row_, q, hidden_)); });
  }

  /// Returns the number of elements of quad q that belong to the row.
  __device__ int width(std::int64_t q) const {
    return packed ? kQuad : static_cast<int>(min(static_cast<std::int64_t>(kQuad), hidden_ - q * kQuad));
  }

 private:
  template <class F>
  __device__ void for_quads(const F& f) const {
    std::int64_t q = threadIdx.x;
#pragma unroll
    for (int i = 0; i < kept; ++i, q += threads) {
      if (q < quads_) f(i, q);
    }
#pragma unroll 1
    for (; q < quads_; q += threads) f(kept, q);
  }

  std::int64_t hidden_;
  std::int64_t quads_;
  const float* row_;
  float4 kept_[kept > 0 ? kept : 1];
};

template <bool packed, class T, int threads>
__global__ void __launch_bounds__(threads) rms_norm_kernel(NormArgs args) {
  wait_for_stream();
  const Row<packed, threads> row(args);
  float squares = 0.0F;
  row.for_each([&](std::int64_t, float4 v) { squares += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w); });
  const float mean = block_sum<threads>(squares) / static_cast<float>(args.hidden);
  const float factor = 1.0F / sqrtf(mean + args.eps);
  const T* weight = static_cast<const T*>(args.weight);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * args.hidden;
  row.for_each([&](std::int64_t q, float4 v) {
    const float4 w =
        map_quad(load_quad<packed>(weight, q, args.hidden), [&](float e) { return args.weight_offset + e; });
    store_quad<packed>(args.out, first, q, args.hidden,
                       make_float4(v.x * factor * w.x, v.y * factor * w.y, v.z * factor * w.z, v.w * factor * w.w));
  });
}

/// Stands for weights and biases whose type is known only when the kernel runs, for models whose weight and bias differ
/// in type. A kernel for each pair of types would take longer to compile than all other kernels of this file.
struct AnyElement {};

template <bool packed, class T>
__device__ __forceinline__ float4 load_parameters(const void* row, DType dtype, std::int64_t quad, std::int64_t count) {
  if constexpr (std::is_same_v<T, AnyElement>) {
    const auto load = [&](std::int64_t i) { return i < count ? load_element(row, dtype, i) : 0.0F; };
    const std::int64_t first = quad * kQuad;
    return make_float4(load(first), load(first + 1), load(first + 2), load(first + 3));
  } else {
    return load_quad<packed>(static_cast<const T*>(row), quad, count);
  }
}

template <bool packed, class T, int threads>
__global__ void __launch_bounds__(threads) layer_norm_kernel(NormArgs args) {
  wait_for_stream();
  const Row<packed, threads, std::is_same_v<T, AnyElement> ? 0 : kKeptQuads> row(args);
  const auto count = static_cast<float>(args.hidden);
  float sum = 0.0F;
  row.for_each([&](std::int64_t, float4 v) { sum += (v.x + v.y) + (v.z + v.w); });
  const float mean = block_sum<threads>(sum) / count;
  float squares = 0.0F;
  row.for_each([&](std::int64_t q, float4 v) {
    const float4 d = map_quad(v, [&](float e) { return (e - mean) * (e - mean); });
    const int width = row.width(q);
    squares += (d.x + (width > 1 ? d.y : 0.0F)) + ((width > 2 ? d.z : 0.0F) + (width > 3 ? d.w : 0.0F));
  });
  const float factor = 1.0F / sqrtf(block_sum<threads>(squares) / count + args.eps);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * args.hidden;
  row.for_each([&](std::int64_t q, float4 v) {
    float4 value = map_quad(v, [&](float e) { return (e - mean) * factor; });
    if (args.weight != nullptr) {
      const float4 w = load_parameters<packed, T>(args.weight, args.weight_dtype, q, args.hidden);
      value = make_float4(value.x * w.x, value.y * w.y, value.z * w.z, value.w * w.w);
    }
    if (args.bias != nullptr) {
      value = value + load_parameters<packed, T>(args.bias, args.bias_dtype, q, args.hidden);
    }
    store_quad<packed>(args.out, first, q, args.hidden, value);
  });
}

/// Calls f(std::integral_constant<int, threads>) with enough threads to keep a usual row in registers.
template <class F>
Status with_threads(std::int64_t hidden, const F& f) {
  if (hidden <= kNarrowThreads * kKeptQuads * kQuad) return f(std::integral_constant<int, kNarrowThreads>{});
  return f(std::integral_constant<int, kWideThreads>{});
}

}  // namespace

Status cuda_rms_norm(cudaStream_t stream, const RmsNormParams& p) {
  const NormArgs args{p.x,
                      p.residual,
                      p.weight,
                      nullptr,
                      p.weight_dtype,
                      p.weight_dtype,
                      p.weight_offset,
                      p.eps,
                      out_rows(p.out, p.narrow_out),
                      p.hidden};
  return with_element(p.weight_dtype, [&](auto element) {
    return with_packed(may_pack(p.hidden, p.x, p.residual, p.weight, args.out.data), [&](auto packed) {
      return with_threads(p.hidden, [&](auto threads) {
        return launch(Start::early, "rms_norm", rms_norm_kernel<packed.value, decltype(element), threads.value>,
                      dim3(static_cast<unsigned>(p.num_tokens)), dim3(threads.value), 0, stream, args);
      });
    });
  });
}

Status cuda_layer_norm(cudaStream_t stream, const LayerNormParams& p) {
  const NormArgs args{
      p.x,     p.residual, p.weight, p.bias, p.weight_dtype, p.bias_dtype, 0.0F, p.eps, out_rows(p.out, p.narrow_out),
      p.hidden};
  const auto with = [&](auto packed, auto element) {
    return with_threads(p.hidden, [&](auto threads) {
      return launch(Start::early, "layer_norm", layer_norm_kernel<packed.value, decltype(element), threads.value>,
                    dim3(static_cast<unsigned>(p.num_tokens)), dim3(threads.value), 0, stream, args);
    });
  };
  if (p.weight != nullptr && p.bias != nullptr && p.weight_dtype != p.bias_dtype) {
    return with(std::false_type{}, AnyElement{});
  }
  return with_element(p.weight != nullptr ? p.weight_dtype : p.bias_dtype, [&](auto element) {
    return with_packed(may_pack(p.hidden, p.x, p.residual, p.weight, p.bias, args.out.data),
                       [&](auto packed) { return with(packed, element); });
  });
}

}  // namespace pagoda::kernels::cuda
