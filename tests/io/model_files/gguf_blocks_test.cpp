// The blocks and values of tests/data/gguf/blocks.json, which tools/make_gguf_block_goldens.py writes.
#include "io/model_files/gguf/gguf_blocks.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pagoda::io {
namespace {

constexpr auto kQ8_0 = static_cast<GgmlType>(8);
constexpr auto kQ4_0 = static_cast<GgmlType>(2);
constexpr auto kQ4_K = static_cast<GgmlType>(12);
constexpr auto kMxfp4 = static_cast<GgmlType>(39);

struct BlockGolden {
  std::string name;
  GgmlType type;
  std::vector<std::byte> blocks;
  std::vector<float> values;

  std::int64_t columns() const { return static_cast<std::int64_t>(values.size()); }
  const GgmlTypeInfo& info() const { return *ggml_type_info(type); }
};

std::vector<std::byte> bytes_of_hex(const std::string& hexadecimal) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < hexadecimal.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hexadecimal.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<BlockGolden> read_goldens() {
  std::ifstream file(std::filesystem::path(PAGODA_SOURCE_DIR) / "tests" / "data" / "gguf" / "blocks.json");
  const auto entries = nlohmann::json::parse(file);
  std::vector<BlockGolden> goldens;
  for (const auto& [name, entry] : entries.items()) {
    const std::vector<std::byte> values = bytes_of_hex(entry["values"]);
    goldens.push_back({name, static_cast<GgmlType>(entry["type"].get<std::uint32_t>()), bytes_of_hex(entry["blocks"]),
                       std::vector<float>(values.size() / sizeof(float))});
    std::memcpy(goldens.back().values.data(), values.data(), values.size());
  }
  return goldens;
}

/// A row as unpack_row() gives it, with the arithmetic of kernels::QuantizedMatrix.
struct Unpacked {
  Unpacked(GgmlType type, const std::vector<std::byte>& blocks, std::int64_t columns)
      : format(ggml_type_info(type)->format),
        scale_columns(static_cast<std::size_t>(format.two_level_scales ? 256 : format.group_size)),
        q(static_cast<std::size_t>(columns), 0xFF),
        scales(q.size() / scale_columns),
        mins(format.asymmetric ? scales.size() : 0),
        factors(format.two_level_scales ? q.size() / static_cast<std::size_t>(format.group_size) : 0),
        min_factors(format.asymmetric ? factors.size() : 0) {
    unpack_row(type, blocks.data(), columns,
               {q.data(), scales.data(), format.asymmetric ? mins.data() : nullptr,
                format.two_level_scales ? factors.data() : nullptr,
                format.two_level_scales && format.asymmetric ? min_factors.data() : nullptr});
  }

  double factor(const std::vector<std::int8_t>& of, std::size_t column) const {
    return of.empty() ? 1.0 : of[column / static_cast<std::size_t>(format.group_size)];
  }
  double scale(std::size_t column) const { return to_float(scales[column / scale_columns]) * factor(factors, column); }
  double min(std::size_t column) const {
    return mins.empty() ? 0.0 : to_float(mins[column / scale_columns]) * factor(min_factors, column);
  }
  double weight(std::size_t column) const { return scale(column) * format.value_of(q[column]) + min(column); }

  kernels::QuantizedFormat format;
  std::size_t scale_columns;
  std::vector<std::uint8_t> q;
  std::vector<Float16> scales;
  std::vector<Float16> mins;
  std::vector<std::int8_t> factors;
  std::vector<std::int8_t> min_factors;
};

TEST(GgufBlocks, GoldensAreOfAllTypesThatAreSupported) {
  std::string names = ", " + supported_ggml_types() + ", ";
  for (const BlockGolden& golden : read_goldens()) {
    ASSERT_NE(ggml_type_info(golden.type), nullptr) << golden.name;
    EXPECT_EQ(golden.info().name, golden.name);
    const std::size_t at = names.find(", " + golden.name + ", ");
    ASSERT_NE(at, std::string::npos) << golden.name;
    names.erase(at, golden.name.size() + 2);
    EXPECT_EQ(static_cast<std::int64_t>(golden.blocks.size()),
              golden.columns() / golden.info().block_elements * golden.info().block_bytes);
  }
  EXPECT_EQ(names, ", ");
}

TEST(GgufBlocks, AreDequantizedToTheBitsOfTheReference) {
  for (const BlockGolden& golden : read_goldens()) {
    std::vector<float> actual(golden.values.size());
    dequantize_row(golden.type, golden.blocks.data(), golden.columns(), actual.data());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(actual[i]), std::bit_cast<std::uint32_t>(golden.values[i]))
          << golden.name << " at " << i << ": " << actual[i] << " instead of " << golden.values[i];
    }
  }
}

TEST(GgufBlocks, AreUnpackedExactly) {
  for (const BlockGolden& golden : read_goldens()) {
    if (golden.info().plain) continue;
    SCOPED_TRACE(golden.name);
    const Unpacked row(golden.type, golden.blocks, golden.columns());
    int finite = 0;
    for (std::size_t i = 0; i < golden.values.size(); ++i) {
      ASSERT_LT(row.q[i], 1 << row.format.bits);
      const double scale = row.scale(i);
      // Powers of two that float16 has not are infinite or nothing.
      if (golden.type == kMxfp4 && (scale == 0 || !std::isfinite(scale))) continue;
      ++finite;
      // The reference rounds its sum of a product and a minimum.
      ASSERT_LE(std::abs(row.weight(i) - double{golden.values[i]}), std::abs(golden.values[i]) * 0x1p-24) << "at " << i;
    }
    EXPECT_GE(finite, golden.columns() / 4);
  }
}

TEST(GgufBlocks, ScalesThatAreNotFiniteStayVisible) {
  for (const BlockGolden& golden : read_goldens()) {
    if (golden.info().plain || golden.type == kMxfp4) continue;
    SCOPED_TRACE(golden.name);
    // Every float16 number of the blocks is one of these, as is all else.
    for (const int byte : {0x7C, 0x7E, 0xFC, 0xFF}) {
      const std::vector<std::byte> blocks(golden.blocks.size(), static_cast<std::byte>(byte));
      const Unpacked row(golden.type, blocks, golden.columns());
      for (const Float16 scale : row.scales) ASSERT_FALSE(std::isfinite(to_float(scale)));
      std::vector<float> values(golden.values.size());
      dequantize_row(golden.type, blocks.data(), golden.columns(), values.data());
      for (const float value : values) ASSERT_FALSE(std::isfinite(value));
    }
  }
}

TEST(GgufBlocks, RowsMayHaveNoBlocks) {
  for (const BlockGolden& golden : read_goldens()) {
    dequantize_row(golden.type, nullptr, 0, nullptr);
    if (!golden.info().plain) unpack_row(golden.type, nullptr, 0, {});
  }
}

TEST(GgufBlocks, HaveNamesSizesAndFormats) {
  EXPECT_EQ(ggml_type_name(kQ4_K), "Q4_K");
  EXPECT_EQ(ggml_type_name(static_cast<GgmlType>(15)), "Q8_K");
  EXPECT_EQ(ggml_type_name(static_cast<GgmlType>(39)), "MXFP4");
  EXPECT_EQ(ggml_type_name(static_cast<GgmlType>(77)), "type 77");
  EXPECT_EQ(ggml_type_info(static_cast<GgmlType>(15)), nullptr);
  EXPECT_EQ(ggml_type_info(static_cast<GgmlType>(0xFFFFFFFF)), nullptr);
  EXPECT_EQ(supported_ggml_types(),
            "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4");
  EXPECT_EQ(ggml_type_info(static_cast<GgmlType>(1))->plain, DType::f16);
  EXPECT_FALSE(ggml_type_info(kQ8_0)->plain.has_value());
  EXPECT_EQ(ggml_type_info(kQ8_0)->format, (kernels::QuantizedFormat{8, 32}));
  EXPECT_EQ(ggml_type_info(kQ4_0)->format, (kernels::QuantizedFormat{4, 32}));
  EXPECT_EQ(ggml_type_info(kQ4_K)->format,
            (kernels::QuantizedFormat{.bits = 4, .group_size = 32, .asymmetric = true, .two_level_scales = true}));
  EXPECT_EQ(ggml_type_info(kMxfp4)->format,
            (kernels::QuantizedFormat{.bits = 4, .group_size = 32, .codebook = kernels::Codebook::e2m1}));
  EXPECT_EQ(ggml_type_info(kQ4_K)->block_elements, 256);
  EXPECT_EQ(ggml_type_info(kQ4_K)->block_bytes, 144);
}

}  // namespace
}  // namespace pagoda::io
