#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/ops.hpp"
#include "kernels/reference/reference_ops.hpp"
#include "tests/kernels/op_fixtures.hpp"

namespace pagoda::kernels {
namespace {

using testing_support::expect_close;
using testing_support::random_floats;
using testing_support::TypedArray;

class LayerNormTest : public testing_support::OpTest<testing_support::BackendAndDType> {
 protected:
  static std::vector<float> random_rows(std::int64_t count, std::uint32_t seed) {
    std::vector<float> values = random_floats(count, seed, 2.0F);
    for (float& value : values) value += 0.5F;
    return values;
  }
};

TEST_P(LayerNormTest, MatchesTheReferenceWithAndWithoutResidualWeightAndBias) {
  const DType dtype = std::get<1>(GetParam());
  for (const std::int64_t hidden : {1, 7, 16, 33, 768, 1027, 5000}) {
    for (const bool with_residual : {false, true}) {
      for (const bool affine : {false, true}) {
        SCOPED_TRACE(testing::Message() << hidden << " " << with_residual << " " << affine);
        constexpr std::int64_t kTokens = 5;
        const auto x = random_rows(kTokens * hidden, 1);
        const TypedArray weight(random_rows(hidden, 2), dtype);
        const TypedArray bias(random_rows(hidden, 3), DType::f32);
        auto residual = random_rows(kTokens * hidden, 4);
        auto expected_residual = residual;
        std::vector<float> out(x.size());
        std::vector<float> expected(x.size());
        LayerNormParams params{.x = x.data(),
                               .residual = with_residual ? residual.data() : nullptr,
                               .weight = affine ? weight.data() : nullptr,
                               .bias = affine ? bias.data() : nullptr,
                               .weight_dtype = dtype,
                               .out = out.data(),
                               .num_tokens = kTokens,
                               .hidden = hidden};
        run(params);
        params.residual = with_residual ? expected_residual.data() : nullptr;
        params.out = expected.data();
        reference::layer_norm(params);
        expect_close(out, expected, 2e-5, 0);
        EXPECT_EQ(residual, expected_residual);
      }
    }
  }
}

TEST_P(LayerNormTest, TheResultMayReplaceTheResidual) {
  const auto x = random_rows(66, 5);
  auto apart = random_rows(66, 6);
  auto replaced = apart;
  std::vector<float> out(66);
  LayerNormParams params{.x = x.data(), .residual = apart.data(), .out = out.data(), .num_tokens = 2, .hidden = 33};
  run(params);
  params.residual = params.out = replaced.data();
  run(params);
  EXPECT_EQ(replaced, out);
}

INSTANTIATE_TEST_SUITE_P(Devices, LayerNormTest,
                         testing::Combine(testing::ValuesIn(testing_support::all_backends()),
                                          testing_support::kAllDTypes),
                         testing_support::backend_and_dtype_name);

}  // namespace
}  // namespace pagoda::kernels
