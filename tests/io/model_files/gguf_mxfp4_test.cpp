// MXFP4 matrices with every exponent: those that float16 does not hold come out right as well, or are refused.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/weights/loaded_weights.hpp"
#include "engine/weights/measured_weights.hpp"
#include "io/model_files/gguf/gguf_blocks.hpp"
#include "io/model_files/gguf/gguf_weights.hpp"
#include "kernels/quantized_pack.hpp"
#include "tests/io/model_files/gguf_writer.hpp"
#include "tests/support/cpu_device.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using testing::GgufWriter;
using ::testing::HasSubstr;

constexpr std::uint32_t kGgmlMxfp4 = 39;
constexpr std::int64_t kMxfp4Rows = 3;
constexpr std::int64_t kMxfp4Columns = 64;
constexpr std::size_t kBlockBytes = 17;
constexpr const char* kModule = "model.layers.0.mlp.up_proj";

/// The values that a block's 16 bytes stand for, in halves.
constexpr std::array<float, 16> kValues{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

std::string block_of(int exponent, std::uint8_t two) {
  return std::string(1, static_cast<char>(exponent)) + std::string(16, static_cast<char>(two));
}

/// A matrix whose blocks have the exponent 127 but for the last.
class Mxfp4Matrix {
 public:
  explicit Mxfp4Matrix(const std::string& last_block) {
    for (std::int64_t i = 0; i + 1 < kMxfp4Rows * kMxfp4Columns / 32; ++i) blocks_ += block_of(127, 0xA7);
    blocks_ += last_block;
    GgufWriter writer;
    writer.add("general.architecture", "llama")
        .add("llama.attention.head_count", std::uint32_t{2})
        .add_tensor("blk.0.ffn_up.weight", kGgmlMxfp4, {kMxfp4Rows, kMxfp4Columns}, blocks_);
    auto file = GgufFile::open(writer.write(folder_.path() / "m.gguf"));
    EXPECT_TRUE(file) << file.error().message;
    weights_ = GgufWeights::open(*file).value();
  }

  const GgufWeights& weights() const { return *weights_; }

  /// 2^(exponent - 127) times the float of 4 bits.
  double weight(std::int64_t row, std::int64_t column) const {
    const std::size_t block = static_cast<std::size_t>(row * kMxfp4Columns + column) / 32 * kBlockBytes;
    const auto byte = [&](std::size_t at) { return static_cast<std::uint8_t>(blocks_[block + at]); };
    const auto in_block = static_cast<std::size_t>(column % 32);
    const std::uint8_t place = in_block < 16 ? byte(1 + in_block) & 15 : byte(1 + in_block - 16) >> 4;
    return std::ldexp(double{kValues[place]}, byte(0) - 128);
  }

 private:
  test::TemporaryFolder folder_;
  std::string blocks_;
  std::shared_ptr<const GgufWeights> weights_;
};

/// The weights as kernels use them; true where they are quantised.
bool expect_right(const Mxfp4Matrix& matrix, weights::WeightPolicy policy) {
  const weights::LoadedWeights loaded(matrix.weights(), policy, test::cpu_device());
  const auto linear = loaded.linear(kModule, kMxfp4Rows, kMxfp4Columns);
  EXPECT_TRUE(linear) << linear.error().message;
  if (!linear) return false;
  const weights::MeasuredWeights measured(matrix.weights(), policy);
  EXPECT_TRUE(measured.linear(kModule, kMxfp4Rows, kMxfp4Columns));
  EXPECT_EQ(measured.copied_bytes(), loaded.copied_bytes());
  std::vector<float> group(32);
  for (std::int64_t row = 0; row < kMxfp4Rows; ++row) {
    for (std::int64_t column = 0; column < kMxfp4Columns; ++column) {
      float weight = 0;
      if (linear->quantized != nullptr) {
        kernels::dequantize_group(linear->quantized->matrix, row, column / 32, group.data());
        weight = group[static_cast<std::size_t>(column % 32)];
      } else {
        EXPECT_EQ(linear->plain.dtype, DType::f32);
        weight = static_cast<const float*>(linear->plain.data)[row * kMxfp4Columns + column];
      }
      EXPECT_EQ(double{weight}, matrix.weight(row, column)) << row << " " << column;
    }
  }
  return linear->quantized != nullptr;
}

TEST(GgufMxfp4, IsRightWithEveryExponent) {
  weights::WeightPolicy on_gpu = weights::weight_policy("auto", "auto");
  on_gpu.on_gpu = true;
  for (int exponent = 0; exponent <= 252; ++exponent) {
    SCOPED_TRACE(exponent);
    const Mxfp4Matrix matrix(block_of(exponent, 0xF5));
    const bool fits = exponent >= 104 && exponent <= 143;
    EXPECT_EQ(expect_right(matrix, weights::weight_policy("auto", "auto")), fits);
    EXPECT_EQ(expect_right(matrix, on_gpu), fits);
    EXPECT_FALSE(expect_right(matrix, weights::weight_policy("auto", "none")));
  }
}

TEST(GgufMxfp4, ExponentsOfZerosDoNotCount) {
  for (const int exponent : {0, 90, 200, 255}) {
    SCOPED_TRACE(exponent);
    EXPECT_TRUE(expect_right(Mxfp4Matrix(block_of(exponent, 0x08)), weights::weight_policy("auto", "auto")));
  }
}

TEST(GgufMxfp4, WeightsThatFloat32DoesNotHoldAreRefused) {
  const auto refusal = [](int exponent, std::uint8_t two) {
    const Mxfp4Matrix matrix(block_of(exponent, two));
    const weights::LoadedWeights loaded(matrix.weights(), weights::weight_policy("auto", "auto"), test::cpu_device());
    const auto linear = loaded.linear(kModule, kMxfp4Rows, kMxfp4Columns);
    return linear ? std::string() : linear.error().message;
  };
  EXPECT_EQ(refusal(253, 0x55), "");  // 3 * 2^126
  EXPECT_THAT(refusal(253, 0x70), HasSubstr("\"blk.0.ffn_up.weight\": a scale is not a number, or makes weights"));
  EXPECT_EQ(refusal(254, 0x33), "");
  EXPECT_THAT(refusal(254, 0x40), HasSubstr("float32 does not hold"));
  EXPECT_THAT(refusal(255, 0x10), HasSubstr("not a number"));
}

TEST(GgufMxfp4, IsNotQuantisedAnewToNothingOrInfinity) {
  for (const char* quantize : {"int8", "int4"}) {
    for (const int exponent : {0, 60, 90, 110, 127, 140, 145, 160, 200, 252}) {
      SCOPED_TRACE(exponent);
      const Mxfp4Matrix matrix(block_of(exponent, 0x77));
      const weights::LoadedWeights loaded(matrix.weights(), weights::weight_policy("auto", quantize),
                                          test::cpu_device());
      const auto linear = loaded.linear(kModule, kMxfp4Rows, kMxfp4Columns);
      if (!linear) {
        EXPECT_GT(exponent, 127) << linear.error().message;
        continue;
      }
      ASSERT_NE(linear->quantized, nullptr);
      std::vector<float> group(static_cast<std::size_t>(linear->quantized->matrix.format.group_size));
      kernels::dequantize_group(linear->quantized->matrix, kMxfp4Rows - 1, 0, group.data());
      for (const float weight : group) EXPECT_TRUE(std::isfinite(weight)) << quantize;
    }
  }
}

}  // namespace
}  // namespace pagoda::io
