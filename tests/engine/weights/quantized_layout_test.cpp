#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/weights/loaded_weights.hpp"
#include "kernels/quantized_pack.hpp"
#include "tests/engine/weights/wave_weights.hpp"

namespace pagoda::weights {
namespace {

constexpr std::uint64_t kStart = 0xCBF29CE484222325U;

/// Adds bytes to a hash (FNV-1a).
void add(std::uint64_t& hash, const void* data, std::int64_t bytes) {
  const auto* const all = static_cast<const std::uint8_t*>(data);
  for (std::int64_t i = 0; i < bytes; ++i) hash = (hash ^ all[i]) * 0x100000001B3U;
}

// Files of packed weights are read by later builds. If this test fails, the layout of panels or the rounding has
// changed: raise kQuantizedLayoutVersion, and put the new hashes here.
TEST(QuantizedLayout, IsThatOfItsVersion) {
  ASSERT_EQ(kernels::kQuantizedLayoutVersion, 2);
  const auto device = kernels::create_cpu_device({1, "", "none"}).value();
  struct Case {
    std::string quantize;
    std::string module;
    std::uint64_t hash = 0;
  };
  for (const auto& [quantize, module, expected] : {Case{"int8", "q_proj", 17262529049748719175U},
                                                   {"int4", "q_proj", 11763022643190285527U},
                                                   {"int4", "lm_head", 11079941568012905438U}}) {
    test::WaveWeights stored;
    const LoadedWeights loaded(stored, weight_policy("auto", quantize), device);
    auto& values = stored.values(module + ".weight");
    for (int i = 0; i < 40 * 512; ++i) values.push_back(static_cast<float>(i * 7919 % 211 - 105) / 64);
    const auto linear = loaded.linear(module, 40, 512).value();
    const auto& matrix = linear.quantized->matrix;
    std::uint64_t hash = kStart;
    add(hash, matrix.data, matrix.data_bytes());
    add(hash, matrix.scales, matrix.scale_bytes());
    add(hash, matrix.mins, matrix.min_bytes());
    add(hash, matrix.factors, matrix.factor_bytes());
    EXPECT_EQ(hash, expected) << quantize << " " << module;
  }
}

TEST(QuantizedLayout, OfPackedIntegersIsThatOfItsVersion) {
  const std::pair<int, std::uint64_t> expected[] = {{2, 17815826697757393365U}, {3, 4352978823413615429U},
                                                    {4, 162395048207650565U},   {5, 17607685788172503421U},
                                                    {6, 8820115878215812429U},  {8, 14413586251372039269U}};
  for (const auto& [bits, hash_of_bits] : expected) {
    std::vector<std::uint8_t> q(64);
    const std::vector<Float16> scales(2, to_f16(0.5F));
    for (std::size_t k = 0; k < q.size(); ++k) q[k] = static_cast<std::uint8_t>(k * 37 % (1U << bits));
    const kernels::QuantizedRow row{q.data(), scales.data()};
    const std::vector<kernels::QuantizedRow> rows(3, row);
    const kernels::QuantizedMatrix shape{nullptr, nullptr, 3, 64, {.bits = bits, .group_size = 32}};
    std::vector<std::uint8_t> data(static_cast<std::size_t>(shape.data_bytes()));
    std::vector<Float16> stored(static_cast<std::size_t>(shape.panel_scales()));
    kernels::pack_panel(shape, rows, {data.data(), stored.data()});
    std::uint64_t hash = kStart;
    add(hash, data.data(), std::ssize(data));
    EXPECT_EQ(hash, hash_of_bits) << bits;
  }
}

}  // namespace
}  // namespace pagoda::weights
