#include <cstdint>

#include <gtest/gtest.h>

#include "kernels/cuda/attention_fragments.cuh"

namespace pagoda::kernels::cuda {
namespace {

// Compares the code for GPUs without the conversion instruction with the toolkit's own conversion.
TEST(HalvesOfE4m3, EveryPairHasTheBitsOfTheConversion) {
  constexpr std::uint32_t kNotANumber = 0x7FFF;
  const auto expected = [](std::uint32_t code) -> std::uint32_t {
    if ((code & 0x7FU) == 0x7FU) return kNotANumber;
    return __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(code), __NV_E4M3).x;
  };
  for (std::uint32_t two = 0; two < 0x10000U; ++two) {
    ASSERT_EQ(halves_of_e4m3(two), expected(two & 0xFFU) | expected(two >> 8) << 16) << two;
  }
}

}  // namespace
}  // namespace pagoda::kernels::cuda
