#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/quads.cuh"
#include "kernels/cuda/row_ops.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}

/// Computes the activation so that large negative x lose no digits to 1 - (nearly 1).
template <Activation activation>
__device__ __forceinline__ float activate(float x) {
  if constexpr (activation == Activation::silu) {
    return x * sigmoid(x);
  } else if constexpr (activation == Activation::gelu) {
    constexpr float kSqrtHalf = 0.70710678118654752F;
    return 0.5F * x * erfcf(-x * kSqrtHalf);
  } else if constexpr (activation == Activation::gelu_tanh) {
    // 0.5 (1 + tanh(u)) equals sigmoid(2 u).
    constexpr float kTwoSqrtTwoOverPi = 1.5957691216057308F;
    return x * sigmoid(kTwoSqrtTwoOverPi * (x + 0.044715F * x * x * x));
  } else {
    return x > 0.0F ? x : 0.0F;
  }
}

template <bool packed, Activation activation, bool gated>
__global__ void activation_kernel(const float* x, std::int64_t width, OutRows out) {
  wait_for_stream();
  const std::int64_t token = blockIdx.x;
  const float* from = x + token * (gated ? 2 * width : width);
  const std::int64_t quads = ceil_divide<std::int64_t>(width, kQuad);
  for (std::int64_t q = blockIdx.y * kThreads + threadIdx.x; q < quads; q += gridDim.y * kThreads) {
    float4 value = map_quad(load_quad<packed>(from, q, width), [](float v) { return activate<activation>(v); });
    if constexpr (gated) {
      const float4 up = load_quad<packed>(from + width, q, width);
      value = make_float4(value.x * up.x, value.y * up.y, value.z * up.z, value.w * up.w);
    }
    store_quad<packed>(out, token * width, q, width, value);
  }
}

template <bool packed>
__global__ void scale_kernel(float* x, std::int64_t width, float factor, float softcap) {
  wait_for_stream();
  float* row = x + blockIdx.x * width;
  const std::int64_t quads = ceil_divide<std::int64_t>(width, kQuad);
  for (std::int64_t q = blockIdx.y * kThreads + threadIdx.x; q < quads; q += gridDim.y * kThreads) {
    const float4 value = map_quad(load_quad<packed>(row, q, width), [&](float v) {
      return softcap == 0.0F ? v * factor : softcap * tanhf(v * factor / softcap);
    });
    store_quad<packed>(row, q, width, value);
  }
}

/// Calls f(std::integral_constant<Activation, activation>).
template <class F>
Status with_activation(Activation activation, const F& f) {
  switch (activation) {
    case Activation::silu:
      return f(std::integral_constant<Activation, Activation::silu>{});
    case Activation::gelu:
      return f(std::integral_constant<Activation, Activation::gelu>{});
    case Activation::gelu_tanh:
      return f(std::integral_constant<Activation, Activation::gelu_tanh>{});
    case Activation::relu:
      break;
  }
  return f(std::integral_constant<Activation, Activation::relu>{});
}

}  // namespace

Status cuda_activation(cudaStream_t stream, const ActivationParams& p) {
  const OutRows out = out_rows(p.out, p.narrow_out);
  return with_activation(p.activation, [&](auto activation) {
    return with_packed(may_pack(p.width, p.x, out.data), [&](auto packed) {
      const auto kernel = p.gated ? activation_kernel<packed.value, activation.value, true>
                                  : activation_kernel<packed.value, activation.value, false>;
      return launch(Start::early, "activation", kernel, row_grid(p.num_tokens, p.width, kThreads), dim3(kThreads), 0,
                    stream, p.x, p.width, out);
    });
  });
}

Status cuda_scale(cudaStream_t stream, const ScaleParams& p) {
  return with_packed(may_pack(p.width, p.x), [&](auto packed) {
    return launch(Start::early, "scale", scale_kernel<packed.value>, row_grid(p.num_rows, p.width, kThreads),
                  dim3(kThreads), 0, stream, p.x, p.width, p.factor, p.softcap);
  });
}

}  // namespace pagoda::kernels::cuda
