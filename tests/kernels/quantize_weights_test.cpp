#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/reference/reference_ops.hpp"
#include "kernels/rotation.hpp"
#include "tests/kernels/quantized_matrices.hpp"

namespace pagoda::kernels {
namespace {

using testing_support::format_name;
using testing_support::kFormats;
using testing_support::OpRunner;
using testing_support::OwnedMatrix;
using testing_support::quantized;
using testing_support::random_floats;
using testing_support::TypedArray;
using testing_support::weight;

TEST(QuantizeWeights, GivesTheSameIntegersOnEveryInstructionSet) {
  const TypedArray weights(random_floats(37 * 301, 5), DType::bf16);
  for (const QuantizedFormat& format : kFormats) {
    if (format.codebook != Codebook::none) continue;
    const OwnedMatrix expected = quantized(OpRunner(CpuIsa::scalar, 1), weights, 37, 301, format);
    for (const CpuIsa isa : available_isas()) {
      const OwnedMatrix actual = quantized(OpRunner(isa, 2), weights, 37, 301, format);
      EXPECT_EQ(std::memcmp(actual.view.data, expected.view.data, actual.data.bytes()), 0) << to_string(isa);
      EXPECT_EQ(std::memcmp(actual.view.scales, expected.view.scales, actual.scales.bytes()), 0) << to_string(isa);
      ASSERT_EQ(actual.mins.bytes(), format.asymmetric ? actual.scales.bytes() : 0);
      EXPECT_EQ(std::memcmp(actual.view.factors, expected.view.factors, actual.factors.bytes()), 0) << to_string(isa);
      if (!format.asymmetric) continue;
      EXPECT_EQ(std::memcmp(actual.view.mins, expected.view.mins, actual.mins.bytes()), 0) << to_string(isa);
    }
  }
}

TEST(QuantizeWeights, KeepsValuesThatAreMultiplesOfTheScale) {
  for (const QuantizedFormat format : {QuantizedFormat{8, 128}, {4, 32}, {8, 64, true}, {4, 32, true}}) {
    std::vector<float> values;
    for (int i = 0; i < 64; ++i) {
      const int q =
          format.asymmetric ? (format.bits == 8 ? i * 85 / 21 : i % 16) : (format.bits == 8 ? i * 4 - 127 : i % 16 - 8);
      values.push_back(0.125F * static_cast<float>(q) + (format.asymmetric ? 0.75F : 0.0F));
    }
    const TypedArray weights(values, DType::f32);
    const OwnedMatrix matrix = quantized(OpRunner(CpuIsa::scalar), weights, 1, 64, format);
    for (std::int64_t k = 0; k < 64; ++k) {
      EXPECT_EQ(weight(matrix.view, 0, k), values[static_cast<std::size_t>(k)]) << format_name(format) << ", " << k;
      std::vector<float> x(64, 0.0F);
      x[static_cast<std::size_t>(k)] = 1.0F;
      float y = 0;
      reference::quantized_linear({.x = x.data(),
                                   .num_tokens = 1,
                                   .in = 64,
                                   .weights = {&matrix.view, 1},
                                   .biases = {},
                                   .out = &y,
                                   .out_stride = 1});
      EXPECT_FLOAT_EQ(y, values[static_cast<std::size_t>(k)]) << format_name(format) << ", column " << k;
    }
  }
}

/// Returns the sum of squared errors of columns [first, end) of row n.
double squared_error(const QuantizedMatrix& w, const std::vector<float>& values, std::int64_t n, std::int64_t first,
                     std::int64_t end) {
  double sum = 0;
  for (std::int64_t k = first; k < end; ++k) {
    const double error = weight(w, n, k) - values[static_cast<std::size_t>(n * w.columns + k)];
    sum += error * error;
  }
  return sum;
}

/// Returns the sum of squared errors of a plain quantisation: the grid goes from the least to the greatest value, and
/// each value becomes the nearest integer.
double squared_error_of_range(const std::vector<float>& values, std::int64_t first, std::int64_t end, int bits) {
  const auto [low, high] = std::minmax_element(values.begin() + first, values.begin() + end);
  const int levels = (1 << bits) - 1;
  const double scale = to_float(to_f16((*high - *low) / static_cast<float>(levels)));
  const double min = to_float(to_f16(*low));
  double sum = 0;
  for (std::int64_t i = first; i < end; ++i) {
    const double value = values[static_cast<std::size_t>(i)];
    const double error =
        scale * std::clamp(std::nearbyint((value - min) / scale), 0.0, static_cast<double>(levels)) + min - value;
    sum += error * error;
  }
  return sum;
}

TEST(QuantizeWeights, AffineFormatsCostLittleErrorBesideScalesAndMinimumsOfTheSameColumns) {
  constexpr std::int64_t kRows = 40;
  constexpr std::int64_t kColumns = 512 + 64;
  std::vector<float> values = random_floats(kRows * kColumns, 23);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= 1.0F + static_cast<float>(i / kAffineColumns % 5);
  const TypedArray weights(values, DType::f32);
  for (std::size_t i = 0; i < values.size(); i += kRotationBlock) rotate_block(&values[i], kRotatedWeightFactor);
  const auto error_of = [&](const QuantizedFormat& format) {
    const OwnedMatrix matrix = quantized(OpRunner(CpuIsa::scalar), weights, kRows, kColumns, format);
    double error = 0;
    for (std::int64_t n = 0; n < kRows; ++n) error += squared_error(matrix.view, values, n, 0, kColumns);
    return error;
  };
  EXPECT_LT(error_of(kInt4Weights), 1.15 * error_of({4, 32, true, true}));
  // Multipliers of 6 bits are at most 4, so they are coarse.
  EXPECT_LT(error_of(kInt6Weights), 2.0 * error_of({6, 32, true, true}));
  EXPECT_LT(error_of(kInt6Weights), 0.25 * error_of(kInt4Weights));
}

TEST(QuantizeWeights, AsymmetricGroupsAreNoWorseThanTheirRangeDividedEvenly) {
  constexpr std::int64_t kRows = 20;
  constexpr std::int64_t kColumns = 512 + 24;
  const std::vector<float> values = random_floats(kRows * kColumns, 21);
  const TypedArray weights(values, DType::f32);
  for (const QuantizedFormat& format : kFormats) {
    if (!format.asymmetric || format.rotated) continue;
    SCOPED_TRACE(format_name(format));
    const OwnedMatrix matrix = quantized(OpRunner(CpuIsa::scalar), weights, kRows, kColumns, format);
    double all = 0;
    double all_of_range = 0;
    for (std::int64_t n = 0; n < kRows; ++n) {
      for (std::int64_t k = 0; k < kColumns; k += format.group_size) {
        const std::int64_t end = std::min(kColumns, k + format.group_size);
        const double error = squared_error(matrix.view, values, n, k, end);
        const double of_range = squared_error_of_range(values, n * kColumns + k, n * kColumns + end, format.bits);
        // A two_level_scales format rounds scales and minimums to bytes; that error is a larger share of a step with 6
        // bits.
        const double allowed = !format.two_level_scales ? 1.0001 : format.bits == 6 ? 2.2 : 1.3;
        EXPECT_LE(error, of_range * allowed) << "row " << n << ", column " << k;
        all += error;
        all_of_range += of_range;
      }
    }
    EXPECT_LT(all, (format.bits == 4 ? 0.88 : 0.98) * all_of_range);
  }
}

TEST(QuantizeWeights, AsymmetricGroupsAreNearerToWeightsOnOneSideOfZero) {
  constexpr std::int64_t kRows = 16;
  constexpr std::int64_t kColumns = 512;
  std::vector<float> values = random_floats(kRows * kColumns, 22);
  for (float& value : values) value = value * value;
  const TypedArray weights(values, DType::f32);
  const std::vector<float> x = random_floats(kColumns, 23);
  const auto errors = [&](const QuantizedFormat& format) {
    const OpRunner runner(CpuIsa::scalar, 1);
    const OwnedMatrix matrix = quantized(runner, weights, kRows, kColumns, format);
    std::vector<float> product(kRows);
    const Status status = runner(QuantizedLinearParams{.x = x.data(),
                                                       .num_tokens = 1,
                                                       .in = kColumns,
                                                       .weights = {&matrix.view, 1},
                                                       .biases = {},
                                                       .out = product.data(),
                                                       .out_stride = kRows});
    EXPECT_TRUE(status.has_value()) << status.error().message;
    double of_weights = 0;
    double of_products = 0;
    for (std::int64_t n = 0; n < kRows; ++n) {
      of_weights += squared_error(matrix.view, values, n, 0, kColumns);
      double error = product[static_cast<std::size_t>(n)];
      for (std::int64_t k = 0; k < kColumns; ++k) {
        error -= double{x[static_cast<std::size_t>(k)]} * double{values[static_cast<std::size_t>(n * kColumns + k)]};
      }
      of_products += error * error;
    }
    return std::pair(of_weights, of_products);
  };
  for (const QuantizedFormat& format : {QuantizedFormat{4, 32}, {4, 64}, {4, 128}, {8, 32}, {8, 128}}) {
    SCOPED_TRACE(format_name(format));
    const auto [weights_error, products_error] = errors({format.bits, format.group_size, true});
    const auto [symmetric_weights_error, symmetric_products_error] = errors(format);
    EXPECT_LT(weights_error, 0.4 * symmetric_weights_error);
    if (format.bits == 8) continue;  // the rounding of x dominates the error
    EXPECT_LT(products_error, 0.6 * symmetric_products_error);
  }
}

TEST(QuantizeWeights, WhatFillsUpAsymmetricPanelsIsZeroAndDoesNotWidenAGroup) {
  constexpr QuantizedFormat kFormat{4, 32, true};
  std::vector<float> values = random_floats(5 * 40, 24);
  for (float& value : values) value = 7.0F + std::tanh(value);
  const OwnedMatrix matrix = quantized(OpRunner(CpuIsa::scalar), TypedArray(values, DType::f32), 5, 40, kFormat);
  for (std::int64_t n = 0; n < kQuantizedPanel; ++n) {
    for (std::int64_t k = 0; k < 64; ++k) {
      if (n >= 5) {
        EXPECT_EQ(weight(matrix.view, n, k), 0) << "row " << n << ", column " << k;
      } else if (k < 40) {
        // Half a step of a range of 2 is 1 / 15, and up to 0.1 of the range (0.2) is cut off.
        EXPECT_NEAR(weight(matrix.view, n, k), values[static_cast<std::size_t>(n * 40 + k)], 0.2 + 1.0 / 15);
      } else {
        const std::int64_t group = kQuantizedPanel + n;
        EXPECT_EQ(weight(matrix.view, n, k), to_float(matrix.view.mins[group])) << "row " << n << ", column " << k;
      }
    }
  }
}

TEST(QuantizeWeights, KeepsGroupsOfOneValue) {
  std::vector<float> values(2 * 64, 0.0F);
  std::fill(values.begin() + 32, values.begin() + 64, -3.5F);
  std::fill(values.begin() + 64, values.end(), 65504.0F);
  const OwnedMatrix matrix = quantized(OpRunner(CpuIsa::scalar), TypedArray(values, DType::f32), 2, 64, {4, 32, true});
  for (std::int64_t i = 0; i < 128; ++i)
    EXPECT_EQ(weight(matrix.view, i / 64, i % 64), values[static_cast<std::size_t>(i)]) << i;
}

TEST(QuantizeWeights, RefusesWeightsThatAreNotFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values(100, 1.0F);
    values[77] = bad;
    std::vector<std::uint8_t> data(16 * 128);
    std::vector<Float16> scales(16 * 2);
    const Status status = OpRunner(CpuIsa::scalar)(QuantizeWeightsParams{.from = {values.data(), DType::f32, 1, 100},
                                                                         .format = kInt8Weights,
                                                                         .data = data.data(),
                                                                         .scales = scales.data()});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::bad_file);
    EXPECT_NE(status.error().message.find("not finite"), std::string::npos);
  }
}

TEST(QuantizeWeights, RefusesWeightsWhoseMinimumFloat16DoesNotHold) {
  for (const float bad : {-1e5F, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values(128, -1e5F);
    values[77] = bad;
    std::vector<std::uint8_t> data(16 * 128);
    std::vector<Float16> scales(16);
    std::vector<Float16> mins(16);
    const Status status = OpRunner(CpuIsa::scalar)(QuantizeWeightsParams{.from = {values.data(), DType::f32, 1, 128},
                                                                         .format = {8, 128, true},
                                                                         .data = data.data(),
                                                                         .scales = scales.data(),
                                                                         .mins = mins.data()});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::bad_file);
  }
}

}  // namespace
}  // namespace pagoda::kernels
