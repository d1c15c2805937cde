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

/// What is known of a type of tensor. Rows are whole blocks.
struct GgmlTypeInfo {
  const char* name = "";            ///< "Q4_K"
  std::int64_t block_elements = 1;  ///< weights of a block
  std::int64_t block_bytes = 0;
  std::optional<DType> plain;  ///< F32, F16, BF16
  /// Else the format that holds these weights in kernels: integers as they are (moved by a constant where the ranges
  /// differ), scales and minimums as the file has them.
  kernels::QuantizedFormat format = {};
};

/// Types that are written.
namespace ggml {
inline constexpr GgmlType kF32{0};
inline constexpr GgmlType kF16{1};
inline constexpr GgmlType kQ4_0{2};
inline constexpr GgmlType kQ4_1{3};
inline constexpr GgmlType kQ8_0{8};
inline constexpr GgmlType kBf16{30};
}  // namespace ggml

/// Of a supported type: F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS,
/// MXFP4. Null for others.
const GgmlTypeInfo* ggml_type_info(GgmlType type);
/// "Q8_K" or "type 77": for messages.
std::string ggml_type_name(GgmlType type);
/// "F32, F16, ...": for messages.
std::string supported_ggml_types();

/// What holds the scales of a matrix.
enum class ScaleRange : std::uint8_t {
  float16,  ///< exactly
  float32,  ///< MXFP4 with other powers of two; float32 holds its weights exactly
  none,     ///< it has weights beyond float32, or a scale that is not a number
};
/// `blocks`: of a quantised type, whole ones. Scales of zeros do not count.
ScaleRange range_of_scales(GgmlType type, std::span<const std::byte> blocks);

/// One row in the arithmetic of kernels::QuantizedMatrix, not yet in panels. `blocks`: columns / block_elements blocks
/// of a quantised type. Any bytes are blocks: a scale or minimum that is not finite stays so, and a power of two that
/// float16 does not hold (range_of_scales) becomes infinite or 0; finding both is the caller's.
void unpack_row(GgmlType type, const std::byte* blocks, std::int64_t columns, const weights::UnpackedRow& to);

/// The inverse of unpack_row for the types Q4_0, Q4_1 and Q8_0. `mins`: of Q4_1.
void pack_row(GgmlType type, const std::uint8_t* q, const Float16* scales, const Float16* mins, std::int64_t columns,
              std::byte* blocks);

/// One row as float32, each weight with the bits that ggml's reference gives it (but for those of NaN). Any supported
/// type.
void dequantize_row(GgmlType type, const std::byte* blocks, std::int64_t columns, float* out);

}  // namespace pagoda::io
