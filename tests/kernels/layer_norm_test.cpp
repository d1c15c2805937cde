#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/ops.hpp"
#include "kernels/reference/reference_ops.hpp"

namespace pagoda::kernels {
namespace {

std::vector<float> random_floats(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.5F, 2.0F);
  std::vector<float> values(count);
  for (auto& value : values) value = normal(random);
  return values;
}

TEST(LayerNorm, TheCpuOpGivesWhatTheReferenceGives) {
  const auto device = create_cpu_device({.num_threads = 2, .isa = ""});
  ASSERT_TRUE(device) << device.error().message;
  const auto stream = (*device)->create_stream("test");
  ASSERT_TRUE(stream);
  for (const std::int64_t hidden : {1, 7, 16, 33, 768, 1027}) {
    for (const bool with_residual : {false, true}) {
      for (const bool affine : {false, true}) {
        constexpr std::int64_t kTokens = 5;
        const auto size = static_cast<std::size_t>(kTokens * hidden);
        const auto x = random_floats(size, 1);
        const auto weight = random_floats(static_cast<std::size_t>(hidden), 2);
        const auto bias = random_floats(static_cast<std::size_t>(hidden), 3);
        auto residual = random_floats(size, 4);
        auto expected_residual = residual;
        std::vector<float> out(size);
        std::vector<float> expected(size);
        LayerNormParams params{.x = x.data(),
                               .residual = with_residual ? residual.data() : nullptr,
                               .weight = affine ? weight.data() : nullptr,
                               .bias = affine ? bias.data() : nullptr,
                               .out = out.data(),
                               .num_tokens = kTokens,
                               .hidden = hidden};
        Status status;
        (*stream)->submit([&] { status = (*device)->ops().layer_norm(**stream, params); });
        (*stream)->synchronize();
        ASSERT_TRUE(status) << status.error().message;
        params.residual = with_residual ? expected_residual.data() : nullptr;
        params.out = expected.data();
        reference::layer_norm(params);
        for (std::size_t i = 0; i < size; ++i) EXPECT_NEAR(out[i], expected[i], 2e-5) << hidden << " element " << i;
        EXPECT_EQ(residual, expected_residual);
      }
    }
  }
}

TEST(LayerNorm, TheResultMayReplaceTheResidual) {
  const auto device = create_cpu_device({.num_threads = 1, .isa = ""});
  ASSERT_TRUE(device);
  const auto stream = (*device)->create_stream("test");
  ASSERT_TRUE(stream);
  const auto x = random_floats(66, 5);
  auto apart = random_floats(66, 6);
  auto replaced = apart;
  std::vector<float> out(66);
  LayerNormParams params{.x = x.data(), .residual = apart.data(), .out = out.data(), .num_tokens = 2, .hidden = 33};
  Status status;
  (*stream)->submit([&] {
    status = (*device)->ops().layer_norm(**stream, params);
    params.residual = params.out = replaced.data();
    if (status) status = (*device)->ops().layer_norm(**stream, params);
  });
  (*stream)->synchronize();
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(replaced, out);
}

}  // namespace
}  // namespace pagoda::kernels
