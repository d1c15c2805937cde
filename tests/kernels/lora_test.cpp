#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/reference/reference_ops.hpp"
#include "tests/kernels/op_fixtures.hpp"

namespace pagoda::kernels {
namespace {

using testing_support::expect_close;
using testing_support::random_floats;
using testing_support::rounded_to;
using testing_support::TypedArray;

/// One adapter of a module [out_features, in], and the columns of out that the module has.
struct TestAdapter {
  std::int64_t rank = 0;
  std::int64_t first_column = 0;
  std::int64_t out_features = 0;
  bool with_factors = false;
  bool with_bias = false;
};

/// Rows of an adapter of a LoraCase.
struct TestRows {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  std::size_t adapter = 0;
};

/// The inputs of one lora call.
class LoraCase {
 public:
  static constexpr float kScale = 0.5F;

  LoraCase(std::int64_t in, std::int64_t out_stride, DType dtype, std::vector<TestAdapter> adapters)
      : in_(in), out_stride_(out_stride), dtype_(dtype), adapters_(std::move(adapters)) {
    for (const TestAdapter& adapter : adapters_) {
      const auto seed = static_cast<std::uint32_t>(10 * a_.size());
      const float spread = 1.0F / std::sqrt(static_cast<float>(in));
      const auto a = rounded_to(dtype, random_floats(adapter.rank * in, seed + 1, spread));
      const auto b = rounded_to(dtype, random_floats(adapter.out_features * adapter.rank, seed + 2));
      a_floats_.push_back(a);
      b_floats_.push_back(b);
      const std::int64_t panels = (adapter.out_features + kLoraPanel - 1) / kLoraPanel;
      std::vector<float> packed(static_cast<std::size_t>(panels * adapter.rank * kLoraPanel));
      for (std::int64_t n = 0; n < adapter.out_features; ++n) {
        for (std::int64_t r = 0; r < adapter.rank; ++r) {
          packed[static_cast<std::size_t>((n / kLoraPanel * adapter.rank + r) * kLoraPanel + n % kLoraPanel)] =
              b[static_cast<std::size_t>(n * adapter.rank + r)];
        }
      }
      a_.emplace_back(a, dtype);
      b_.emplace_back(packed, dtype);
      std::vector<float> transposed(a.size());
      for (std::int64_t i = 0; i < std::ssize(a); ++i) {
        transposed[static_cast<std::size_t>(i % in * adapter.rank + i / in)] = a[static_cast<std::size_t>(i)];
      }
      table_.emplace_back(transposed, dtype);
      factors_.push_back(random_floats(adapter.out_features, seed + 3));
      biases_.push_back(random_floats(adapter.out_features, seed + 4));
    }
  }

  std::vector<LoraItem> items(std::span<const TestRows> rows, bool of_tokens = false) const {
    std::vector<LoraItem> items;
    for (const TestRows& some : rows) {
      const TestAdapter& adapter = adapters_[some.adapter];
      items.push_back({.first_row = some.first_row,
                       .num_rows = some.num_rows,
                       .first_column = adapter.first_column,
                       .out_features = adapter.out_features,
                       .a = of_tokens ? table_[some.adapter].data() : a_[some.adapter].data(),
                       .b = b_[some.adapter].data(),
                       .dtype = dtype_,
                       .rank = adapter.rank,
                       .scale = kScale,
                       .factors = adapter.with_factors ? factors_[some.adapter].data() : nullptr,
                       .bias = adapter.with_bias ? biases_[some.adapter].data() : nullptr});
    }
    return items;
  }

  LoraParams params(std::span<const float> x, std::span<const LoraItem> items, std::vector<float>& out) const {
    return {.x = x.data(),
            .num_tokens = std::ssize(x) / in_,
            .in = in_,
            .items = items,
            .out = out.data(),
            .out_stride = out_stride_};
  }

  /// Computes out with the plain matrices, in double precision.
  std::vector<float> naive(std::span<const float> x, std::span<const TestRows> rows, std::vector<float> out) const {
    for (const TestRows& some : rows) {
      const TestAdapter& adapter = adapters_[some.adapter];
      for (std::int64_t row = some.first_row; row < some.first_row + some.num_rows; ++row) {
        for (std::int64_t n = 0; n < adapter.out_features; ++n) {
          double product = 0;
          for (std::int64_t r = 0; r < adapter.rank; ++r) {
            double dot = 0;
            for (std::int64_t k = 0; k < in_; ++k) {
              dot += double{a_floats_[some.adapter][static_cast<std::size_t>(r * in_ + k)]} *
                     x[static_cast<std::size_t>(row * in_ + k)];
            }
            product += dot * b_floats_[some.adapter][static_cast<std::size_t>(n * adapter.rank + r)];
          }
          float& to = out[static_cast<std::size_t>(row * out_stride_ + adapter.first_column + n)];
          const double factor = adapter.with_factors ? factors_[some.adapter][static_cast<std::size_t>(n)] : 1.0;
          const double bias = adapter.with_bias ? biases_[some.adapter][static_cast<std::size_t>(n)] : 0.0;
          to = static_cast<float>(factor * (to + double{kScale} * product) + bias);
        }
      }
    }
    return out;
  }

  std::int64_t out_stride() const { return out_stride_; }

 private:
  std::int64_t in_;
  std::int64_t out_stride_;
  DType dtype_;
  std::vector<TestAdapter> adapters_;
  std::vector<std::vector<float>> a_floats_;
  std::vector<std::vector<float>> b_floats_;
  std::deque<TypedArray> a_;
  std::deque<TypedArray> table_;
  std::deque<TypedArray> b_;
  std::vector<std::vector<float>> factors_;
  std::vector<std::vector<float>> biases_;
};

class LoraTest : public testing_support::OpTest<testing_support::BackendAndDType> {
 protected:
  DType dtype() const { return std::get<1>(GetParam()); }

  std::vector<float> run_case(const LoraCase& lora, std::span<const float> x, std::span<const TestRows> rows,
                              std::vector<float> out) const {
    const std::vector<LoraItem> items = lora.items(rows);
    run(lora.params(x, items, out));
    return out;
  }

  void expect_naive(const LoraCase& lora, std::int64_t in, std::int64_t num_rows,
                    std::span<const TestRows> rows) const {
    const std::vector<float> x = random_floats(num_rows * in, 5);
    const std::vector<float> before = random_floats(num_rows * lora.out_stride(), 6);
    const std::vector<float> expected = lora.naive(x, rows, before);
    expect_close(run_case(lora, x, rows, before), expected, 2e-4, 1e-5);
    std::vector<float> reference = before;
    const std::vector<LoraItem> items = lora.items(rows);
    reference::lora(lora.params(x, items, reference));
    expect_close(reference, expected, 1e-5, 1e-5);
  }
};

TEST_P(LoraTest, AddsTheLowRankProductForAnyRankAndShape) {
  for (const std::int64_t rank : {1, 2, 7, 8, 9, 64, 256}) {
    for (const std::int64_t in : {1, 15, 33, 70}) {
      for (const std::int64_t out : {1, 31, 32, 75}) {
        SCOPED_TRACE(testing::Message() << "rank " << rank << " [" << out << ", " << in << "]");
        const LoraCase lora(in, out + 2, dtype(), {{.rank = rank, .first_column = 1, .out_features = out}});
        expect_naive(lora, in, 6, std::vector<TestRows>{{0, 6, 0}});
      }
    }
  }
}

TEST_P(LoraTest, TakesSeveralAdaptersOfDifferentRanksAndModulesInAnyOrder) {
  const LoraCase lora(96, 160, dtype(),
                      {{.rank = 16, .out_features = 100},
                       {.rank = 3, .first_column = 100, .out_features = 60},
                       {.rank = 64, .first_column = 100, .out_features = 60},
                       {.rank = 1, .out_features = 100}});
  const std::vector<TestRows> rows{{20, 2, 3}, {0, 1, 0}, {0, 1, 1}, {1, 17, 2}, {1, 17, 0}, {20, 2, 2}, {19, 0, 1}};
  expect_naive(lora, 96, 23, rows);
}

TEST_P(LoraTest, TakesMoreItemsThanOneLaunchOfAKernel) {
  std::vector<TestAdapter> adapters;
  std::vector<TestRows> rows;
  for (std::int64_t i = 0; i < 70; ++i) {
    adapters.push_back({.rank = 1 + i % 5, .out_features = 40});
    rows.push_back({i, 1, static_cast<std::size_t>(i)});
  }
  expect_naive(LoraCase(24, 40, dtype(), adapters), 24, 70, rows);
}

TEST_P(LoraTest, ScalesTheBaseAndTheProductByFactorsAndAddsABias) {
  const LoraCase lora(40, 80, dtype(),
                      {{.rank = 4, .out_features = 40, .with_factors = true},
                       {.rank = 5, .first_column = 40, .out_features = 37, .with_factors = true, .with_bias = true},
                       {.rank = 0, .first_column = 40, .out_features = 37, .with_bias = true}});
  expect_naive(lora, 40, 9, std::vector<TestRows>{{0, 5, 0}, {2, 5, 1}, {7, 2, 2}});
}

TEST_P(LoraTest, FactorsChangeTheGivenProductsOfTheBase) {
  const LoraCase lora(40, 50, dtype(), {{.rank = 4, .out_features = 45, .with_factors = true}});
  constexpr std::int64_t kBaseStride = 47;
  const std::vector<float> x = random_floats(6 * 40, 5);
  const std::vector<float> base = random_floats(3 * kBaseStride, 8);
  const std::vector<float> residual = random_floats(6 * 50, 6);
  std::vector<LoraItem> items = lora.items(std::vector<TestRows>{{2, 3, 0}});
  items.front().base = base.data();
  items.front().base_stride = kBaseStride;
  // residual + base, of which the factors change the base alone.
  std::vector<float> out = residual;
  std::vector<float> expected(out.size());
  for (std::int64_t t = 0; t < 3; ++t) {
    for (std::int64_t n = 0; n < 45; ++n) {
      const auto at = static_cast<std::size_t>((t + 2) * 50 + n);
      expected[at] = base[static_cast<std::size_t>(t * kBaseStride + n)];
      out[at] += expected[at];
    }
  }
  expected = lora.naive(x, std::vector<TestRows>{{2, 3, 0}}, expected);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += residual[i];
  run(lora.params(x, items, out));
  expect_close(out, expected, 2e-4, 1e-5);
}

TEST_P(LoraTest, OfTokensGivesTheRowsThatUnitVectorsGive) {
  constexpr std::int64_t kVocab = 30;
  const LoraCase lora(kVocab, 48, dtype(), {{.rank = 9, .out_features = 48}, {.rank = 2, .out_features = 48}});
  const std::vector<std::int32_t> ids{7, 0, 29, 7, 3};
  std::vector<float> x(ids.size() * kVocab);
  for (std::size_t t = 0; t < ids.size(); ++t) x[t * kVocab + static_cast<std::size_t>(ids[t])] = 1.0F;
  const std::vector<TestRows> rows{{3, 2, 1}, {0, 2, 0}};
  const std::vector<float> before = random_floats(5 * 48, 6);
  const std::vector<float> expected = lora.naive(x, rows, before);
  for (const bool on_device : {false, true}) {
    std::vector<float> out = before;
    const std::vector<LoraItem> items = lora.items(rows, true);
    LoraParams params = lora.params(x, items, out);
    params.x = nullptr;
    params.token_ids = ids.data();
    if (on_device) {
      run(params);
    } else {
      reference::lora(params);
    }
    expect_close(out, expected, 1e-4, 1e-5);
  }
}

TEST_P(LoraTest, ReadsNarrowRowsWhereTheDeviceHasThem) {
  if (!on_cuda()) GTEST_SKIP() << "a CPU has no narrow rows";
  const LoraCase lora(40, 50, dtype(), {{.rank = 4, .out_features = 50}});
  for (const DType narrow : {DType::bf16, DType::f16}) {
    const std::vector<float> x = rounded_to(narrow, random_floats(3 * 40, 5));
    const TypedArray rows(x, narrow);
    const std::vector<float> before = random_floats(3 * 50, 6);
    std::vector<float> out = before;
    const std::vector<LoraItem> items = lora.items(std::vector<TestRows>{{0, 3, 0}});
    LoraParams params = lora.params(x, items, out);
    params.x = nullptr;
    params.narrow_x = {const_cast<void*>(rows.data()), narrow};
    run(params);
    expect_close(out, lora.naive(x, std::vector<TestRows>{{0, 3, 0}}, before), 2e-4, 1e-5);
  }
}

TEST_P(LoraTest, ARowDoesNotDependOnTheOtherRowsAndAdapters) {
  constexpr std::int64_t kIn = 333;
  constexpr std::int64_t kOut = 1100;
  constexpr std::int64_t kRows = 37;
  const LoraCase lora(kIn, kOut, dtype(),
                      {{.rank = 13, .out_features = kOut, .with_factors = true, .with_bias = true},
                       {.rank = 40, .out_features = kOut}});
  const std::vector<float> x = random_floats(kRows * kIn, 5);
  const std::vector<float> before = random_floats(kRows * kOut, 6);
  const auto together = run_case(lora, x, std::vector<TestRows>{{0, 30, 0}, {33, 4, 1}}, before);
  for (const std::int64_t row : {0, 3, 17, 28, 29, 31, 33, 36}) {
    const std::span<const float> alone_x(x.data() + row * kIn, kIn);
    const std::vector<float> alone_before(before.begin() + row * kOut, before.begin() + (row + 1) * kOut);
    std::vector<TestRows> rows;
    if (row < 30) rows.push_back({0, 1, 0});
    if (row >= 33) rows.push_back({0, 1, 1});
    const auto alone = run_case(lora, alone_x, rows, alone_before);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + row * kOut)) << "row " << row;
  }
}

INSTANTIATE_TEST_SUITE_P(AllBackends, LoraTest,
                         testing::Combine(testing::ValuesIn(testing_support::all_backends()),
                                          testing_support::kAllDTypes),
                         testing_support::backend_and_dtype_name);

}  // namespace
}  // namespace pagoda::kernels
