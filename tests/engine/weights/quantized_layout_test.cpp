#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/weights/loaded_weights.hpp"
#include "kernels/quantized.hpp"
#include "tests/engine/weights/wave_weights.hpp"

namespace pagoda::weights {
namespace {

/// Adds bytes to a hash (FNV-1a).
void add(std::uint64_t& hash, const void* data, std::int64_t bytes) {
  const auto* const all = static_cast<const std::uint8_t*>(data);
  for (std::int64_t i = 0; i < bytes; ++i) hash = (hash ^ all[i]) * 0x100000001B3U;
}

// Files of packed weights are read by later builds. If this test fails, the layout of panels or the rounding has
// changed: raise kQuantizedLayoutVersion, and put the new hashes here.
TEST(QuantizedLayout, IsThatOfItsVersion) {
  ASSERT_EQ(kernels::kQuantizedLayoutVersion, 1);
  const auto device = kernels::create_cpu_device({1, "", "none"}).value();
  const std::vector<std::pair<std::string, std::vector<std::uint64_t>>> expected{{"int8", {0, 0, 0, 0}},
                                                                                 {"int4", {0, 0, 0, 0}}};
  for (const auto& [quantize, hashes] : expected) {
    test::WaveWeights stored;
    const LoadedWeights loaded(stored, weight_policy("auto", quantize), device);
    std::vector<std::uint64_t> found;
    for (const std::string module : {"q_proj", "lm_head", "v_proj", "layers.2.mlp.down_proj"}) {
      auto& values = stored.values(module + ".weight");
      for (int i = 0; i < 40 * 512; ++i) values.push_back(static_cast<float>(i * 7919 % 211 - 105) / 64);
      const auto linear = loaded.linear(module, 40, 512).value();
      const auto& matrix = linear.quantized->matrix;
      std::uint64_t& hash = found.emplace_back(0xCBF29CE484222325U);
      add(hash, matrix.data, matrix.data_bytes());
      add(hash, matrix.scales, matrix.scale_bytes());
      add(hash, matrix.mins, matrix.min_bytes());
      add(hash, matrix.factors, matrix.factor_bytes());
    }
    EXPECT_EQ(found, hashes) << quantize;
  }
}

}  // namespace
}  // namespace pagoda::weights
