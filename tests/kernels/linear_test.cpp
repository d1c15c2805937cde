#include <algorithm>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/reference/reference_ops.hpp"
#include "tests/kernels/op_fixtures.hpp"

namespace pagoda::kernels {
namespace {

using testing_support::expect_close;
using testing_support::OpRunner;
using testing_support::random_floats;
using testing_support::rounded_to;
using testing_support::TypedArray;

/// On a GPU, more rows are multiplied on tensor cores, with x rounded to the type of the weights.
constexpr std::int64_t kMaxExactRows = 2;

/// One linear call and its weights.
struct LinearCase {
  std::int64_t in = 0;
  std::vector<std::int64_t> out_features;
  DType dtype = DType::f32;
  bool with_bias = false;
  bool accumulate = false;
  std::size_t offset_bytes = 0;  ///< offset of the weights from an aligned address

  std::vector<TypedArray> weights = {};
  std::vector<TypedArray> biases = {};

  void fill() {
    for (const std::int64_t rows : out_features) {
      const auto seed = static_cast<std::uint32_t>(weights.size() + 1);
      weights.emplace_back(random_floats(rows * in, seed), dtype, offset_bytes);
      biases.emplace_back(random_floats(rows, seed + 100), dtype, offset_bytes);
    }
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
    std::vector<float> out = random_floats(num_tokens * stride, 77);
    if (accumulate) {  // every row starts with equal values, so that rows can be compared
      for (std::int64_t t = 1; t < num_tokens; ++t) std::copy_n(out.begin(), stride, out.begin() + t * stride);
    } else {
      std::fill(out.begin(), out.end(), -1.0F);
    }
    std::vector<WeightMatrix> matrices;
    std::vector<const void*> bias_pointers;
    for (std::size_t i = 0; i < out_features.size(); ++i) {
      matrices.push_back({weights[i].data(), dtype, out_features[i], in});
      bias_pointers.push_back(i == 1 ? nullptr : biases[i].data());
    }
    LinearParams params;
    params.x = x.data();
    params.num_tokens = num_tokens;
    params.in = in;
    params.weights = matrices;
    if (with_bias) params.biases = bias_pointers;
    params.bias_dtype = dtype;
    params.out = out.data();
    params.out_stride = stride;
    params.accumulate = accumulate;
    run(params);
    return out;
  }
};

class LinearTest : public testing_support::OpTest<testing_support::BackendAndDType> {
 protected:
  DType dtype() const { return std::get<1>(GetParam()); }

  static std::vector<float> run_on(const OpRunner& runner, const LinearCase& linear, std::span<const float> x) {
    return linear.multiply(x, [&](const LinearParams& params) {
      const Status status = runner(params);
      ASSERT_TRUE(status.has_value()) << status.error().message;
    });
  }

  void expect_like_reference(LinearCase linear, std::int64_t num_tokens) {
    linear.dtype = dtype();
    linear.fill();
    std::vector<float> x = random_floats(num_tokens * linear.in, 9);
    const bool rounds = on_cuda() ? num_tokens > kMaxExactRows : rounds_to_bf16() && dtype() == DType::bf16;
    if (rounds) x = rounded_to(dtype(), x);
    const std::vector<float> actual = run_on(runner_, linear, x);
    const std::vector<float> expected = linear.multiply(x, [](const LinearParams& p) { reference::linear(p); });
    // Each of the `in` products of unit normals is rounded once; the sum is about sqrt(in).
    expect_close(actual, expected, 2e-6 * static_cast<double>(linear.in) / 16 + 2e-5, 1e-5);
  }
};

TEST_P(LinearTest, MatchesTheReferenceForAnyNumberOfRows) {
  for (const std::int64_t num_tokens : {0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 14, 15, 16, 17, 28, 29, 31, 70}) {
    SCOPED_TRACE(num_tokens);
    expect_like_reference({.in = 160, .out_features = {96}}, num_tokens);
  }
}

TEST_P(LinearTest, MatchesTheReferenceForOddSizes) {
  for (const std::int64_t in : {1, 3, 15, 16, 17, 31, 33, 63, 255, 257, 600}) {
    for (const std::int64_t out : {1, 2, 15, 31, 33, 65}) {
      SCOPED_TRACE(testing::Message() << "[" << out << ", " << in << "]");
      expect_like_reference({.in = in, .out_features = {out}}, 1);
      expect_like_reference({.in = in, .out_features = {out}, .with_bias = true}, 9);
    }
  }
}

TEST_P(LinearTest, MatchesTheReferenceForManyRows) {
  expect_like_reference({.in = 300, .out_features = {200, 40}}, 301);
  expect_like_reference({.in = 64, .out_features = {48}}, 1000);
}

TEST_P(LinearTest, TakesSeveralWeightsSideBySide) {
  for (const std::int64_t num_tokens : {1, 5, 40}) {
    expect_like_reference({.in = 96, .out_features = {64, 16, 16}}, num_tokens);
    expect_like_reference({.in = 96, .out_features = {64, 1, 33, 5}, .with_bias = true}, num_tokens);
  }
}

TEST_P(LinearTest, AddsToTheOutputWhenItAccumulates) {
  for (const std::int64_t num_tokens : {1, 20}) {
    expect_like_reference({.in = 70, .out_features = {50}, .accumulate = true}, num_tokens);
    expect_like_reference({.in = 70, .out_features = {50, 20}, .with_bias = true, .accumulate = true}, num_tokens);
  }
}

TEST_P(LinearTest, ReadsWeightsThatAreAlignedToAnElementOnly) {
  for (const std::int64_t num_tokens : {1, 20}) {
    expect_like_reference({.in = 130, .out_features = {70}, .offset_bytes = 4}, num_tokens);
    expect_like_reference({.in = 130, .out_features = {70}, .offset_bytes = 2 * size_of(dtype())}, num_tokens);
  }
}

TEST_P(LinearTest, JoinsWeightsThatLieBehindEachOther) {
  const std::vector<std::int64_t> rows = {16, 8, 40};
  constexpr std::int64_t kIn = 64;
  const TypedArray all(random_floats(64 * kIn, 1), dtype());
  const TypedArray bias(random_floats(64, 2), dtype());
  const auto at = [&](const TypedArray& array, std::int64_t element) {
    return static_cast<const std::byte*>(array.data()) + element * static_cast<std::int64_t>(size_of(dtype()));
  };
  const std::vector<WeightMatrix> weights = {{at(all, 0), dtype(), rows[0], kIn},
                                             {at(all, 16 * kIn), dtype(), rows[1], kIn},
                                             {at(all, 24 * kIn), dtype(), rows[2], kIn}};
  const std::vector<const void*> biases = {bias.data(), nullptr, at(bias, 24)};
  for (const std::int64_t num_tokens : {3, 30}) {
    SCOPED_TRACE(num_tokens);
    const std::vector<float> x = rounded_to(dtype(), random_floats(num_tokens * kIn, 3));
    std::vector<float> expected(static_cast<std::size_t>(num_tokens * 64));
    std::vector<float> actual = expected;
    LinearParams params{.x = x.data(),
                        .num_tokens = num_tokens,
                        .in = kIn,
                        .weights = weights,
                        .biases = biases,
                        .bias_dtype = dtype(),
                        .out = expected.data(),
                        .out_stride = 64};
    reference::linear(params);
    params.out = actual.data();
    run(params);
    expect_close(actual, expected, 5e-5, 1e-5);
  }
}

TEST_P(LinearTest, TakesWeightsOfDifferentTypesSideBySide) {
  constexpr std::int64_t kIn = 48;
  const TypedArray first(random_floats(20 * kIn, 1), dtype());
  const TypedArray second(random_floats(12 * kIn, 2), DType::f32);
  const std::vector<WeightMatrix> weights = {{first.data(), dtype(), 20, kIn}, {second.data(), DType::f32, 12, kIn}};
  for (const std::int64_t num_tokens : {1, 20}) {
    const std::vector<float> x = rounded_to(dtype(), random_floats(num_tokens * kIn, 3));
    std::vector<float> expected(static_cast<std::size_t>(num_tokens * 32));
    std::vector<float> actual = expected;
    LinearParams params{.x = x.data(),
                        .num_tokens = num_tokens,
                        .in = kIn,
                        .weights = weights,
                        .biases = {},
                        .out = expected.data(),
                        .out_stride = 32};
    reference::linear(params);
    params.out = actual.data();
    run(params);
    expect_close(actual, expected, 5e-5, 1e-5);
  }
}

TEST_P(LinearTest, GivesARowTheSameBitsAmongUpToTwoRowsAndToEightThatAreNotAligned) {
  for (const auto& [in, rows] : {std::pair<std::int64_t, std::int64_t>{523, 8}, {2048, kMaxExactRows}}) {
    LinearCase linear{.in = in, .out_features = {70, 33}, .dtype = dtype(), .with_bias = true};
    linear.fill();
    const std::int64_t stride = linear.columns() + 3;
    const std::vector<float> x = random_floats(rows * in, 4);
    const std::vector<float> all = run_on(runner_, linear, x);
    for (std::int64_t num_tokens = 1; num_tokens < rows; ++num_tokens) {
      SCOPED_TRACE(num_tokens);
      const std::int64_t first = rows - num_tokens;
      const std::vector<float> expected(all.begin() + first * stride, all.end());
      EXPECT_EQ(run_on(runner_, linear, std::span(x).subspan(static_cast<std::size_t>(first * in))), expected);
    }
  }
}

TEST_P(LinearTest, ReadsNarrowRowsLikeFloatsOfTheSameValues) {
  if (dtype() == DType::f32) return;
  for (const std::int64_t num_tokens : {1, 2, 3, 40}) {
    for (const std::int64_t in : {96, 131}) {
      SCOPED_TRACE(testing::Message() << num_tokens << " rows of " << in);
      LinearCase linear{.in = in, .out_features = {64, 16}, .dtype = dtype(), .with_bias = true, .accumulate = true};
      linear.fill();
      const std::vector<float> x = rounded_to(dtype(), random_floats(num_tokens * in, 9));
      const TypedArray narrow(x, dtype());
      const auto run_narrow = [&](LinearParams params) {
        params.x = nullptr;
        params.narrow_x = {const_cast<void*>(narrow.data()), dtype()};
        const Status status = runner_(params);
        ASSERT_EQ(status.has_value(), on_cuda());
        if (!on_cuda()) {
          EXPECT_EQ(status.error().code, ErrorCode::unsupported);
        }
      };
      const std::vector<float> actual = linear.multiply(x, run_narrow);
      if (on_cuda()) {
        EXPECT_EQ(actual, run_on(runner_, linear, x));
      }
    }
  }
}

class CpuLinearTest : public LinearTest {};

TEST_P(CpuLinearTest, GivesARowTheSameBitsInAnyBatchAndOnAnyNumberOfThreads) {
  LinearCase linear{.in = 523, .out_features = {130, 33}, .dtype = dtype(), .with_bias = true, .accumulate = true};
  linear.fill();
  constexpr std::int64_t kRows = 600;
  const std::int64_t stride = linear.columns() + 3;
  const std::vector<float> x = random_floats(kRows * linear.in, 4);
  const std::vector<float> all = run_on(runner_, linear, x);
  const OpRunner one_thread(backend(), 1);
  const OpRunner three_threads(backend(), 3);
  for (const std::int64_t num_tokens : {1, 2, 3, 5, 8, 9, 14, 15, 16, 17, 33, 35, 64, 96, 97, 257}) {
    SCOPED_TRACE(num_tokens);
    const std::int64_t first = 40;
    const auto some_x = std::span(x).subspan(static_cast<std::size_t>(first * linear.in),
                                             static_cast<std::size_t>(num_tokens * linear.in));
    const std::vector<float> expected(all.begin() + first * stride, all.begin() + (first + num_tokens) * stride);
    EXPECT_EQ(run_on(runner_, linear, some_x), expected);
    EXPECT_EQ(run_on(one_thread, linear, some_x), expected);
    EXPECT_EQ(run_on(three_threads, linear, some_x), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, LinearTest,
                         testing::Combine(testing::ValuesIn(testing_support::all_backends()),
                                          testing_support::kAllDTypes),
                         testing_support::backend_and_dtype_name);
INSTANTIATE_TEST_SUITE_P(Devices, CpuLinearTest,
                         testing::Combine(testing::ValuesIn(testing_support::cpu_backends()),
                                          testing_support::kAllDTypes),
                         testing_support::backend_and_dtype_name);

}  // namespace
}  // namespace pagoda::kernels
