#include "engine/layers/normalized_rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <type_traits>

namespace pagoda::layers {
namespace {

constexpr float kMinLength = 1e-12F;

template <class Element>
Element rounded(float x) {
  if constexpr (std::is_same_v<Element, BFloat16>) return to_bf16(x);
  if constexpr (std::is_same_v<Element, Float16>) return to_f16(x);
  if constexpr (std::is_same_v<Element, float>) return x;
}

// from, to: [rows, columns]
template <class Element>
void normalize(const kernels::WeightMatrix& matrix, std::byte* target) {
  const auto columns = static_cast<std::size_t>(matrix.columns);
  const auto* from = static_cast<const Element*>(matrix.data);
  auto* to = reinterpret_cast<Element*>(target);
  for (std::int64_t row = 0; row < matrix.rows; ++row, from += columns, to += columns) {
    double squares = 0.0;
    for (const Element x : std::span(from, columns)) squares += double{to_float(x)} * double{to_float(x)};
    const float length = std::max(kMinLength, to_float(rounded<Element>(static_cast<float>(std::sqrt(squares)))));
    std::transform(from, from + columns, to, [&](Element x) { return rounded<Element>(to_float(x) / length); });
  }
}

}  // namespace

void normalize_rows(const kernels::WeightMatrix& matrix, std::byte* rows) {
  PAGODA_ASSERT(is_weight_type(matrix.dtype), "weights are not of a type of the KV cache");
  switch (matrix.dtype) {
    case DType::f32:
      normalize<float>(matrix, rows);
      break;
    case DType::f16:
      normalize<Float16>(matrix, rows);
      break;
    case DType::bf16:
      normalize<BFloat16>(matrix, rows);
      break;
    case DType::fp8_e4m3:
    case DType::int8:
      break;
  }
}

}  // namespace pagoda::layers
