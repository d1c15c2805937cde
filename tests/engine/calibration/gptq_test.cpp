#include "engine/calibration/gptq.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/calibration/input_products.hpp"
#include "engine/calibration/rotated.hpp"
#include "engine/calibration/rounded.hpp"
#include "kernels/rotation.hpp"

namespace pagoda::calibration {
namespace {

using testing::HasSubstr;

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

struct Fixture {
  std::shared_ptr<kernels::Device> device = kernels::create_cpu_device({.num_threads = 2, .isa = ""}).value();
  std::unique_ptr<kernels::Stream> stream = device->create_stream("test").value();

  void run(const std::function<void()>& issue) {
    stream->submit(issue);
    stream->synchronize();
  }

  kernels::Buffer memory(const std::vector<float>& values) {
    auto buffer = device->allocate(values.size() * sizeof(float), kernels::MemoryKind::host).value();
    std::ranges::copy(values, buffer.as<float>());
    return buffer;
  }

  Result<ErrorFeedback> factorize(const std::vector<float>& products, std::int64_t size) {
    Result<ErrorFeedback> feedback = fail(ErrorCode::internal, "not run");
    auto copy = memory(products);
    run([&] { feedback = ErrorFeedback::factorize(*device, *stream, std::move(copy), size); });
    return feedback;
  }

  Result<GptqMatrix> quantize(std::vector<float> weights, std::int64_t rows, const ErrorFeedback& feedback,
                              const GptqFormat& format) {
    Result<GptqMatrix> matrix = fail(ErrorCode::internal, "not run");
    run([&] { matrix = quantize_gptq(*device, *stream, weights.data(), rows, feedback, format); });
    return matrix;
  }
};

std::vector<float> normal(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> value;
  std::vector<float> values(index(count));
  for (float& x : values) x = value(random);
  return values;
}

/// Returns rows of inputs whose columns correlate, as in activations: a few directions that all rows share, and noise.
std::vector<float> correlated_inputs(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kDirections = 8;
  const auto directions = normal(kDirections * columns, 1);
  const auto strengths = normal(rows * kDirections, 2);
  auto x = normal(rows * columns, 3);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t k = 0; k < columns; ++k) {
      x[index(r * columns + k)] *= 0.3F;
      for (std::int64_t d = 0; d < kDirections; ++d) {
        x[index(r * columns + k)] += strengths[index(r * kDirections + d)] * directions[index(d * columns + k)];
      }
    }
  }
  return x;
}

std::vector<double> products_of(const std::vector<float>& x, std::int64_t columns) {
  std::vector<double> products(index(columns * columns));
  for (std::size_t row = 0; row < x.size(); row += index(columns)) {
    for (std::int64_t i = 0; i < columns; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        products[index(i * columns + j)] += double{x[row + index(i)]} * x[row + index(j)];
      }
    }
  }
  return products;
}

std::vector<float> narrowed(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

std::vector<float> dequantized(const GptqMatrix& matrix, std::int64_t columns, const GptqFormat& format) {
  std::vector<float> weights(matrix.q.size());
  const std::int64_t groups = columns / format.group_size;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::int64_t row = static_cast<std::int64_t>(i) / columns;
    const std::int64_t group = static_cast<std::int64_t>(i) % columns / format.group_size;
    const std::size_t at = index(row * groups + group);
    weights[i] = format.minimums ? matrix.scales[at] * static_cast<float>(matrix.q[i]) + matrix.mins[at]
                                 : matrix.scales[at] * static_cast<float>(int{matrix.q[i]} - int{matrix.zeros[at]});
  }
  return weights;
}

/// Returns the squared error of outputs, tr(E H E^T).
double output_error(const std::vector<float>& weights, const std::vector<float>& instead,
                    const std::vector<double>& products, std::int64_t columns) {
  double sum = 0;
  for (std::size_t row = 0; row < weights.size(); row += index(columns)) {
    for (std::int64_t i = 0; i < columns; ++i) {
      const double error_i = double{weights[row + index(i)]} - instead[row + index(i)];
      for (std::int64_t j = 0; j < columns; ++j) {
        const double error_j = double{weights[row + index(j)]} - instead[row + index(j)];
        sum += error_i * products[index(i * columns + j)] * error_j;
      }
    }
  }
  return sum;
}

/// 300 columns: more than two blocks, of which the last is not full.
constexpr std::int64_t kColumns = 300;

TEST(ErrorFeedback, IsTheTriangularFactorOfTheDampedProducts) {
  Fixture fixture;
  const auto products = products_of(correlated_inputs(500, kColumns), kColumns);
  const auto feedback = fixture.factorize(narrowed(products), kColumns);
  ASSERT_TRUE(feedback);
  double mean = 0;
  for (std::int64_t k = 0; k < kColumns; ++k) mean += products[index(k * kColumns + k)] / kColumns;
  for (std::int64_t i = 0; i < kColumns; i += 7) {
    for (std::int64_t j = i; j < kColumns; j += 5) {
      double product = 0;
      for (std::int64_t k = j; k < kColumns; ++k) {
        const double left = k == i ? 1.0 : double{feedback->row(i)[k]};
        const double right = k == j ? 1.0 : double{feedback->row(j)[k]};
        product += left * feedback->importance()[index(k)] * right;
      }
      const double expected = products[index(i * kColumns + j)] + (i == j ? 0.01 * mean : 0.0);
      ASSERT_NEAR(product, expected, 2e-4 * mean) << i << ", " << j;
    }
  }
}

TEST(ErrorFeedback, DampsProductsOfFewRowsAndOfNone) {
  Fixture fixture;
  EXPECT_TRUE(fixture.factorize(narrowed(products_of(correlated_inputs(3, 160), 160)), 160));
  const auto none = fixture.factorize(std::vector<float>(160 * 160), 160);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->row(0)[1], 0);
}

TEST(ErrorFeedback, RefusesProductsThatAreNotFinite) {
  Fixture fixture;
  std::vector<float> products(64 * 64, 1.0F);
  products[65] = std::numeric_limits<float>::infinity();
  const auto feedback = fixture.factorize(products, 64);
  ASSERT_FALSE(feedback);
  EXPECT_EQ(feedback.error().code, ErrorCode::bad_file);
  EXPECT_THAT(feedback.error().message, HasSubstr("not finite"));
}

TEST(Gptq, HalvesTheErrorOfOutputsWhereInputsHangTogether) {
  constexpr std::int64_t kRows = 24;
  constexpr std::int64_t kWidth = 320;
  Fixture fixture;
  const auto products = products_of(correlated_inputs(600, kWidth), kWidth);
  const auto weights = normal(kRows * kWidth, 9);
  const auto feedback = fixture.factorize(narrowed(products), kWidth);
  // Without columns to which errors could be passed, each weight is rounded to its nearest integer.
  std::vector<float> identity(index(kWidth * kWidth));
  for (std::int64_t k = 0; k < kWidth; ++k) identity[index(k * kWidth + k)] = 1;
  const auto no_feedback = fixture.factorize(identity, kWidth);
  ASSERT_TRUE(feedback && no_feedback);
  for (const GptqFormat format :
       {GptqFormat{4, 32}, GptqFormat{4, 64}, GptqFormat{4, 160}, GptqFormat{8, 32}, GptqFormat{4, 32, true},
        GptqFormat{8, 32, true, DType::bf16}, GptqFormat{4, 32, true, DType::f16, true}}) {
    const auto matrix = fixture.quantize(weights, kRows, *feedback, format);
    const auto nearest = fixture.quantize(weights, kRows, *no_feedback, format);
    ASSERT_TRUE(matrix && nearest);
    const double error = output_error(weights, dequantized(*matrix, kWidth, format), products, kWidth);
    const double error_of_nearest = output_error(weights, dequantized(*nearest, kWidth, format), products, kWidth);
    EXPECT_LT(error, 0.5 * error_of_nearest) << format.bits << " bits, groups of " << format.group_size;
  }
}

/// Compares with GPTQ's steps, one column after the other, in double precision.
TEST(Gptq, RoundsEachColumnWithWhatEarlierOnesAskFor) {
  constexpr std::int64_t kRows = 5;
  const GptqFormat format{4, 20};
  Fixture fixture;
  const auto weights = normal(kRows * kColumns, 4);
  const auto feedback = fixture.factorize(narrowed(products_of(correlated_inputs(500, kColumns), kColumns)), kColumns);
  ASSERT_TRUE(feedback);
  const auto matrix = fixture.quantize(weights, kRows, *feedback, format);
  ASSERT_TRUE(matrix);
  const auto quantized = dequantized(*matrix, kColumns, format);
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t k = 0; k < kColumns; ++k) {
      double target = weights[index(r * kColumns + k)];
      for (std::int64_t j = 0; j < k; ++j) {
        target += (double{weights[index(r * kColumns + j)]} - quantized[index(r * kColumns + j)]) * feedback->row(j)[k];
      }
      const double scale = matrix->scales[index(r * (kColumns / 20) + k / 20)];
      const int q = int{matrix->q[index(r * kColumns + k)]} - 8;
      const double in_steps = target / scale;
      if (q > -8 && q < 7) {
        ASSERT_NEAR(in_steps, q, 0.5 + 1e-3) << r << ", " << k;
      }
      if (q == 7) {
        ASSERT_GT(in_steps, 6.5 - 1e-3) << r << ", " << k;
      }
      if (q == -8) {
        ASSERT_LT(in_steps, -7.5 + 1e-3) << r << ", " << k;
      }
    }
  }
}

TEST(Gptq, KeepsWeightsThatLieOnTheGridAndZeros) {
  Fixture fixture;
  std::vector<float> identity(64 * 64);
  for (std::size_t k = 0; k < 64; ++k) identity[k * 65] = 1;
  const auto feedback = fixture.factorize(identity, 64);
  std::vector<float> weights(2 * 64, 0.0F);
  for (std::size_t k = 0; k < 32; ++k) weights[k] = 0.25F * static_cast<float>(static_cast<int>(k % 16) - 8);
  const auto matrix = fixture.quantize(weights, 2, feedback.value(), {4, 32});
  ASSERT_TRUE(matrix);
  EXPECT_EQ(dequantized(*matrix, 64, {4, 32}), weights);
}

TEST(Gptq, ZeroPointsServeGroupsWhoseWeightsAreOfOneSign) {
  Fixture fixture;
  std::vector<float> identity(64 * 64);
  for (std::size_t k = 0; k < 64; ++k) identity[k * 65] = 1;
  const auto feedback = fixture.factorize(identity, 64);
  std::vector<float> weights(64);
  for (std::size_t k = 0; k < 64; ++k) weights[k] = 0.25F * static_cast<float>(k % 16) - (k < 32 ? 0.0F : 1.25F);
  const GptqFormat format{4, 32, true, DType::bf16};
  const auto matrix = fixture.quantize(weights, 1, feedback.value(), format);
  ASSERT_TRUE(matrix);
  EXPECT_EQ(dequantized(*matrix, 64, format), weights);
  EXPECT_EQ(matrix->zeros, (std::vector<std::uint8_t>{0, 5}));
}

TEST(Gptq, MinimumsServeGroupsThatAreFarFromZeroAndThoseOfOneValue) {
  Fixture fixture;
  std::vector<float> identity(64 * 64);
  for (std::size_t k = 0; k < 64; ++k) identity[k * 65] = 1;
  const auto feedback = fixture.factorize(identity, 64);
  std::vector<float> weights(64, -0.375F);
  for (std::size_t k = 0; k < 32; ++k) weights[k] = 100.5F + 0.25F * static_cast<float>(k % 16);
  const GptqFormat format{4, 32, true, DType::f16, true};
  const auto matrix = fixture.quantize(weights, 1, feedback.value(), format);
  ASSERT_TRUE(matrix);
  EXPECT_TRUE(matrix->zeros.empty());
  EXPECT_EQ(dequantized(*matrix, 64, format), weights);
}

TEST(Gptq, AFreeMinimumIsNearerThanAZeroPoint) {
  constexpr std::int64_t kRows = 24;
  Fixture fixture;
  std::vector<float> identity(64 * 64);
  for (std::size_t k = 0; k < 64; ++k) identity[k * 65] = 1;
  const auto feedback = fixture.factorize(identity, 64);
  const auto weights = normal(kRows * 64, 11);
  const auto error_of = [&](const GptqFormat& format) {
    const auto matrix = fixture.quantize(weights, kRows, feedback.value(), format);
    EXPECT_TRUE(matrix);
    return output_error(weights, dequantized(*matrix, 64, format), {identity.begin(), identity.end()}, 64);
  };
  EXPECT_LT(error_of({4, 32, true, DType::f16, true}), 0.9 * error_of({4, 32, true}));
}

TEST(Gptq, ScalesAreOfTheirType) {
  Fixture fixture;
  std::vector<float> identity(64 * 64);
  for (std::size_t k = 0; k < 64; ++k) identity[k * 65] = 1;
  const auto feedback = fixture.factorize(identity, 64);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const auto matrix = fixture.quantize(normal(3 * 64, 5), 3, feedback.value(), {4, 32, true, dtype});
    ASSERT_TRUE(matrix);
    for (const float scale : matrix->scales) {
      EXPECT_EQ(scale, dtype == DType::bf16 ? to_float(to_bf16(scale)) : to_float(to_f16(scale)));
    }
  }
}

TEST(Rotated, ProductsOfRotatedInputsBelongToRotatedWeights) {
  constexpr std::int64_t kWidth = 96;
  constexpr std::int64_t kRows = 3;
  Fixture fixture;
  const auto x = correlated_inputs(50, kWidth);
  const auto rotated = [&](std::vector<float> rows) {
    Status status;
    const std::int64_t num_rows = std::ssize(rows) / kWidth;
    fixture.run([&] { status = rotate_columns(*fixture.device, *fixture.stream, rows.data(), num_rows, kWidth); });
    EXPECT_TRUE(status);
    return rows;
  };
  const auto weights = normal(kRows * kWidth, 7);
  const auto instead = normal(kRows * kWidth, 8);
  auto products = narrowed(products_of(x, kWidth));
  Status status;
  fixture.run([&] { status = rotate_products(*fixture.device, *fixture.stream, products.data(), kWidth); });
  ASSERT_TRUE(status);
  const auto expected = products_of(rotated(x), kWidth);
  const double error = output_error(weights, instead, products_of(x, kWidth), kWidth);
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(products[i], expected[i], 1e-3);
  EXPECT_NEAR(output_error(rotated(weights), rotated(instead), expected, kWidth) / error, 1, 1e-5);
  EXPECT_GT(std::abs(rotated(weights)[0] - weights[0]), 1e-3);
}

TEST(Gptq, RefusesWeightsThatAreNotFinite) {
  Fixture fixture;
  std::vector<float> identity(64 * 64);
  for (std::size_t k = 0; k < 64; ++k) identity[k * 65] = 1;
  const auto feedback = fixture.factorize(identity, 64);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30F}) {
    std::vector<float> weights(64, 1.0F);
    weights[40] = bad;
    const auto matrix = fixture.quantize(weights, 1, feedback.value(), {4, 32});
    ASSERT_FALSE(matrix) << bad;
    EXPECT_EQ(matrix.error().code, ErrorCode::bad_file);
  }
}

TEST(InputProducts, AddUpWhatGoesIntoTheLayersThatAreCollected) {
  Fixture fixture;
  InputProducts seen(fixture.device);
  const std::vector<layers::LinearModule> one{{"a.q", 4}, {"a.k", 4}};
  const std::vector<layers::LinearModule> two{{"a.up", 4}};
  auto x = normal(9 * 40, 6);
  Status status;
  const auto see = [&](const auto& modules, std::int64_t rows) {
    fixture.run([&] { status = seen.see(*fixture.stream, modules, x.data(), rows, 40); });
    ASSERT_TRUE(status);
  };
  see(one, 9);
  see(two, 9);
  ASSERT_EQ(seen.inputs().size(), 2U);
  EXPECT_EQ(seen.inputs()[0].modules[1].name, "a.k");
  ASSERT_TRUE(seen.collect(1, 2));
  see(one, 9);
  see(two, 9);
  see(two, 4);
  const auto product = seen.take(1);
  auto rows = x;
  rows.insert(rows.end(), x.begin(), x.begin() + 4 * 40);
  const auto expected = products_of(rows, 40);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(product.as<float>()[i], expected[i], 1e-4);
}

TEST(RoundedWeights, AreThoseOfGptqWhereNoColumnMakesUpForAnother) {
  constexpr std::int64_t kRows = 5;
  constexpr std::int64_t kWidth = 96;
  Fixture f;
  std::vector<float> identity(index(kWidth * kWidth));
  for (std::int64_t i = 0; i < kWidth; ++i) identity[index(i * kWidth + i)] = 1;
  const auto feedback = f.factorize(identity, kWidth);
  ASSERT_TRUE(feedback);
  for (const GptqFormat& format :
       {GptqFormat{4, 32, true}, {4, 16, false}, {8, 32, true}, {4, 32, true, DType::f16, true}}) {
    for (const bool rotated : {false, true}) {
      const auto weights = normal(kRows * kWidth, 5);
      auto rounded = weights;
      auto by_gptq = weights;
      f.run([&] {
        EXPECT_TRUE(round_weights(*f.device, *f.stream, rounded.data(), kRows, kWidth, format, rotated));
        if (rotated) {
          EXPECT_TRUE(rotate_columns(*f.device, *f.stream, by_gptq.data(), kRows, kWidth));
        }
      });
      const auto matrix = f.quantize(by_gptq, kRows, *feedback, format);
      ASSERT_TRUE(matrix);
      by_gptq = dequantized(*matrix, kWidth, format);
      for (std::size_t k = 0; rotated && k < by_gptq.size(); k += kernels::kRotationBlock) {
        kernels::rotate_block_back(by_gptq.data() + k, kernels::kOrthogonalFactor);
      }
      for (std::size_t i = 0; i < rounded.size(); ++i) EXPECT_NEAR(rounded[i], by_gptq[i], 1e-5) << i;
      EXPECT_NE(rounded, weights);
    }
  }
}

TEST(RoundedWeights, ThatAreNotFiniteAreRefused) {
  Fixture f;
  std::vector<float> weights(64, 1.0F);
  weights[40] = std::numeric_limits<float>::infinity();
  f.run([&] {
    const Status status = round_weights(*f.device, *f.stream, weights.data(), 2, 32, {}, false);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::bad_file);
  });
}

}  // namespace
}  // namespace pagoda::calibration
