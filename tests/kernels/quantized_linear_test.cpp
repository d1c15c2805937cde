#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/quantized_pack.hpp"
#include "kernels/reference/element.hpp"
#include "kernels/reference/reference_ops.hpp"
#include "kernels/rotation.hpp"
#include "tests/kernels/op_fixtures.hpp"
#include "tests/kernels/quantized_matrices.hpp"

namespace pagoda::kernels {
namespace {

using testing_support::expect_close;
using testing_support::format_name;
using testing_support::kFormats;
using testing_support::OpRunner;
using testing_support::OwnedMatrix;
using testing_support::quantized;
using testing_support::random_floats;
using testing_support::TypedArray;
using testing_support::weight;

/// Returns a row of x, reordered and rotated as the layout of the weights requires.
std::vector<float> x_row(const float* x, const QuantizedMatrix& w) {
  std::vector<float> row(x, x + w.columns);
  if (w.order != nullptr)
    std::transform(w.order, w.order + w.columns, row.begin(), [x](std::int32_t k) { return x[k]; });
  if (!w.format.rotated) return row;
  row.resize(static_cast<std::size_t>(w.padded_columns()));
  for (std::size_t k = 0; k < row.size(); k += kRotationBlock) rotate_block(row.data() + k, kRotatedXFactor);
  return row;
}

/// One call and its weights.
struct QuantizedCase {
  std::int64_t in = 0;
  std::vector<std::int64_t> out_features;
  QuantizedFormat format = kInt8Weights;
  bool with_bias = false;
  bool accumulate = false;

  std::vector<OwnedMatrix> matrices = {};
  std::vector<TypedArray> plain = {};
  std::vector<TypedArray> biases = {};

  void fill(const OpRunner& runner, DType dtype = DType::f32) {
    for (const std::int64_t rows : out_features) {
      const auto seed = static_cast<std::uint32_t>(matrices.size() + 1);
      plain.emplace_back(random_floats(rows * in, seed), dtype);
      matrices.push_back(quantized(runner, plain.back(), rows, in, format));
      biases.emplace_back(random_floats(rows, seed + 100), dtype);
    }
  }

  /// Returns float64 products of x with the weights of the layout, in the layout that multiply_on returns.
  std::vector<float> float64_sums(const std::vector<float>& x) const {
    const std::int64_t num_tokens = std::ssize(x) / in;
    std::vector<float> sums(static_cast<std::size_t>(num_tokens * (columns() + 3)), -1.0F);
    std::int64_t column = 0;
    for (const OwnedMatrix& matrix : matrices) {
      for (std::int64_t n = 0; n < matrix.view.rows; ++n, ++column) {
        std::vector<double> row;
        for (std::int64_t k = 0; k < in; ++k) row.push_back(weight(matrix.view, n, k));
        for (std::int64_t t = 0; t < num_tokens; ++t) {
          const double sum = std::inner_product(row.begin(), row.end(), x.begin() + t * in, 0.0);
          sums[static_cast<std::size_t>(t * (columns() + 3) + column)] = static_cast<float>(sum);
        }
      }
    }
    return sums;
  }

  std::int64_t columns() const {
    std::int64_t sum = 0;
    for (const std::int64_t rows : out_features) sum += rows;
    return sum;
  }

  /// Calls `run` with the params of this case for the given rows of x.
  template <class Run>
  std::vector<float> multiply(std::span<const float> x, const Run& run) const {
    const auto num_tokens = static_cast<std::int64_t>(x.size()) / in;
    const std::int64_t stride = columns() + 3;
    std::vector<float> out(static_cast<std::size_t>(num_tokens * stride), accumulate ? 2.5F : -1.0F);
    std::vector<QuantizedMatrix> views;
    std::vector<const void*> bias_pointers;
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      views.push_back(matrices[i].view);
      bias_pointers.push_back(i == 1 ? nullptr : biases[i].data());
    }
    QuantizedLinearParams params;
    params.x = x.data();
    params.num_tokens = num_tokens;
    params.in = in;
    params.weights = views;
    if (with_bias) params.biases = bias_pointers;
    params.bias_dtype = biases.front().dtype();
    params.out = out.data();
    params.out_stride = stride;
    params.accumulate = accumulate;
    run(params);
    return out;
  }

  std::vector<float> multiply_on(const OpRunner& runner, std::span<const float> x) const {
    return multiply(x, [&](const QuantizedLinearParams& params) {
      const Status status = runner(params);
      ASSERT_TRUE(status.has_value()) << status.error().message;
    });
  }
};

/// Returns the device that quantises a test's weights: the CPU quantises weights for every device.
const OpRunner& weights_runner() {
  static const OpRunner runner(CpuIsa::scalar, 1);
  return runner;
}

class QuantizedLinearTest : public testing_support::OpTest<std::tuple<std::string, QuantizedFormat>> {
 protected:
  QuantizedFormat format() const { return std::get<1>(GetParam()); }

  void expect_like_reference(QuantizedCase linear, std::int64_t num_tokens) {
    linear.format = format();
    linear.fill(weights_runner());
    const std::vector<float> x = random_floats(num_tokens * linear.in, 9);
    const std::vector<float> actual = linear.multiply_on(runner_, x);
    const std::vector<float> expected =
        linear.multiply(x, [](const QuantizedLinearParams& p) { reference::quantized_linear(p); });
    // Only the sums of groups are rounded, to float32.
    expect_close(actual, expected, 1e-6 * std::sqrt(static_cast<double>(linear.in)) + 1e-6, 2e-6);
  }
};

TEST_P(QuantizedLinearTest, MatchesTheReferenceForAnyNumberOfRows) {
  for (const std::int64_t num_tokens : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 31, 70}) {
    SCOPED_TRACE(num_tokens);
    expect_like_reference({.in = 160, .out_features = {96}}, num_tokens);
  }
}

TEST_P(QuantizedLinearTest, MatchesTheReferenceForOddSizes) {
  constexpr std::array<std::int64_t, 6> kOutFeatures = {1, 15, 16, 17, 33, 65};
  std::size_t next = 0;
  for (const std::int64_t in : {1, 3, 16, 17, 33, 64, 172, 257, 600, 1100}) {
    for (int i = 0; i < 2; ++i) {  // all pairs would take long on an emulated GPU
      const std::int64_t out = kOutFeatures[next++ % kOutFeatures.size()];
      SCOPED_TRACE(testing::Message() << "[" << out << ", " << in << "]");
      expect_like_reference({.in = in, .out_features = {out}}, 1);
      expect_like_reference({.in = in, .out_features = {out}, .with_bias = true}, 9);
    }
  }
}

/// The values of x are multiples of a power of two, so their quantisation is exact, and the results must equal float64
/// sums with the weights.
TEST_P(QuantizedLinearTest, MultipliesWithTheWeightsOfTheLayout) {
  if (format().rotated) return;  // for rotated formats such an x cannot be chosen
  QuantizedCase linear{.in = 424, .out_features = {50, 7}, .format = format()};
  linear.fill(weights_runner());
  for (const std::int64_t num_tokens : {1, 11, 40}) {
    SCOPED_TRACE(num_tokens);
    std::vector<float> x;
    for (const float value : random_floats(num_tokens * linear.in, 12, 40.0F)) {
      const auto place = static_cast<std::int64_t>(x.size());
      const float integer = place % linear.in % format().group_size == 3 ? -127.0F : std::round(value);
      x.push_back(std::clamp(integer, -127.0F, 127.0F) / (place / linear.in % 2 == 0 ? 128.0F : 64.0F));
    }
    expect_close(linear.multiply_on(runner_, x), linear.float64_sums(x), 2e-5, 2e-6);
  }
}

/// Tests the largest possible products, of one sign and of both signs: narrow accumulators must hold their sums.
TEST_P(QuantizedLinearTest, HoldsTheLargestProducts) {
  QuantizedCase linear{.in = 512, .out_features = {33}, .format = format()};
  linear.fill(weights_runner());
  OwnedMatrix& matrix = linear.matrices.front();
  for (const int weights : {0x00, 0xFF}) {
    std::fill_n(matrix.data.as<std::uint8_t>(), matrix.view.data_bytes(), static_cast<std::uint8_t>(weights));
    for (const std::int64_t num_tokens : {1, 3, 9}) {
      std::vector<float> integers(static_cast<std::size_t>(num_tokens * linear.in));
      std::vector<float> x(integers.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t row = i / static_cast<std::size_t>(linear.in);
        const float sign = row % 3 == 0 || (row % 3 == 2 && i % 2 == 0) ? 1.0F : -1.0F;
        const bool bounded = format().pairs_bounded() && row % 3 != 2;  // in a pair of opposite signs each may be 127
        integers[i] = sign * (bounded ? 64.0F : 127.0F) / 128.0F;
        // The sum of a pair is 127; rounded to integers it is 128.
        x[i] = sign * (bounded ? 63.5F : 127.0F) / 128.0F;
      }
      // The rotation is exact, because the sums need few bits.
      for (std::size_t k = 0; format().rotated && k < x.size(); k += kRotationBlock) {
        rotate_block_back(x.data() + k, 1.0F / (kRotationBlock * kRotatedXFactor));
      }
      expect_close(linear.multiply_on(runner_, x), linear.float64_sums(integers), 2e-5, 1e-4);
    }
  }
}

TEST_P(QuantizedLinearTest, MatchesTheReferenceForManyRows) {
  expect_like_reference({.in = 300, .out_features = {70, 40}}, 301);
  expect_like_reference({.in = 64, .out_features = {48}}, 1100);
}

TEST_P(QuantizedLinearTest, TakesSeveralWeightsSideBySideAndAddsToTheOutput) {
  for (const std::int64_t num_tokens : {1, 5, 40}) {
    expect_like_reference({.in = 96, .out_features = {64, 16, 16}}, num_tokens);
    expect_like_reference({.in = 96, .out_features = {64, 1, 33, 5}, .with_bias = true}, num_tokens);
    expect_like_reference({.in = 96, .out_features = {64, 1, 33}, .with_bias = true, .accumulate = true}, num_tokens);
  }
}

TEST_P(QuantizedLinearTest, GivesARowTheSameBitsAmongFewRowsAndAmongManyRows) {
  QuantizedCase linear{.in = 1292, .out_features = {70, 33}, .format = format(), .with_bias = true};
  linear.fill(weights_runner(), DType::bf16);
  const std::int64_t stride = linear.columns() + 3;
  const std::vector<float> x = random_floats(130 * linear.in, 4);
  const auto first_rows = [&](std::int64_t rows) {
    return linear.multiply_on(runner_, {x.data(), static_cast<std::size_t>(rows * linear.in)});
  };
  const auto expect_prefix = [&](const std::vector<float>& all, std::int64_t rows) {
    const std::vector<float> some = first_rows(rows);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << rows << " rows of stride " << stride;
  };
  const std::vector<float> few = first_rows(16);
  for (const std::int64_t rows : {1, 2, 5, 9}) expect_prefix(few, rows);
  const std::vector<float> many = first_rows(130);
  for (const std::int64_t rows : {17, 129}) expect_prefix(many, rows);
}

TEST_P(QuantizedLinearTest, MultipliesVeryManyAlignedRowsLikeWeightsOfBfloat16OnAGpu) {
  if (!on_cuda()) return;
  constexpr std::int64_t kRows = 200;
  constexpr std::int64_t kFeatures[] = {36, 148};
  for (std::int64_t in : {72, 560}) {
    if (format().rotated) in = in / kRotationBlock * kRotationBlock;
    SCOPED_TRACE(in);
    QuantizedCase linear{.in = in, .out_features = {std::begin(kFeatures), std::end(kFeatures)}, .format = format()};
    linear.fill(weights_runner(), DType::bf16);
    std::vector<std::int32_t> order(static_cast<std::size_t>(in));
    for (std::size_t k = 0; k < order.size(); ++k) order[k] = static_cast<std::int32_t>((k + 9) % order.size());
    const bool is_ordered = in < 100 && !format().rotated;
    std::vector<float> x = random_floats(kRows * in, 9);
    for (float& value : x) value = to_float(to_bf16(value));
    std::vector<float> out(static_cast<std::size_t>(kRows * linear.columns()), 0.5F);
    std::vector<QuantizedMatrix> weights;
    std::vector<const void*> biases;
    for (std::size_t i = 0; i < linear.matrices.size(); ++i) {
      weights.push_back(linear.matrices[i].view);
      if (is_ordered) weights.back().order = order.data();
      biases.push_back(i == 0 ? nullptr : linear.biases[i].data());
    }
    run(QuantizedLinearParams{.x = x.data(),
                              .num_tokens = kRows,
                              .in = in,
                              .weights = weights,
                              .biases = biases,
                              .bias_dtype = DType::bf16,
                              .out = out.data(),
                              .out_stride = linear.columns(),
                              .accumulate = true});
    const auto rounded = [](std::vector<float> row) {
      for (float& value : row) value = to_float(to_bf16(value));
      return row;
    };
    std::vector<float> expected(out.size());
    std::size_t column = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      std::vector<std::vector<float>> x_rows;
      for (std::int64_t t = 0; t < kRows; ++t) x_rows.push_back(rounded(x_row(x.data() + t * in, weights[i])));
      for (std::int64_t n = 0; n < weights[i].rows; ++n, ++column) {
        std::vector<float> w_row;
        for (std::size_t k = 0; k < x_rows.front().size(); ++k) {
          w_row.push_back(static_cast<float>(weight(weights[i], n, static_cast<std::int64_t>(k))));
        }
        w_row = rounded(std::move(w_row));
        const double bias = i == 0 ? 0.0 : to_float(static_cast<const BFloat16*>(linear.biases[i].data())[n]);
        for (std::size_t t = 0; t < kRows; ++t) {
          const double sum = std::transform_reduce(x_rows[t].begin(), x_rows[t].end(), w_row.begin(), 0.5 + bias,
                                                   std::plus<>(), [](double a, double b) { return a * b; });
          expected[t * static_cast<std::size_t>(linear.columns()) + column] = static_cast<float>(sum);
        }
      }
    }
    expect_close(out, expected, 1e-6 * std::sqrt(static_cast<double>(in)) + 1e-5, 1e-5);
  }
}

class CpuQuantizedLinearTest : public QuantizedLinearTest {};

TEST_P(CpuQuantizedLinearTest, GivesTheBitsOfTheScalarKernelsInAnyBatchAndOnAnyNumberOfThreads) {
  QuantizedCase linear{.in = 1292, .out_features = {130, 33}, .format = format(), .with_bias = true};
  const OpRunner scalar(CpuIsa::scalar, 1);
  linear.fill(scalar, DType::bf16);
  constexpr std::int64_t kRows = 523;
  const std::vector<float> x = random_floats(kRows * linear.in, 4);
  const std::vector<float> expected = linear.multiply_on(scalar, x);
  const std::int64_t stride = linear.columns() + 3;
  for (const int threads : {1, 3}) {
    const OpRunner runner(backend(), threads);
    EXPECT_EQ(linear.multiply_on(runner, x), expected) << threads << " threads";
    std::int64_t first = 0;
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 12, 16, 33, 64}) {
      SCOPED_TRACE(testing::Message() << rows << " rows from " << first << " on");
      const std::vector<float> some =
          linear.multiply_on(runner, {x.data() + first * linear.in, static_cast<std::size_t>(rows * linear.in)});
      ASSERT_TRUE(std::equal(some.begin(), some.end(), expected.begin() + first * stride));
      first += rows;
    }
  }
}

TEST_P(QuantizedLinearTest, TakesColumnsOfXInAnOrder) {
  if (format().rotated) return;  // rotated formats have no column order
  std::vector<std::int32_t> order;
  for (std::int32_t k = 0; k < 304; ++k) order.push_back(k * 7 % 304);
  for (const std::int64_t num_tokens : {11, 40, 130}) {
    SCOPED_TRACE(num_tokens);
    QuantizedCase linear{.in = 304, .out_features = {33, 20}, .format = format()};
    linear.fill(weights_runner());
    const std::vector<float> x = random_floats(num_tokens * linear.in, 5);
    std::vector<float> sorted;
    for (std::int64_t t = 0; t < num_tokens; ++t) {
      for (const std::int32_t k : order) sorted.push_back(x[static_cast<std::size_t>(t * linear.in + k)]);
    }
    const std::vector<float> expected = linear.multiply_on(runner_, sorted);
    for (OwnedMatrix& matrix : linear.matrices) matrix.view.order = order.data();
    EXPECT_EQ(linear.multiply_on(runner_, x), expected);
    const auto by_reference =
        linear.multiply(x, [](const QuantizedLinearParams& p) { reference::quantized_linear(p); });
    expect_close(expected, by_reference, 1e-4, 2e-6);
  }
}

TEST_P(QuantizedLinearTest, StaysNearThePlainProduct) {
  QuantizedCase linear{.in = 1024, .out_features = {64}, .format = format()};
  linear.fill(weights_runner());
  const std::vector<float> x = random_floats(8 * linear.in, 3);
  const std::vector<float> actual = linear.multiply_on(runner_, x);
  double squared_error = 0;
  double squared = 0;
  for (std::int64_t t = 0; t < 8; ++t) {
    for (std::int64_t n = 0; n < 64; ++n) {
      double sum = 0;
      const auto* w = static_cast<const float*>(linear.plain[0].data()) + n * linear.in;
      for (std::int64_t k = 0; k < linear.in; ++k) {
        sum += double{x[static_cast<std::size_t>(t * linear.in + k)]} * double{w[k]};
      }
      const double error = actual[static_cast<std::size_t>(t * (linear.columns() + 3) + n)] - sum;
      squared_error += error * error;
      squared += sum * sum;
    }
  }
  // Rounding errors are uniform; a step is about 3 (2.8 for 256 values) standard deviations / 127, or / 8 for 4 bits.
  const double most = format().codebook != Codebook::none ? 0.14
                      : format().bits == 8                ? 0.011
                                                          : 0.11 * 16 / (1 << format().bits);
  EXPECT_LT(std::sqrt(squared_error / squared), most);
}

/// Returns the relative error of a product with an x in which one value in 64 is 60 times as large as the others.
double error_beside_outliers(const OpRunner& runner, const QuantizedFormat& format) {
  QuantizedCase linear{.in = 1024, .out_features = {64}, .format = format};
  linear.fill(weights_runner());
  std::vector<float> x = random_floats(linear.in, 3);
  for (std::size_t i = 7; i < x.size(); i += 64) x[i] = 60.0F;
  const std::vector<float> actual = linear.multiply_on(runner, x);
  double squared_error = 0;
  double squared = 0;
  for (std::size_t n = 0; n < 64; ++n) {
    double sum = 0;
    const auto* w = static_cast<const float*>(linear.plain[0].data()) + n * x.size();
    for (std::size_t k = 0; k < x.size(); ++k) sum += double{x[k]} * double{w[k]};
    squared_error += (actual[n] - sum) * (actual[n] - sum);
    squared += sum * sum;
  }
  return std::sqrt(squared_error / squared);
}

TEST_P(QuantizedLinearTest, RotationKeepsWhatLiesBesideOutliers) {
  if (!format().rotated || format().bits < 8) return;  // with fewer bits the error of the weights dominates
  auto plain = format();
  plain.rotated = false;
  EXPECT_LT(error_beside_outliers(runner_, format()), 0.5 * error_beside_outliers(runner_, plain));
}

TEST_P(QuantizedLinearTest, GivesNaNForActivationsThatAreNotFinite) {
  QuantizedCase linear{.in = 200, .out_features = {20}, .format = format()};
  linear.fill(weights_runner());
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = random_floats(3 * linear.in, 3);
    x[static_cast<std::size_t>(linear.in) + 77] = bad;
    const std::vector<float> out = linear.multiply_on(runner_, x);
    EXPECT_TRUE(std::isfinite(out[0]));
    for (std::size_t n = 0; n < 20; ++n) EXPECT_TRUE(std::isnan(out[23 + n]));
    EXPECT_TRUE(std::isfinite(out[46]));
  }
}

TEST_P(QuantizedLinearTest, GivesZeroForZeroAndForTinyActivations) {
  QuantizedCase linear{.in = 100, .out_features = {20}, .format = format()};
  linear.fill(weights_runner());
  for (const float tiny : {0.0F, 1e-40F, 1e-31F}) {
    const std::vector<float> x(100, tiny);
    for (const float y : linear.multiply_on(runner_, x)) EXPECT_LE(std::abs(y + (y == -1.0F ? 1.0F : 0.0F)), 1e-28F);
  }
}

std::string case_name(const testing::TestParamInfo<std::tuple<std::string, QuantizedFormat>>& info) {
  return std::get<0>(info.param) + "_" + format_name(std::get<1>(info.param));
}

/// Returns pairs of each backend and the formats that it supports.
std::vector<std::tuple<std::string, QuantizedFormat>> cases_of(const std::vector<std::string>& backends) {
  std::vector<std::tuple<std::string, QuantizedFormat>> cases;
  for (const std::string& backend : backends) {
    for (const QuantizedFormat& format : kFormats) {
      const bool is_of_gpus = format.bits >= 4 && !format.affine;
      if (is_of_gpus || !testing_support::is_cuda(backend)) cases.emplace_back(backend, format);
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Devices, QuantizedLinearTest, testing::ValuesIn(cases_of(testing_support::all_backends())),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Devices, CpuQuantizedLinearTest, testing::ValuesIn(cases_of(testing_support::cpu_backends())),
                         case_name);

}  // namespace
}  // namespace pagoda::kernels
