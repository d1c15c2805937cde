// Elementary functions. Polynomials are minimax fits of the relative error over the stated range. Included once per
// instruction set; PAGODA_SIMD names the namespace.

#include <limits>

#include "kernels/ops.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

constexpr float kInfinity = __builtin_inff();
constexpr float kLog2E = 1.44269504F;

/// Returns c[0] + c[1] x + c[2] x^2 + ... (Horner).
template <int n>
inline Vec polynomial(Vec x, const float (&c)[n]) {
  Vec y = set1(c[n - 1]);
#pragma GCC unroll 16
  for (int i = n - 2; i >= 0; --i) y = fma(y, x, set1(c[i]));
  return y;
}

/// Returns e^x to about 1 ulp: exactly 0 below -87.3 (where floats become subnormal), infinity above 88.7; NaN stays
/// NaN.
inline Vec exp(Vec x) {
  constexpr float kMinArgument = -87.3F;
  constexpr float kMaxArgument = 88.72F;
  constexpr float kLn2High = 0.693359375F;  // few bits, so that n * kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kExp[] = {1.0F, 1.0F, 0.49999991F, 0.1666642F, 0.041668225F, 0.0083748223F, 0.0013836834F};
  const Vec clamped = min(set1(kMaxArgument), max(set1(kMinArgument), x));
  const Vec n = round(clamped * set1(kLog2E));
  const Vec r = fma(n, set1(-kLn2Low), fma(n, set1(-kLn2High), clamped));
  const Vec y = times_power_of_two(polynomial(r, kExp), n);
  return select_less(x, set1(kMinArgument), zero(), select_less(set1(kMaxArgument), x, set1(kInfinity), y));
}

/// Returns tanh(x) to about 2 ulp.
inline Vec tanh(Vec x) {
  constexpr float kTanh[] = {1.0F, -0.3333323F, 0.13330415F, -0.05366528F, 0.020415189F, -0.0054682638F};
  const Vec square = x * x;
  const Vec small = x * polynomial(square, kTanh);
  const Vec large = set1(1.0F) - set1(2.0F) / (exp(x + x) + set1(1.0F));
  return select_less(square, set1(0.65F * 0.65F), small, large);
}

/// Returns x * Phi(x) with Phi the normal distribution function: x / 2 * (1 + erf(x / sqrt 2)).
inline Vec gelu(Vec x) {
  // erf(z) = z P(z^2) for |z| < 1; erfc(z) = e^(-z^2) t Q(t), t = 1 / (1 + z / 2), for z >= 1.
  constexpr float kErf[] = {1.1283791F,    -0.37612626F,    0.11283585F,  -0.026853811F,
                            0.0051883277F, -0.00080101925F, 7.8538578e-5F};
  constexpr float kErfc[] = {0.28209803F,  0.28204703F,  0.24690396F,  0.17904067F,
                             0.060340967F, 0.083449297F, -0.22706559F, 0.093764842F};
  const Vec z = x * set1(0.70710678F);
  const Vec square = z * z;
  const Vec half_x = x * set1(0.5F);
  const Vec near = fma(half_x, z * polynomial(square, kErf), half_x);
  const Vec magnitude = select_less(z, zero(), zero() - z, z);
  const Vec t = set1(1.0F) / fma(magnitude, set1(0.5F), set1(1.0F));
  const Vec tail = exp(zero() - square) * t * polynomial(t, kErfc);
  const Vec far = half_x * select_less(z, zero(), tail, set1(2.0F) - tail);
  return select_less(square, set1(1.0F), near, far);
}

inline Vec silu(Vec x) {
  return x / (set1(1.0F) + exp(zero() - x));
}

/// Returns x / 2 * (1 + tanh(u)) with u = sqrt(2 / pi) (x + 0.044715 x^3), written as x / (1 + e^(-2u)).
inline Vec gelu_tanh(Vec x) {
  const Vec inner = x * fma(x * x, set1(0.044715F), set1(1.0F));
  return x / (set1(1.0F) + exp(inner * set1(-1.59576912F)));
}

inline Vec relu(Vec x) {
  return max(zero(), x);
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
