#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/weights/weight_source.hpp"
#include "io/model_files/gguf/gguf_file.hpp"
#include "kernels/dtype.hpp"
#include "kernels/quantized.hpp"

namespace pagoda::io {

/// Properties of a type of tensor. Each row consists of whole blocks.
struct GgmlTypeInfo {
  const char* name = "";            ///< "Q4_K"
  std::int64_t block_elements = 1;  ///< number of weights in a block
  std::int64_t block_bytes = 0;
  std::optional<DType> plain;  ///< element type of F32, F16 and BF16; none for quantised types
  /// For quantised types: the format in which kernels hold these weights. Integers are taken as they are (plus a
  /// constant where the ranges differ), scales and minimums as in the file.
  kernels::QuantizedFormat format = {};
};

/// Types that the engine writes.
namespace ggml {
inline constexpr GgmlType kF32{0};
inline constexpr GgmlType kF16{1};
inline constexpr GgmlType kQ4_0{2};
inline constexpr GgmlType kQ4_1{3};
inline constexpr GgmlType kQ8_0{8};
inline constexpr GgmlType kBf16{30};
}  // namespace ggml

/// Returns the properties of a supported type: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K,
/// Q6_K, IQ4_NL, IQ4_XS, MXFP4. Null for others.
const GgmlTypeInfo* ggml_type_info(GgmlType type);
/// Returns "Q8_K" or "type 77", for messages.
std::string ggml_type_name(GgmlType type);
/// Returns "F32, F16, ...", for messages.
std::string supported_ggml_types();

/// Type of number that holds the scales of a matrix.
enum class ScaleRange : std::uint8_t {
  float16,  ///< float16 holds the scales exactly
  float32,  ///< MXFP4 with powers of two that float16 does not hold; float32 holds the weights exactly
  none,     ///< a weight is beyond float32, or a scale is not a number
};
/// Returns the range of the scales of `blocks`, whole blocks of a quantised type. Scales of blocks of zeros do not
/// count.
ScaleRange range_of_scales(GgmlType type, std::span<const std::byte> blocks);

/// Unpacks one row for the arithmetic of kernels::QuantizedMatrix, not yet in panels. `blocks`: columns /
/// block_elements blocks of a quantised type. Any bytes are valid: a scale or minimum that is not finite stays so, and
/// a power of two that float16 does not hold (range_of_scales) becomes infinite or 0; the caller must check for both.
void unpack_row(GgmlType type, const std::byte* blocks, std::int64_t columns, const weights::UnpackedRow& to);

/// The inverse of unpack_row for the types Q4_0, Q4_1 and Q8_0. `mins` is read for Q4_1 only.
void pack_row(GgmlType type, const std::uint8_t* q, const Float16* scales, const Float16* mins, std::int64_t columns,
              std::byte* blocks);

/// Converts one row of any supported type to float32. Each weight has the bits that ggml's reference gives it, except
/// NaN.
void dequantize_row(GgmlType type, const std::byte* blocks, std::int64_t columns, float* out);

}  // namespace pagoda::io
