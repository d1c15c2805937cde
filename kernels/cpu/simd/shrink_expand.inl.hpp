// The products of low-rank changes (LoraShrinkArgs, LoraExpandArgs). Included once per instruction set; PAGODA_SIMD
// names the namespace.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/kernel_table.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

constexpr int kPanelVectors = static_cast<int>(kLoraPanel) / kLanes;
/// Rows of x that share a read of a panel of B: their sums fit registers.
constexpr int kExpandRows = 8 / kPanelVectors;

/// Computes sums of `rows` rows of x by `ranks` rows of A.
template <DType dtype, int rows, int ranks>
void shrink_tile(const LoraShrinkArgs& args, std::int64_t row, std::int64_t rank) {
  constexpr auto kSize = static_cast<std::int64_t>(size_of(dtype));
  const float* x = args.x + row * args.x_stride;
  const char* a = static_cast<const char*>(args.a) + rank * args.in * kSize;
  Vec sums[rows][ranks];
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 8
    for (int r = 0; r < ranks; ++r) sums[m][r] = zero();
  }
  const auto add = [&](const Vec(&weights)[ranks], const auto& load_x) {
#pragma GCC unroll 8
    for (int m = 0; m < rows; ++m) {
      const Vec values = load_x(x + m * args.x_stride);
#pragma GCC unroll 8
      for (int r = 0; r < ranks; ++r) sums[m][r] = fma(values, weights[r], sums[m][r]);
    }
  };
  std::int64_t k = 0;
  for (; k + kLanes <= args.in; k += kLanes) {
    Vec weights[ranks];
#pragma GCC unroll 8
    for (int r = 0; r < ranks; ++r) weights[r] = load_as<dtype>(a + (r * args.in + k) * kSize);
    add(weights, [k](const float* from) { return load(from + k); });
  }
  if (const std::int64_t rest = args.in - k; rest > 0) {
    Vec weights[ranks];
    for (int r = 0; r < ranks; ++r) {
      char copy[kLanes * kSize] = {};
      std::memcpy(copy, a + (r * args.in + k) * kSize, static_cast<std::size_t>(rest * kSize));
      weights[r] = load_as<dtype>(copy);
    }
    add(weights, [k, rest](const float* from) { return load_first(from + k, rest); });
  }
  for (int m = 0; m < rows; ++m) {
    float* to = args.shrunk + (row + m) * args.shrunk_stride + rank;
    for (int r = 0; r < ranks; ++r) to[r] = args.scale * sum(sums[m][r]);
  }
}

template <DType dtype>
void shrink_as(const LoraShrinkArgs& args) {
  std::int64_t row = 0;
  for (; row + 4 <= args.rows; row += 4) {
    std::int64_t rank = 0;
    for (; rank + 2 <= args.ranks; rank += 2) shrink_tile<dtype, 4, 2>(args, row, rank);
    for (; rank < args.ranks; ++rank) shrink_tile<dtype, 4, 1>(args, row, rank);
  }
  for (; row < args.rows; ++row) {
    std::int64_t rank = 0;
    for (; rank + 8 <= args.ranks; rank += 8) shrink_tile<dtype, 1, 8>(args, row, rank);
    for (; rank < args.ranks; ++rank) shrink_tile<dtype, 1, 1>(args, row, rank);
  }
}

void lora_shrink(const LoraShrinkArgs& args) {
  if (args.dtype == DType::f32) return shrink_as<DType::f32>(args);
  if (args.dtype == DType::f16) return shrink_as<DType::f16>(args);
  shrink_as<DType::bf16>(args);
}

/// Returns what is added to out: the product with its factor, the change of the base's product, and the bias. `at`
/// returns the values of a pointer at the columns of `product`.
template <class Values, class At>
inline Values change_of(const LoraExpandArgs& args, std::int64_t row, Values product, Values one, const At& at) {
  Values change = product;
  if (args.factors != nullptr) {
    const float* base = args.base == nullptr ? args.out + row * args.out_stride : args.base + row * args.base_stride;
    const Values factor = at(args.factors);
    change = factor * product + (factor - one) * at(base);
  }
  return args.bias == nullptr ? change : change + at(args.bias);
}

/// Adds the products of `rows` rows with one panel of B, whose first column is `column`.
template <DType dtype, int rows>
void expand_tile(const LoraExpandArgs& args, std::int64_t row, std::int64_t column) {
  constexpr auto kSize = static_cast<std::int64_t>(size_of(dtype));
  const char* b = static_cast<const char*>(args.b) + column * args.rank * kSize;
  const float* shrunk = args.shrunk + row * args.rank;
  Vec sums[rows][kPanelVectors];
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < kPanelVectors; ++v) sums[m][v] = zero();
  }
  for (std::int64_t r = 0; r < args.rank; ++r, b += kLoraPanel * kSize) {
    Vec factors[rows];
#pragma GCC unroll 8
    for (int m = 0; m < rows; ++m) factors[m] = set1(shrunk[m * args.rank + r]);
#pragma GCC unroll 8
    for (int v = 0; v < kPanelVectors; ++v) {
      const Vec weights = load_as<dtype>(b + v * kLanes * kSize);
#pragma GCC unroll 8
      for (int m = 0; m < rows; ++m) sums[m][v] = fma(factors[m], weights, sums[m][v]);
    }
  }
  const std::int64_t columns = std::min(kLoraPanel, args.columns - column);
  for (int m = 0; m < rows; ++m) {
    float* out = args.out + (row + m) * args.out_stride + column;
    for (int v = 0; v < kPanelVectors; ++v) {
      const std::int64_t first = std::int64_t{v} * kLanes;
      if (first + kLanes <= columns) {
        const auto at = [&](const float* p) { return load(p + column + first); };
        store(out + first, load(out + first) + change_of(args, row + m, sums[m][v], set1(1.0F), at));
        continue;
      }
      float products[kLanes];
      store(products, sums[m][v]);
      for (std::int64_t i = first; i < columns; ++i) {
        const auto at = [&](const float* p) { return p[column + i]; };
        out[i] += change_of(args, row + m, products[i - first], 1.0F, at);
      }
    }
  }
}

template <DType dtype>
void expand_as(const LoraExpandArgs& args) {
  for (std::int64_t column = 0; column < args.columns; column += kLoraPanel) {
    std::int64_t row = 0;
    for (; row + kExpandRows <= args.rows; row += kExpandRows) expand_tile<dtype, kExpandRows>(args, row, column);
    for (; row < args.rows; ++row) expand_tile<dtype, 1>(args, row, column);
  }
}

void lora_expand(const LoraExpandArgs& args) {
  if (args.dtype == DType::f32) return expand_as<DType::f32>(args);
  if (args.dtype == DType::f16) return expand_as<DType::f16>(args);
  expand_as<DType::bf16>(args);
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
