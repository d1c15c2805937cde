#include "io/model_files/gguf/gguf_blocks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "kernels/result.hpp"

namespace pagoda::io {
namespace {

constexpr int kBlock = 32;        ///< number of elements in a block of the older types
constexpr int kSuperBlock = 256;  ///< number of elements in a block of the K types and IQ4_XS
constexpr int kMaxGroups = 16;    ///< number of groups in a block

/// Position of unsigned integers of a few bits in the bytes of a block. The integers come in runs: the lowest bits of
/// the run's bytes, one byte after the other, are the first integers, and the next bits are the next ones.
struct Fields {
  int offset = 0;  ///< offset of the first run in the block, in bytes
  int bits = 0;    ///< bits of an integer: 1, 2, 4 or 8; 0: there are no integers
  int run = 1;     ///< length of a run in bytes
};

/// Sets to[i] |= integer i << shift.
void add_fields(const std::uint8_t* block, const Fields& fields, int count, int shift, std::uint8_t* __restrict to) {
  if (fields.bits == 0) return;
  const int mask = (1 << fields.bits) - 1;
  const std::uint8_t* from = block + fields.offset;
  const auto add = [=](std::uint8_t& integer, int byte, int low) {
    integer |= static_cast<std::uint8_t>((byte >> low & mask) << shift);
  };
  if (fields.run == 1) {  // does what the code below does, without a loop for each byte
    for (int i = 0; i < count; ++i) add(to[i], from[i * fields.bits / 8], i * fields.bits % 8);
    return;
  }
  for (const std::uint8_t* end = to + count; to != end; from += fields.run) {
    for (int low = 0; low < 8; low += fields.bits, to += fields.run) {
      for (int i = 0; i < fields.run; ++i) add(to[i], from[i], low);
    }
  }
}

Float16 half_at(const std::uint8_t* block, int offset) {
  return {static_cast<std::uint16_t>(block[offset] | block[offset + 1] << 8)};
}

float float_at(const std::uint8_t* block, int offset) {
  return to_float(half_at(block, offset));
}

/// Scales and minimums of a block, as QuantizedMatrix has them.
struct Grids {
  float scale = 0;
  float min = 0;
  std::array<std::int8_t, kMaxGroups> scale_factors;  ///< a factor per group, for formats with two-level scales
  std::array<std::int8_t, kMaxGroups> min_factors;    ///< a factor of the minimum per group, for these formats
};

// Functions that read Grids, one for each layout of a block's scales.

void read_scale(const std::uint8_t* block, Grids& grids) {
  grids.scale = float_at(block, 0);
}

void read_scale_and_min(const std::uint8_t* block, Grids& grids) {
  grids.scale = float_at(block, 0);
  grids.min = float_at(block, 2);
}

/// Reads bytes whose low halves are factors of the block's scale and whose high halves are factors of its minimum,
/// which is subtracted.
void read_q2_k(const std::uint8_t* block, Grids& grids) {
  grids.scale = float_at(block, 80);
  grids.min = -float_at(block, 82);
  for (std::size_t i = 0; i < 16; ++i) {
    grids.scale_factors[i] = static_cast<std::int8_t>(block[i] & 15);
    grids.min_factors[i] = static_cast<std::int8_t>(block[i] >> 4);
  }
}

/// Reads factors of six bits, stored plus 32: four bits in the fields `low` and two in `high`.
void read_signed_six_bits(const std::uint8_t* block, float d, const Fields& low, const Fields& high, int count,
                          Grids& grids) {
  grids.scale = d;
  std::array<std::uint8_t, kMaxGroups> factors{};
  add_fields(block, low, count, 0, factors.data());
  add_fields(block, high, count, 4, factors.data());
  for (std::size_t i = 0; i < factors.size(); ++i) grids.scale_factors[i] = static_cast<std::int8_t>(factors[i] - 32);
}

void read_q3_k(const std::uint8_t* block, Grids& grids) {
  read_signed_six_bits(block, float_at(block, 108), {96, 4, 8}, {104, 2, 4}, 16, grids);
}

void read_iq4_xs(const std::uint8_t* block, Grids& grids) {
  read_signed_six_bits(block, float_at(block, 0), {4, 4, 1}, {2, 2, 1}, 8, grids);
}

/// Reads Q4_K and Q5_K: for each of 8 groups a factor of the scale and a factor of the minimum, which is subtracted, of
/// six bits each. Those of groups 0 to 3 are the low six bits of a byte. Those of groups 4 to 7 are a half of a byte,
/// with the two high bits of the bytes of groups 0 to 3 above it.
void read_q4_k(const std::uint8_t* block, Grids& grids) {
  grids.scale = float_at(block, 0);
  grids.min = -float_at(block, 2);
  const std::uint8_t* packed = block + 4;
  for (std::size_t i = 0; i < 4; ++i) {
    const int of_scales = packed[i];
    const int of_mins = packed[i + 4];
    const int halves = packed[i + 8];
    grids.scale_factors[i] = static_cast<std::int8_t>(of_scales & 63);
    grids.min_factors[i] = static_cast<std::int8_t>(of_mins & 63);
    grids.scale_factors[i + 4] = static_cast<std::int8_t>((halves & 15) | of_scales >> 6 << 4);
    grids.min_factors[i + 4] = static_cast<std::int8_t>(halves >> 4 | of_mins >> 6 << 4);
  }
}

/// Reads factors that are signed bytes.
void read_q6_k(const std::uint8_t* block, Grids& grids) {
  grids.scale = float_at(block, 208);
  for (std::size_t i = 0; i < 16; ++i) grids.scale_factors[i] = static_cast<std::int8_t>(block[192 + i]);
}

/// Returns whether all floats of an MXFP4 block are 0 or -0.
bool is_all_zero(const std::uint8_t* block) {
  return std::all_of(block + 1, block + 17, [](std::uint8_t two) { return (two & 0x77) == 0; });
}

/// Reads a byte that is the exponent of a float; the scale is half of this float. A block of zeros may have any
/// exponent, so its scale is read as 0.
void read_power_of_two(const std::uint8_t* block, Grids& grids) {
  grids.scale = is_all_zero(block) ? 0.0F : std::ldexp(0.5F, block[0] - 127);
}

/// Layout of a type's blocks, from ggml's src/ggml-common.h.
struct Layout {
  GgmlType type;
  GgmlTypeInfo info;
  void (*read_grids)(const std::uint8_t* block, Grids& grids) = nullptr;
  Fields low = {};   ///< low bits of the integers
  Fields high = {};  ///< bits above those of `low`
  int bias = 0;      ///< added to an integer of the file for QuantizedMatrix, modulo 256
};

constexpr GgmlType number(std::uint32_t type) {
  return static_cast<GgmlType>(type);
}
constexpr GgmlTypeInfo plain(const char* name, DType dtype) {
  return {.name = name, .block_elements = 1, .block_bytes = static_cast<std::int64_t>(size_of(dtype)), .plain = dtype};
}
constexpr GgmlTypeInfo blocks(const char* name, int elements, int bytes, kernels::QuantizedFormat format) {
  return {.name = name, .block_elements = elements, .block_bytes = bytes, .plain = std::nullopt, .format = format};
}

constexpr kernels::QuantizedFormat kIq4{.bits = 4, .group_size = 32, .codebook = kernels::Codebook::iq4_nl};
constexpr kernels::QuantizedFormat kTwoLevelIq4{
    .bits = 4, .group_size = 32, .codebook = kernels::Codebook::iq4_nl, .two_level_scales = true};
constexpr kernels::QuantizedFormat two_level_scales(int bits, std::int64_t group_size, bool asymmetric = false) {
  return {.bits = bits, .group_size = group_size, .asymmetric = asymmetric, .two_level_scales = true};
}
constexpr kernels::QuantizedFormat kMxfp4{.bits = 4, .group_size = 32, .codebook = kernels::Codebook::e2m1};

constexpr std::array kLayouts{
    Layout{number(0), plain("F32", DType::f32)},
    Layout{number(1), plain("F16", DType::f16)},
    Layout{number(30), plain("BF16", DType::bf16)},
    Layout{number(8), blocks("Q8_0", kBlock, 34, {8, 32}), read_scale, {2, 8, 32}, {}, 128},
    Layout{number(2), blocks("Q4_0", kBlock, 18, {4, 32}), read_scale, {2, 4, 16}},
    Layout{number(3), blocks("Q4_1", kBlock, 20, {4, 32, true}), read_scale_and_min, {4, 4, 16}},
    Layout{number(6), blocks("Q5_0", kBlock, 22, {5, 32}), read_scale, {6, 4, 16}, {2, 1, 1}},
    Layout{number(7), blocks("Q5_1", kBlock, 24, {5, 32, true}), read_scale_and_min, {8, 4, 16}, {4, 1, 1}},
    Layout{number(10), blocks("Q2_K", kSuperBlock, 84, two_level_scales(2, 16, true)), read_q2_k, {16, 2, 32}},
    Layout{number(11), blocks("Q3_K", kSuperBlock, 110, two_level_scales(3, 16)), read_q3_k, {32, 2, 32}, {0, 1, 32}},
    Layout{number(12), blocks("Q4_K", kSuperBlock, 144, two_level_scales(4, 32, true)), read_q4_k, {16, 4, 32}},
    Layout{number(13),
           blocks("Q5_K", kSuperBlock, 176, two_level_scales(5, 32, true)),
           read_q4_k,
           {48, 4, 32},
           {16, 1, 32}},
    Layout{number(14), blocks("Q6_K", kSuperBlock, 210, two_level_scales(6, 16)), read_q6_k, {0, 4, 64}, {128, 2, 32}},
    Layout{number(20), blocks("IQ4_NL", kBlock, 18, kIq4), read_scale, {2, 4, 16}},
    Layout{number(23), blocks("IQ4_XS", kSuperBlock, 136, kTwoLevelIq4), read_iq4_xs, {8, 4, 16}},
    Layout{number(39), blocks("MXFP4", kBlock, 17, kMxfp4), read_power_of_two, {1, 4, 16}},
};

/// Types of which only the name is known.
constexpr std::array<std::pair<std::uint32_t, const char*>, 25> kOtherTypes{{
    {9, "Q8_1"},        {15, "Q8_K"},       {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
    {19, "IQ1_S"},      {21, "IQ3_S"},      {22, "IQ2_S"},   {24, "I8"},     {25, "I16"},
    {26, "I32"},        {27, "I64"},        {28, "F64"},     {29, "IQ1_M"},  {31, "Q4_0_4_4"},
    {32, "Q4_0_4_8"},   {33, "Q4_0_8_8"},   {34, "TQ1_0"},   {35, "TQ2_0"},  {36, "IQ4_NL_4_4"},
    {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}, {40, "NVFP4"},   {41, "Q1_0"},   {42, "Q2_0"},
}};

const Layout* find_layout(GgmlType type) {
  const auto* found = std::find_if(kLayouts.begin(), kLayouts.end(), [=](const Layout& l) { return l.type == type; });
  return found == kLayouts.end() ? nullptr : &*found;
}

/// Unpacks one block. q: [block_elements].
void unpack_block(const Layout& layout, const std::uint8_t* block, std::uint8_t* q, Grids& grids) {
  const int count = static_cast<int>(layout.info.block_elements);
  std::fill_n(q, count, std::uint8_t{0});
  add_fields(block, layout.low, count, 0, q);
  add_fields(block, layout.high, count, layout.low.bits, q);
  if (layout.bias != 0) {
    for (int i = 0; i < count; ++i) q[i] = static_cast<std::uint8_t>(q[i] + layout.bias);
  }
  layout.read_grids(block, grids);
}

const Layout& checked_layout(GgmlType type, std::int64_t columns) {
  const Layout* layout = find_layout(type);
  PAGODA_ASSERT(layout != nullptr && columns % layout->info.block_elements == 0,
                "rows are whole blocks of known types");
  return *layout;
}

void widen_row(DType dtype, const std::uint8_t* from, std::int64_t columns, float* out) {
  if (dtype == DType::f32) {
    std::copy_n(from, columns * static_cast<std::int64_t>(sizeof(float)), reinterpret_cast<std::uint8_t*>(out));
    return;
  }
  for (std::int64_t i = 0; i < columns; ++i, from += 2) {
    const Float16 half = half_at(from, 0);
    out[i] = dtype == DType::f16 ? to_float(half) : to_float(BFloat16{half.bits});
  }
}

}  // namespace

const GgmlTypeInfo* ggml_type_info(GgmlType type) {
  const Layout* layout = find_layout(type);
  return layout == nullptr ? nullptr : &layout->info;
}

std::string ggml_type_name(GgmlType type) {
  if (const GgmlTypeInfo* info = ggml_type_info(type)) return info->name;
  const auto value = static_cast<std::uint32_t>(type);
  for (const auto& [other, name] : kOtherTypes) {
    if (other == value) return name;
  }
  return "type " + std::to_string(value);
}

std::string supported_ggml_types() {
  std::string names;
  for (const Layout& layout : kLayouts) names += (names.empty() ? "" : ", ") + std::string(layout.info.name);
  return names;
}

ScaleRange range_of_scales(GgmlType type, std::span<const std::byte> blocks) {
  constexpr float kMinFloat16 = 0x1p-24F;  // float16 holds all powers of two from here to kMaxFloat16
  constexpr float kMaxFloat16 = 0x1p15F;
  constexpr float kMaxValue = 12;
  constexpr std::uint8_t kNotANumber = 255;
  const Layout& layout = checked_layout(type, 0);
  if (layout.read_grids != read_power_of_two) return ScaleRange::float16;
  const auto block_bytes = static_cast<std::size_t>(layout.info.block_bytes);
  ScaleRange range = ScaleRange::float16;
  const auto* block = reinterpret_cast<const std::uint8_t*>(blocks.data());
  for (std::size_t left = blocks.size(); left > 0; left -= block_bytes, block += block_bytes) {
    Grids grids;
    read_power_of_two(block, grids);
    if (grids.scale == 0 || (grids.scale >= kMinFloat16 && grids.scale <= kMaxFloat16)) continue;
    range = ScaleRange::float32;
    if (block[0] == kNotANumber) return ScaleRange::none;
    if (std::isfinite(grids.scale * kMaxValue)) continue;
    std::array<float, kBlock> values;
    dequantize_row(type, reinterpret_cast<const std::byte*>(block), kBlock, values.data());
    if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x); })) return ScaleRange::none;
  }
  return range;
}

void unpack_row(GgmlType type, const std::byte* blocks, std::int64_t columns, const weights::UnpackedRow& to) {
  const Layout& layout = checked_layout(type, columns);
  PAGODA_ASSERT(!layout.info.plain, "only types of small integers are unpacked");
  const GgmlTypeInfo& info = layout.info;
  const std::int64_t groups = info.block_elements / info.format.group_size;
  Grids grids;
  const auto* block = reinterpret_cast<const std::uint8_t*>(blocks);
  for (std::int64_t i = 0; i < columns / info.block_elements; ++i, block += info.block_bytes) {
    unpack_block(layout, block, to.q + i * info.block_elements, grids);
    to.scales[i] = to_f16(grids.scale);
    if (info.format.asymmetric) to.mins[i] = to_f16(grids.min);
    if (!info.format.two_level_scales) continue;
    std::copy_n(grids.scale_factors.begin(), groups, to.factors + i * groups);
    if (info.format.asymmetric) std::copy_n(grids.min_factors.begin(), groups, to.min_factors + i * groups);
  }
}

void pack_row(GgmlType type, const std::uint8_t* q, const Float16* scales, const Float16* mins, std::int64_t columns,
              std::byte* blocks) {
  const Layout& layout = checked_layout(type, columns);
  PAGODA_ASSERT(type == ggml::kQ4_0 || type == ggml::kQ4_1 || type == ggml::kQ8_0, "types that are written");
  auto* block = reinterpret_cast<std::uint8_t*>(blocks);
  const auto put_half = [&](int offset, Float16 half) {
    block[offset] = static_cast<std::uint8_t>(half.bits);
    block[offset + 1] = static_cast<std::uint8_t>(half.bits >> 8);
  };
  for (std::int64_t first = 0; first < columns; first += kBlock, q += kBlock, block += layout.info.block_bytes) {
    put_half(0, *scales++);
    if (layout.info.format.asymmetric) put_half(2, *mins++);
    std::uint8_t* const fields = block + layout.low.offset;
    for (int i = 0; i < layout.low.run; ++i) {
      const int low = q[i] - layout.bias;
      const int high = layout.low.bits == 4 ? q[i + layout.low.run] << 4 : 0;
      fields[i] = static_cast<std::uint8_t>(low | high);
    }
  }
}

void dequantize_row(GgmlType type, const std::byte* blocks, std::int64_t columns, float* out) {
  const Layout& layout = checked_layout(type, columns);
  const GgmlTypeInfo& info = layout.info;
  const auto* block = reinterpret_cast<const std::uint8_t*>(blocks);
  if (info.plain) return widen_row(*info.plain, block, columns, out);
  const std::int64_t groups = info.block_elements / info.format.group_size;
  std::array<float, 256> values;  // value of each integer
  for (int i = 0; i < 1 << info.format.bits; ++i) {
    values[static_cast<std::size_t>(i)] = static_cast<float>(info.format.value_of(i));
  }
  std::array<std::uint8_t, kSuperBlock> q;
  Grids grids;
  for (std::int64_t first = 0; first < columns; first += info.block_elements, block += info.block_bytes) {
    unpack_block(layout, block, q.data(), grids);
    const std::uint8_t* integer = q.data();
    for (std::size_t g = 0; g < static_cast<std::size_t>(groups); ++g) {
      const float scale =
          info.format.two_level_scales ? grids.scale * static_cast<float>(grids.scale_factors[g]) : grids.scale;
      const float min = info.format.two_level_scales ? grids.min * static_cast<float>(grids.min_factors[g]) : grids.min;
      // The product is exact: scales have at most 19 bits and integers at most 7, and together they have at most 24. So
      // a fused multiply-add gives the same sum, and the order of ggml's factors does not matter.
      for (std::int64_t i = 0; i < info.format.group_size; ++i, ++integer, ++out) {
        *out = scale * values[*integer];
        if (info.format.asymmetric) *out += min;
      }
    }
  }
}

}  // namespace pagoda::io
