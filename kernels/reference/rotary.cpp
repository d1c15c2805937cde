#include "kernels/reference/reference_ops.hpp"

namespace pagoda::kernels::reference {
namespace {

// head [head_dim], cosines and sines [rotary_dim / 2]. Pair i is (i, i + rotary_dim / 2), or (2i, 2i + 1) if
// interleaved.
void rotate_head(float* head, const float* cosines, const float* sines, std::int64_t half, bool interleaved) {
  for (std::int64_t i = 0; i < half; ++i) {
    float& a = head[interleaved ? 2 * i : i];
    float& b = head[interleaved ? 2 * i + 1 : i + half];
    const double x = a;
    const double y = b;
    a = static_cast<float>(x * cosines[i] - y * sines[i]);
    b = static_cast<float>(y * cosines[i] + x * sines[i]);
  }
}

}  // namespace

// positions [num_tokens], cos_sin [max_position, rotary_dim]; query, key [num_tokens, stride] in place
void rotary(const RotaryParams& p) {
  const std::int64_t half = p.rotary_dim / 2;
  for (std::int64_t t = 0; t < p.num_tokens; ++t) {
    const float* cosines = p.cos_sin + p.positions[t] * p.rotary_dim;
    const float* sines = cosines + half;
    for (std::int64_t h = 0; h < p.num_heads; ++h) {
      rotate_head(p.query + t * p.query_stride + h * p.head_dim, cosines, sines, half, p.interleaved);
    }
    for (std::int64_t h = 0; h < p.num_kv_heads; ++h) {
      rotate_head(p.key + t * p.key_stride + h * p.head_dim, cosines, sines, half, p.interleaved);
    }
  }
}

}  // namespace pagoda::kernels::reference
