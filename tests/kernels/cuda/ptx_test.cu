#include <cstdint>
#include <numeric>
#include <random>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/cuda_device.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ptx.cuh"
#include "tests/kernels/cuda/on_device.hpp"

// The layouts of the PTX ISA ("Matrix Fragments for mma.m16n8k16 with floating point type", "... mma.m16n8k32"),
// written out element by element and compared with plain products.
namespace pagoda::kernels::cuda {
namespace {

class Ptx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  }

  template <class... P, class... A>
  static void run_warp(void (*kernel)(P...), A... args) {
    ASSERT_TRUE(launch("test", kernel, dim3(1), dim3(32), 0, nullptr, args...));
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
};

/// Returns small integers, which are exact in every type and sum.
std::vector<float> small_integers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 9) - 4);
  return values;
}

/// Returns a[m][k] b[k][n] + c[m][n]; all matrices are row-major.
std::vector<float> product(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& c,
                           int depth) {
  std::vector<float> d(c);
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 8; ++n) {
      for (int k = 0; k < depth; ++k) d[m * 8 + n] += a[m * depth + k] * b[k * 8 + n];
    }
  }
  return d;
}

template <class T>
__global__ void multiply_16(const float* a, const float* b, const float* c, float* d) {
  const int g = static_cast<int>(threadIdx.x) / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
  const auto pair = [](float low, float high) {
    const Pack<T, 2> pack{{from_float<T>(low), from_float<T>(high)}};
    return *reinterpret_cast<const std::uint32_t*>(&pack);
  };
  const auto pair_of_a = [&](int row, int column) { return pair(a[row * 16 + column], a[row * 16 + column + 1]); };
  const auto pair_of_b = [&](int row, int column) { return pair(b[row * 8 + column], b[(row + 1) * 8 + column]); };
  const std::uint32_t fragment_a[4] = {pair_of_a(g, 2 * t), pair_of_a(g + 8, 2 * t), pair_of_a(g, 2 * t + 8),
                                       pair_of_a(g + 8, 2 * t + 8)};
  const std::uint32_t fragment_b[2] = {pair_of_b(2 * t, g), pair_of_b(2 * t + 8, g)};
  float sums[4] = {c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1], c[(g + 8) * 8 + 2 * t], c[(g + 8) * 8 + 2 * t + 1]};
  mma_m16n8k16<T>(sums, fragment_a, fragment_b, sums);
  d[g * 8 + 2 * t] = sums[0];
  d[g * 8 + 2 * t + 1] = sums[1];
  d[(g + 8) * 8 + 2 * t] = sums[2];
  d[(g + 8) * 8 + 2 * t + 1] = sums[3];
}

TEST_F(Ptx, MmaOf16BitFloatsIsTheProductInTheDocumentedLayout) {
  const std::vector<float> a = small_integers(16 * 16, 1);
  const std::vector<float> b = small_integers(16 * 8, 2);
  const std::vector<float> c = small_integers(16 * 8, 3);
  const OnDevice<float> on_a(a), on_b(b), on_c(c), half(std::size_t{128}), bfloat(std::size_t{128});
  run_warp(multiply_16<__half>, on_a.data(), on_b.data(), on_c.data(), half.data());
  run_warp(multiply_16<__nv_bfloat16>, on_a.data(), on_b.data(), on_c.data(), bfloat.data());
  EXPECT_EQ(half.read(), product(a, b, c, 16));
  EXPECT_EQ(bfloat.read(), product(a, b, c, 16));
}

__global__ void multiply_32(const float* a, const float* b, const float* c, float* d) {
  const int g = static_cast<int>(threadIdx.x) / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
  const auto four_of_a = [&](int row, int column) {
    std::uint32_t bytes = 0;
    for (int i = 0; i < 4; ++i) {
      bytes |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(static_cast<int>(a[row * 32 + column + i])))
               << 8 * i;
    }
    return bytes;
  };
  const auto four_of_b = [&](int row, int column) {
    std::uint32_t bytes = 0;
    for (int i = 0; i < 4; ++i) {
      bytes |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(static_cast<int>(b[(row + i) * 8 + column])))
               << 8 * i;
    }
    return bytes;
  };
  const std::uint32_t fragment_a[4] = {four_of_a(g, 4 * t), four_of_a(g + 8, 4 * t), four_of_a(g, 4 * t + 16),
                                       four_of_a(g + 8, 4 * t + 16)};
  const std::uint32_t fragment_b[2] = {four_of_b(4 * t, g), four_of_b(4 * t + 16, g)};
  std::int32_t sums[4];
  for (int r = 0; r < 4; ++r) sums[r] = static_cast<std::int32_t>(c[(g + r / 2 * 8) * 8 + 2 * t + r % 2]);
  mma_m16n8k32_s8(sums, fragment_a, fragment_b, sums);
  for (int r = 0; r < 4; ++r) d[(g + r / 2 * 8) * 8 + 2 * t + r % 2] = static_cast<float>(sums[r]);
}

TEST_F(Ptx, MmaOf8BitIntegersIsTheProductInTheDocumentedLayout) {
  const std::vector<float> a = small_integers(16 * 32, 4);
  const std::vector<float> b = small_integers(32 * 8, 5);
  const std::vector<float> c = small_integers(16 * 8, 6);
  const OnDevice<float> on_a(a), on_b(b), on_c(c), d(std::size_t{128});
  run_warp(multiply_32, on_a.data(), on_b.data(), on_c.data(), d.data());
  EXPECT_EQ(d.read(), product(a, b, c, 32));
}

template <bool transposed, int matrices>
__global__ void load(const std::uint16_t* from, std::uint16_t* out) {
  __shared__ __align__(16) std::uint16_t tile[4][8][8];
  for (int i = static_cast<int>(threadIdx.x); i < 4 * 64; i += 32) tile[i / 64][i / 8 % 8][i % 8] = from[i];
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x) % (8 * matrices);
  std::uint32_t registers[matrices];
  load_matrices<transposed>(registers, tile[row / 8][row % 8]);
  for (int m = 0; m < matrices; ++m) {
    out[(m * 32 + threadIdx.x) * 2] = static_cast<std::uint16_t>(registers[m]);
    out[(m * 32 + threadIdx.x) * 2 + 1] = static_cast<std::uint16_t>(registers[m] >> 16);
  }
}

TEST_F(Ptx, LoadMatricesSpreadsRowsOrColumnsOverTheLanes) {
  std::vector<std::uint16_t> values(4 * 64);
  std::iota(values.begin(), values.end(), std::uint16_t{0});
  const OnDevice<std::uint16_t> from(values);
  const auto check = [&](auto kernel, int matrices, bool transposed) {
    const OnDevice<std::uint16_t> out(static_cast<std::size_t>(matrices) * 64);
    run_warp(kernel, from.data(), out.data());
    const auto got = out.read();
    for (int m = 0; m < matrices; ++m) {
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 2; ++i) {
          const int row = transposed ? lane % 4 * 2 + i : lane / 4;
          const int column = transposed ? lane / 4 : lane % 4 * 2 + i;
          ASSERT_EQ(got[(m * 32 + lane) * 2 + i], m * 64 + row * 8 + column) << m << " " << lane << " " << i;
        }
      }
    }
  };
  check(load<false, 4>, 4, false);
  check(load<true, 4>, 4, true);
  check(load<false, 2>, 2, false);
  check(load<true, 2>, 2, true);
}

__global__ void copy_in_groups(const float* from, float* out, int valid_bytes) {
  __shared__ __align__(16) float tile[2][32][4];
  for (int stage = 0; stage < 2; ++stage) {
    copy_async_16(tile[stage][threadIdx.x], from + (stage * 32 + threadIdx.x) * 4, valid_bytes);
    copy_async_commit();
  }
  copy_async_wait<1>();
  __syncthreads();
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = tile[0][31 - threadIdx.x][i];
  copy_async_wait<0>();
  __syncthreads();
  for (int i = 0; i < 4; ++i) out[128 + threadIdx.x * 4 + i] = tile[1][31 - threadIdx.x][i];
}

TEST_F(Ptx, AsynchronousCopiesArriveByGroupsAndFillUpWithZeros) {
  std::vector<float> values(256);
  std::iota(values.begin(), values.end(), 1.0F);
  const OnDevice<float> from(values);
  for (const int valid_bytes : {16, 8, 0}) {
    const OnDevice<float> out(std::size_t{256});
    run_warp(copy_in_groups, from.data(), out.data(), valid_bytes);
    const auto got = out.read();
    for (int stage = 0; stage < 2; ++stage) {
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) {
          const float expected = 4 * i < valid_bytes ? values[(stage * 32 + 31 - lane) * 4 + i] : 0.0F;
          ASSERT_EQ(got[stage * 128 + lane * 4 + i], expected);
        }
      }
    }
  }
}

}  // namespace
}  // namespace pagoda::kernels::cuda
