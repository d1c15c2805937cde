// Tests matrices that a checkpoint stores quantised, on their way to the kernels.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/weights/device_weights.hpp"
#include "engine/weights/loaded_weights.hpp"
#include "engine/weights/measured_weights.hpp"
#include "kernels/quantized_pack.hpp"
#include "tests/engine/weights/quantized_waves.hpp"
#include "tests/support/counting_device.hpp"
#include "tests/support/cpu_device.hpp"
#include "tests/support/split_memory_device.hpp"

namespace pagoda::weights {
namespace {

using kernels::Codebook;
using kernels::QuantizedFormat;
using test::cpu_device;
using test::QuantizedWaves;
using testing::HasSubstr;

constexpr std::int64_t kRows = 35;  // two panels, and three rows of a third
constexpr std::int64_t kColumns = 288;

/// Checks that `matrix` has the weights of waves in `format`.
void expect_waves(const kernels::QuantizedMatrix& matrix, const QuantizedFormat& format) {
  ASSERT_EQ(matrix.format.group_size, format.group_size);
  std::vector<float> group(static_cast<std::size_t>(format.group_size));
  for (std::int64_t row = 0; row < matrix.rows; ++row) {
    for (std::int64_t g = 0; g < matrix.groups(); ++g) {
      kernels::dequantize_group(matrix, row, g, group.data());
      for (std::int64_t i = 0; i < format.group_size && g * format.group_size + i < matrix.columns; ++i) {
        ASSERT_EQ(group[static_cast<std::size_t>(i)], QuantizedWaves::weight(format, row, g * format.group_size + i))
            << row << " " << g << " " << i;
      }
    }
  }
}

class StoredQuantized : public testing::TestWithParam<QuantizedFormat> {
 protected:
  const QuantizedWaves stored_{GetParam()};
};

TEST_P(StoredQuantized, AreBroughtIntoTheKernelsLayoutOnceAndNothingIsRounded) {
  const LoadedWeights weights(stored_, weight_policy("auto", "auto"), cpu_device());
  const auto linear = weights.linear("up_proj", kRows, kColumns);
  ASSERT_TRUE(linear);
  ASSERT_NE(linear->quantized, nullptr);
  EXPECT_EQ(linear->quantized->matrix.format, GetParam());
  expect_waves(linear->quantized->matrix, GetParam());
  EXPECT_EQ(weights.linear("up_proj", kRows, kColumns)->quantized, linear->quantized);
  EXPECT_EQ(weights.copied_bytes(), linear->quantized->matrix.bytes());
}

TEST_P(StoredQuantized, KeepTheirFormatOnAGpuButForLessThan4Bits) {
  WeightPolicy policy = weight_policy("auto", "auto");
  policy.on_gpu = true;
  const LoadedWeights weights(stored_, policy, cpu_device());
  const auto linear = weights.linear("up_proj", kRows, kColumns);
  ASSERT_TRUE(linear);
  ASSERT_NE(linear->quantized, nullptr);
  QuantizedFormat held = GetParam();
  held.bits = std::max(held.bits, 4);
  EXPECT_EQ(linear->quantized->matrix.format, held);
  expect_waves(linear->quantized->matrix, GetParam());
  const MeasuredWeights measured(stored_, policy);
  ASSERT_TRUE(measured.linear("up_proj", kRows, kColumns));
  EXPECT_EQ(measured.copied_bytes(), weights.copied_bytes());
}

TEST_P(StoredQuantized, ATiedHeadIsTheEmbedding) {
  const LoadedWeights weights(stored_, weight_policy("auto", "auto"), cpu_device());
  const auto embedding = weights.embedding("embed", kRows, kColumns);
  ASSERT_TRUE(embedding);
  ASSERT_NE(embedding->quantized, nullptr);
  EXPECT_EQ(weights.tied_linear("lm_head", "embed.weight", kRows, kColumns)->quantized, embedding->quantized);
  EXPECT_EQ(weights.copied_bytes(), embedding->quantized->matrix.bytes());
}

TEST_P(StoredQuantized, AreDequantisedWherePlainOnesAreAskedFor) {
  const LoadedWeights weights(stored_, weight_policy("auto", "none"), cpu_device());
  for (const auto& matrix :
       {weights.linear("up_proj", kRows, kColumns)->plain, weights.embedding("embed", kRows, kColumns)->plain,
        weights.tied_linear("lm_head", "embed.weight", kRows, kColumns)->plain}) {
    ASSERT_EQ(matrix.dtype, DType::f32);
    for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
      ASSERT_EQ(static_cast<const float*>(matrix.data)[i],
                QuantizedWaves::weight(GetParam(), i / kColumns, i % kColumns));
    }
  }
  EXPECT_EQ(weights.copied_bytes(), 2 * kRows * kColumns * 4);
}

TEST_P(StoredQuantized, AreDequantisedToTheDtype) {
  const LoadedWeights weights(stored_, weight_policy("bfloat16", "none"), cpu_device());
  const auto linear = weights.linear("up_proj", kRows, kColumns);
  ASSERT_TRUE(linear);
  ASSERT_EQ(linear->plain.dtype, DType::bf16);
  for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
    ASSERT_EQ(static_cast<const BFloat16*>(linear->plain.data)[i].bits,
              to_bf16(QuantizedWaves::weight(GetParam(), i / kColumns, i % kColumns)).bits);
  }
}

TEST_P(StoredQuantized, AreQuantisedAnewWhenToldSo) {
  const LoadedWeights weights(stored_, weight_policy("auto", "int8"), cpu_device());
  const auto linear = weights.linear("up_proj", kRows, kColumns);
  ASSERT_TRUE(linear) << linear.error().message;
  ASSERT_NE(linear->quantized, nullptr);
  EXPECT_EQ(linear->quantized->matrix.format, kernels::kInt8Weights);
  const auto embedding = weights.embedding("embed", kRows, kColumns);
  const auto head = weights.tied_linear("lm_head", "embed.weight", kRows, kColumns);
  ASSERT_TRUE(embedding && head);
  ASSERT_TRUE(embedding->quantized != nullptr && head->quantized != nullptr);
  EXPECT_EQ(embedding->quantized->matrix.format, GetParam()) << "a table is small as it is, and nothing is multiplied";
  EXPECT_EQ(head->quantized->matrix.format, kernels::kInt8Weights);
}

TEST_P(StoredQuantized, AreMeasuredAsTheyAreLoaded) {
  for (const char* quantize : {"auto", "none", "int8", "int4"}) {
    for (const char* dtype : {"auto", "float32", "bfloat16"}) {
      const WeightPolicy policy = weight_policy(dtype, quantize);
      const MeasuredWeights measured(stored_, policy);
      const LoadedWeights loaded(stored_, policy, cpu_device());
      for (const WeightSource* source :
           {static_cast<const WeightSource*>(&measured), static_cast<const WeightSource*>(&loaded)}) {
        ASSERT_TRUE(source->embedding("embed", kRows, kColumns));
        ASSERT_TRUE(source->tied_linear("lm_head", "embed.weight", kRows, kColumns));
        ASSERT_TRUE(source->linear("up_proj", kRows, kColumns));
      }
      EXPECT_EQ(measured.copied_bytes(), loaded.copied_bytes()) << quantize << " " << dtype;
      EXPECT_EQ(measured.loaded_bytes(), loaded.copied_bytes()) << quantize << " " << dtype;
    }
  }
}

TEST_P(StoredQuantized, AreUploadedOnceForEmbeddingAndHead) {
  const auto device = std::make_shared<test::SplitMemoryDevice>();
  const LoadedWeights host(stored_, weight_policy("auto", "auto"), cpu_device());
  const DeviceWeights weights(host, device, 1 << 20, {});
  const auto embedding = weights.embedding("embed", kRows, kColumns);
  ASSERT_TRUE(embedding);
  ASSERT_NE(embedding->quantized, nullptr);
  EXPECT_EQ(weights.tied_linear("lm_head", "embed.weight", kRows, kColumns)->quantized, embedding->quantized);
  EXPECT_EQ(weights.uploaded_bytes(), embedding->quantized->matrix.bytes());
  EXPECT_EQ(host.copied_bytes(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, StoredQuantized,
    testing::Values(QuantizedFormat{8, 32}, QuantizedFormat{8, 16}, QuantizedFormat{8, 32, true},
                    QuantizedFormat{4, 32}, QuantizedFormat{4, 16, true}, QuantizedFormat{5, 32, true},
                    QuantizedFormat{6, 16}, QuantizedFormat{3, 16},
                    QuantizedFormat{.bits = 2, .group_size = 16, .asymmetric = true, .two_level_scales = true},
                    QuantizedFormat{.bits = 3, .group_size = 16, .two_level_scales = true},
                    QuantizedFormat{.bits = 4, .group_size = 32, .codebook = Codebook::iq4_nl},
                    QuantizedFormat{.bits = 6, .group_size = 16, .two_level_scales = true},
                    QuantizedFormat{.bits = 5, .group_size = 32, .asymmetric = true, .two_level_scales = true}),
    [](const auto& test) {
      const QuantizedFormat& format = test.param;
      return "Bits" + std::to_string(format.bits) + "Group" + std::to_string(format.group_size) +
             (format.asymmetric ? "Asymmetric" : "") + (format.two_level_scales ? "Factored" : "") +
             (format.codebook == Codebook::none ? "" : "Codebook");
    });

/// The dequantised matrix would be twice to eight times as large as the result.
TEST(StoredQuantizedWeights, AreNeverDequantisedAsAWhole) {
  constexpr std::int64_t kManyRows = 16392;  // 64 MiB as float32; the last panel is not full
  constexpr std::int64_t kManyColumns = 1024;
  constexpr std::size_t kMaxBeside = std::size_t{34} << 20;  // a dequantised piece, and a piece of WeightMemory
  const QuantizedFormat format{.bits = 4, .group_size = 32};
  const QuantizedWaves stored(format);
  for (const char* quantize : {"none", "int8"}) {
    const auto device = std::make_shared<test::CountingDevice>();
    const LoadedWeights weights(stored, weight_policy("bfloat16", quantize), device);
    const auto linear = weights.linear("up_proj", kManyRows, kManyColumns);
    ASSERT_TRUE(linear) << linear.error().message;
    EXPECT_LT(device->peak_bytes(), static_cast<std::size_t>(weights.copied_bytes()) + kMaxBeside) << quantize;
    for (const std::int64_t row : {std::int64_t{0}, std::int64_t{2047}, std::int64_t{2048}, kManyRows - 1}) {
      for (const std::int64_t column : {std::int64_t{0}, kManyColumns - 1}) {
        const float wanted = QuantizedWaves::weight(format, row, column);
        float made = 0;
        if (linear->quantized == nullptr) {
          made = to_float(static_cast<const BFloat16*>(linear->plain.data)[row * kManyColumns + column]);
        } else {
          const auto& matrix = linear->quantized->matrix;
          if (matrix.format.rotated) continue;  // its groups have rotated columns
          std::vector<float> group(static_cast<std::size_t>(matrix.format.group_size));
          const std::int64_t size = matrix.format.group_size;
          kernels::dequantize_group(matrix, row, column / size, group.data());
          made = group[static_cast<std::size_t>(column % size)];
        }
        EXPECT_NEAR(made, wanted, 0.75) << quantize << " " << row << " " << column;
      }
    }
  }
}

TEST(StoredQuantizedWeights, AreQuantisedInPiecesAsAtOnce) {
  constexpr std::int64_t kManyRows = 2500;
  constexpr std::int64_t kManyColumns = 1024;
  const QuantizedFormat format{.bits = 4, .group_size = 32};
  const QuantizedWaves stored(format);
  std::vector<float> whole;
  for (std::int64_t i = 0; i < kManyRows * kManyColumns; ++i) {
    whole.push_back(QuantizedWaves::weight(format, i / kManyColumns, i % kManyColumns));
  }
  const WeightConverter converter(cpu_device());
  for (const QuantizedFormat& to : {kernels::kInt8Weights, kernels::kInt4Weights}) {
    const auto pieces = converter.quantize("a", *stored.tensor("m", {kManyRows, kManyColumns}), to);
    const auto at_once = converter.quantize("b", {"m", DType::f32, {kManyRows, kManyColumns}, whole.data()}, to);
    ASSERT_TRUE(pieces && at_once);
    const auto same = [](const kernels::Buffer& a, const kernels::Buffer& b) {
      return a.bytes() == b.bytes() && (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
    };
    EXPECT_TRUE(same((*pieces)->data, (*at_once)->data));
    EXPECT_TRUE(same((*pieces)->scales, (*at_once)->scales));
    EXPECT_TRUE(same((*pieces)->mins, (*at_once)->mins));
    EXPECT_TRUE(same((*pieces)->factors, (*at_once)->factors));
  }
}

TEST(StoredQuantizedWeights, ThatAreNotFiniteAreRefusedByName) {
  QuantizedWaves stored({8, 32});
  stored.spoil_scales();
  const LoadedWeights weights(stored, weight_policy("auto", "auto"), cpu_device());
  const auto linear = weights.linear("up_proj", kRows, kColumns);
  ASSERT_FALSE(linear);
  EXPECT_EQ(linear.error().code, ErrorCode::bad_file);
  EXPECT_THAT(linear.error().message, HasSubstr("waves.file: tensor \"up_proj.weight\" has a scale"));
}

}  // namespace
}  // namespace pagoda::weights
