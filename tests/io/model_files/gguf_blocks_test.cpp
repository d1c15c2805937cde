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

struct Golden {
  std::string name;
  GgmlType type;
  std::vector<std::byte> blocks;
  std::vector<float> values;

  std::int64_t columns() const { return static_cast<std::int64_t>(values.size()); }
  const GgmlTypeInfo& info() const { return *ggml_type_info(type); }
};

std::vector<std::byte> bytes_of(const std::string& hexadecimal) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < hexadecimal.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hexadecimal.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<Golden> read_goldens() {
  std::ifstream file(std::filesystem::path(PAGODA_SOURCE_DIR) / "tests" / "data" / "gguf" / "blocks.json");
  const auto entries = nlohmann::json::parse(file);
  std::vector<Golden> goldens;
  for (const auto& [name, entry] : entries.items()) {
    const std::vector<std::byte> values = bytes_of(entry["values"]);
    goldens.push_back({name, static_cast<GgmlType>(entry["type"].get<std::uint32_t>()), bytes_of(entry["blocks"]),
                       std::vector<float>(values.size() / sizeof(float))});
    std::memcpy(goldens.back().values.data(), values.data(), values.size());
  }
  return goldens;
}

/// A row as unpack_row() gives it, with the arithmetic of kernels::QuantizedMatrix.
struct Unpacked {
  Unpacked(GgmlType type, const std::vector<std::byte>& blocks, std::int64_t columns)
      : format(ggml_type_info(type)->format),
        q(static_cast<std::size_t>(columns), 0xFF),
        scales(static_cast<std::size_t>(columns / format.group_size)),
        mins(format.asymmetric ? scales.size() : 0) {
    unpack_row(type, blocks.data(), columns, q.data(), scales.data(), format.asymmetric ? mins.data() : nullptr);
  }

  std::size_t group_of(std::size_t column) const { return column / static_cast<std::size_t>(format.group_size); }
  double scale(std::size_t column) const { return to_float(scales[group_of(column)]); }
  double min(std::size_t column) const { return mins.empty() ? 0.0 : double{to_float(mins[group_of(column)])}; }
  double weight(std::size_t column) const { return scale(column) * (q[column] - format.zero_point()) + min(column); }

  kernels::QuantizedFormat format;
  std::vector<std::uint8_t> q;
  std::vector<Float16> scales;
  std::vector<Float16> mins;
};

TEST(GgufBlocks, GoldensAreOfAllTypesThatAreSupported) {
  std::string names = ", " + supported_ggml_types() + ", ";
  for (const Golden& golden : read_goldens()) {
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
  for (const Golden& golden : read_goldens()) {
    std::vector<float> actual(golden.values.size());
    dequantize_row(golden.type, golden.blocks.data(), golden.columns(), actual.data());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(actual[i]), std::bit_cast<std::uint32_t>(golden.values[i]))
          << golden.name << " at " << i << ": " << actual[i] << " instead of " << golden.values[i];
    }
  }
}

TEST(GgufBlocks, AreUnpackedExactlyButForTheRoundingOfProducts) {
  for (const Golden& golden : read_goldens()) {
    if (golden.info().plain) continue;
    SCOPED_TRACE(golden.name);
    const Unpacked row(golden.type, golden.blocks, golden.columns());
    // Only blocks of 256 have scales that are products.
    const bool rounded = golden.info().block_elements == 256;
    int finite = 0;
    for (std::size_t i = 0; i < golden.values.size(); ++i) {
      ASSERT_LT(row.q[i], 1 << row.format.bits);
      if (!std::isfinite(row.scale(i)) || !std::isfinite(row.min(i))) continue;
      ++finite;
      // Half a unit in the last of 11 bits, or of the subnormal numbers; and the reference's own sum.
      const double integer = std::abs(row.q[i] - row.format.zero_point());
      const double of_scales = integer * std::max(std::abs(row.scale(i)) * 0x1p-11, 0x1p-25);
      const double of_mins = row.mins.empty() ? 0.0 : std::max(std::abs(row.min(i)) * 0x1p-11, 0x1p-25);
      const double of_sum = std::abs(golden.values[i]) * 0x1p-24;
      ASSERT_LE(std::abs(row.weight(i) - double{golden.values[i]}), (rounded ? of_scales + of_mins : 0.0) + of_sum)
          << "at " << i;
    }
    EXPECT_GT(finite, golden.columns() / 4);
  }
}

TEST(GgufBlocks, ScalesThatAreNotFiniteStayVisible) {
  for (const Golden& golden : read_goldens()) {
    if (golden.info().plain) continue;
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

TEST(GgufBlocks, ProductsThatFloat16DoesNotHoldBecomeInfinite) {
  std::vector<std::byte> block(144, std::byte{0x3F});  // 63 for all scales and minimums
  const auto set = [&](std::size_t at, float value) {
    const std::uint16_t bits = to_f16(value).bits;
    block[at] = static_cast<std::byte>(bits & 0xFF);
    block[at + 1] = static_cast<std::byte>(bits >> 8);
  };
  set(0, 2048.0F);
  set(2, 1024.0F);
  const Unpacked row(kQ4_K, block, 256);
  EXPECT_EQ(to_float(row.scales[0]), HUGE_VALF);
  EXPECT_EQ(to_float(row.mins[0]), -63.0F * 1024.0F);
  std::vector<float> values(256);
  dequantize_row(kQ4_K, block.data(), 256, values.data());
  EXPECT_EQ(values[0], 63.0F * 2048.0F * 15.0F - 63.0F * 1024.0F);
}

TEST(GgufBlocks, RowsMayHaveNoBlocks) {
  for (const Golden& golden : read_goldens()) {
    dequantize_row(golden.type, nullptr, 0, nullptr);
    if (!golden.info().plain) unpack_row(golden.type, nullptr, 0, nullptr, nullptr, nullptr);
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
            "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS");
  EXPECT_EQ(ggml_type_info(static_cast<GgmlType>(1))->plain, DType::f16);
  EXPECT_FALSE(ggml_type_info(kQ8_0)->plain.has_value());
  EXPECT_EQ(ggml_type_info(kQ8_0)->format, (kernels::QuantizedFormat{8, 32}));
  EXPECT_EQ(ggml_type_info(kQ4_0)->format, (kernels::QuantizedFormat{4, 32}));
  EXPECT_EQ(ggml_type_info(kQ4_K)->format, (kernels::QuantizedFormat{4, 32, true}));
  EXPECT_EQ(ggml_type_info(kQ4_K)->block_elements, 256);
  EXPECT_EQ(ggml_type_info(kQ4_K)->block_bytes, 144);
}

}  // namespace
}  // namespace pagoda::io
