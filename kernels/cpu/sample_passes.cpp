#include "kernels/cpu/sample_passes.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#if defined(__x86_64__) && defined(__GNUC__)
#define PAGODA_SAMPLE_X86 1
#endif

#if defined(__GNUC__)
#define PAGODA_ALWAYS_INLINE [[gnu::always_inline]] inline
#else
#define PAGODA_ALWAYS_INLINE inline
#endif

// Each pass is written once, as loops of constant length that the compiler vectorises; the wrappers below compile the
// passes for each instruction set. All fused multiply-adds are explicit calls of std::fma, so that results do not
// depend on how a compiler contracts expressions.
namespace pagoda::kernels {
namespace {

constexpr float kMinExponent = -87.0F;  // exp(x) of a smaller x is subnormal; the passes return 0

/// Returns exp(x) for kMinExponent <= x <= 0, and 0 for smaller x: x = n ln 2 + r with |r| <= ln 2 / 2, the Taylor
/// polynomial of degree 7 in r (relative error below 1e-8), scaled by 2^n. ln 2 is split in two floats (Cody and Waite,
/// 1980).
PAGODA_ALWAYS_INLINE float exp_nonpositive(float x) {
  constexpr float kLog2E = 1.44269504088896341F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr float kRoundToInteger = 12582912.0F;  // 1.5 * 2^23: adding it leaves the integer in the low mantissa bits
  const float clamped = x < kMinExponent ? kMinExponent : x;
  const float shifted = std::fma(clamped, kLog2E, kRoundToInteger);
  const float n = shifted - kRoundToInteger;
  const float r = std::fma(n, -kLn2Low, std::fma(n, -kLn2High, clamped));
  float p = 1.0F / 5040.0F;
  p = std::fma(p, r, 1.0F / 720.0F);
  p = std::fma(p, r, 1.0F / 120.0F);
  p = std::fma(p, r, 1.0F / 24.0F);
  p = std::fma(p, r, 1.0F / 6.0F);
  p = std::fma(p, r, 0.5F);
  p = std::fma(p, r, 1.0F);
  p = std::fma(p, r, 1.0F);
  const auto scale_bits = (std::bit_cast<std::uint32_t>(shifted) << 23) + (127U << 23);
  const float scaled = p * std::bit_cast<float>(scale_bits);
  const std::uint32_t mask = 0U - static_cast<std::uint32_t>(x >= kMinExponent);  // a branch would not vectorise
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) & mask);
}

PAGODA_ALWAYS_INLINE float weight_of(float logit, WeightScale scale) {
  return exp_nonpositive((logit - scale.max) * scale.inverse_temperature);
}

/// Returns a signed number with the order of the floats: NaN with a clear sign bit is above +inf, NaN with a set sign
/// bit is below -inf. Integer reductions may be reordered, so compilers vectorise them.
PAGODA_ALWAYS_INLINE std::int32_t signed_key(std::int32_t bits) {
  return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}

PAGODA_ALWAYS_INLINE bool block_maxima_body(const float* logits, std::int64_t vocab, float* block_maxima) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const std::int32_t plus_inf = signed_key(std::bit_cast<std::int32_t>(kInf));
  const std::int32_t minus_inf = signed_key(std::bit_cast<std::int32_t>(-kInf));
  bool good = true;
  for (std::int64_t start = 0; start < vocab; start += kSampleBlock) {
    const std::int64_t end = std::min(start + kSampleBlock, vocab);
    std::int32_t highest = std::numeric_limits<std::int32_t>::min();
    std::int32_t lowest = std::numeric_limits<std::int32_t>::max();
    for (std::int64_t i = start; i < end; ++i) {
      const std::int32_t key = signed_key(std::bit_cast<std::int32_t>(logits[i]));
      highest = std::max(highest, key);
      lowest = std::min(lowest, key);
    }
    good = good && highest < plus_inf && lowest >= minus_inf;
    block_maxima[start / kSampleBlock] = std::bit_cast<float>(signed_key(highest));  // signed_key is its own inverse
  }
  return good;
}

PAGODA_ALWAYS_INLINE void weights_body(const float* logits, std::int64_t count, WeightScale scale, float* weights) {
  for (std::int64_t i = 0; i < count; ++i) weights[i] = weight_of(logits[i], scale);
}

PAGODA_ALWAYS_INLINE void block_weight_sums_body(const float* logits, std::int64_t vocab, WeightScale scale,
                                                 double* block_sums) {
  std::array<float, kSampleBlock> partial;
  for (std::int64_t start = 0; start < vocab; start += kSampleBlock) {
    const std::int64_t count = std::min(kSampleBlock, vocab - start);
    weights_body(logits + start, count, scale, partial.data());
    for (std::int64_t i = count; i < kSampleBlock; ++i) partial[i] = 0.0F;
    for (std::int64_t half = kSampleBlock / 2; half >= kSampleLanes; half /= 2) {
      for (std::int64_t i = 0; i < half; ++i) partial[i] += partial[i + half];
    }
    double sum = 0;
    for (std::int64_t lane = 0; lane < kSampleLanes; ++lane) sum += static_cast<double>(partial[lane]);
    block_sums[start / kSampleBlock] = sum;
  }
}

PAGODA_ALWAYS_INLINE std::int64_t count_greater_body(const float* logits, std::int64_t count, float bound) {
  std::int64_t total = 0;
  for (std::int64_t start = 0; start < count; start += kSampleBlock) {
    const std::int64_t end = std::min(start + kSampleBlock, count);
    std::int32_t greater = 0;
    for (std::int64_t i = start; i < end; ++i) greater += static_cast<std::int32_t>(logits[i] > bound);
    total += greater;
  }
  return total;
}

// Defines one set of wrappers. TARGET is the attribute that selects the instruction set.
#define PAGODA_SAMPLE_PASSES(SUFFIX, NAME, TARGET)                                                                   \
  TARGET bool block_maxima_##SUFFIX(const float* logits, std::int64_t vocab, float* block_maxima) {                  \
    return block_maxima_body(logits, vocab, block_maxima);                                                           \
  }                                                                                                                  \
  TARGET void block_weight_sums_##SUFFIX(const float* logits, std::int64_t vocab, WeightScale scale, double* sums) { \
    block_weight_sums_body(logits, vocab, scale, sums);                                                              \
  }                                                                                                                  \
  TARGET void weights_##SUFFIX(const float* logits, std::int64_t count, WeightScale scale, float* weights) {         \
    weights_body(logits, count, scale, weights);                                                                     \
  }                                                                                                                  \
  TARGET std::int64_t count_greater_##SUFFIX(const float* logits, std::int64_t count, float bound) {                 \
    return count_greater_body(logits, count, bound);                                                                 \
  }                                                                                                                  \
  constexpr SamplePasses kPasses_##SUFFIX{NAME, block_maxima_##SUFFIX, block_weight_sums_##SUFFIX, weights_##SUFFIX, \
                                          count_greater_##SUFFIX};

PAGODA_SAMPLE_PASSES(portable, "portable", )
#ifdef PAGODA_SAMPLE_X86
PAGODA_SAMPLE_PASSES(avx2, "avx2", [[gnu::target("avx2,fma")]])
PAGODA_SAMPLE_PASSES(avx512, "avx512",
                     [[gnu::target("avx512f,avx512dq,avx512bw,avx512vl,fma,prefer-vector-width=512")]])
#endif

}  // namespace

std::vector<const SamplePasses*> available_sample_passes() {
  std::vector<const SamplePasses*> passes{&kPasses_portable};
#ifdef PAGODA_SAMPLE_X86
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) passes.push_back(&kPasses_avx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl")) {
    passes.push_back(&kPasses_avx512);
  }
#endif
  return passes;
}

const SamplePasses& sample_passes() {
  static const SamplePasses& best = *available_sample_passes().back();
  return best;
}

}  // namespace pagoda::kernels
