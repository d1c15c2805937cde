#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/cuda_device.hpp"
#include "kernels/cuda/cuda_stream.hpp"
#include "kernels/cuda/float8_linear.hpp"
#include "kernels/dtype.hpp"
#include "tests/kernels/cuda/on_device.hpp"

namespace pagoda::kernels::cuda {
namespace {

template <class T, class Make>
std::vector<T> random_values(std::size_t count, std::uint32_t seed, const Make& make) {
  std::mt19937 random(seed);
  std::normal_distribution<float> value;
  std::vector<T> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(make(value(random)));
  return values;
}

TEST(Float8Linear, IsTheSameInPassesOfAnySize) {
  constexpr std::int64_t kIn = 64;
  constexpr std::int64_t kOut = 300;
  constexpr std::int64_t kTokens = 290;
  auto device = create_cuda_device(0);
  if (!device) GTEST_SKIP() << device.error().message;
  const auto stream = (*device)->create_stream("test").value();
  const OnDevice<Float8E4M3> weights(random_values<Float8E4M3>(kOut * kIn, 1, to_fp8_e4m3));
  const OnDevice<float> x(random_values<float>(kTokens * kIn, 2, [](float v) { return v; }));
  // Blocks of 24 rows do not end where a pass of 128 rows ends.
  const OnDevice<float> scales(random_values<float>((kOut + 23) / 24 * 2, 3, [](float v) { return 0.1F + v * v; }));
  const std::vector<WeightMatrix> matrices{{.data = weights.data(),
                                            .dtype = DType::fp8_e4m3,
                                            .rows = kOut,
                                            .columns = kIn,
                                            .scales = scales.data(),
                                            .scale_rows = 24,
                                            .scale_columns = 32}};
  const auto multiply = [&](std::size_t max_bytes) {
    const OnDevice<float> out(static_cast<std::size_t>(kTokens * kOut));
    LinearParams p;
    p.x = x.data();
    p.num_tokens = kTokens;
    p.in = kIn;
    p.weights = matrices;
    p.out = out.data();
    p.out_stride = kOut;
    Status status;
    stream->submit([&] { status = float8_linear(cuda_stream(*stream), p, max_bytes); });
    stream->synchronize();
    EXPECT_TRUE(status && stream->status());
    return out.read();
  };
  const std::vector<float> whole = multiply(kMaxScratchBytes);
  const std::vector<float> in_passes = multiply(128 * kIn * 2);
  for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(in_passes[i], whole[i], 1e-4) << i;
  // Computes row 299, which is in the last pass, by hand.
  const std::vector<Float8E4M3> w = weights.read();
  const std::vector<float> rows = x.read();
  const std::vector<float> s = scales.read();
  float sum = 0;
  for (std::int64_t k = 0; k < kIn; ++k) {
    const float weight =
        to_float(w[static_cast<std::size_t>(299 * kIn + k)]) * s[static_cast<std::size_t>(24 + k / 32)];
    sum += to_float(to_bf16(weight)) * to_float(to_bf16(rows[static_cast<std::size_t>(289 * kIn + k)]));
  }
  EXPECT_NEAR(in_passes.back(), sum, 1e-3);
}

}  // namespace
}  // namespace pagoda::kernels::cuda
