#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device_functions.cuh"
#include "kernels/cuda/launch.hpp"
#include "tests/kernels/cuda/on_device.hpp"
#include "tests/support/cuda_emulator/cuda_emulator.hpp"

namespace pagoda::kernels::cuda {
namespace {

class CudaEmulator : public ::testing::Test {
 protected:
  void TearDown() override {
    cuda_emulator::reset();
    cuda_emulator::set_options({});
  }

  /// Runs one block and waits for it.
  template <class... P, class... A>
  cudaError_t run(void (*kernel)(P...), int threads, A... args) {
    EXPECT_TRUE(launch("test", kernel, dim3(1), dim3(static_cast<unsigned>(threads)), 0, nullptr, args...));
    return cudaDeviceSynchronize();
  }
};

__global__ void write_indices(int* out) {
  const int block = static_cast<int>(blockIdx.x + gridDim.x * blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x + blockDim.x * threadIdx.y);
  out[block * static_cast<int>(blockDim.x * blockDim.y) + thread] = 1000 * block + thread;
}

TEST_F(CudaEmulator, EveryThreadOfEveryBlockRunsOnceInAnyOrder) {
  for (const std::uint64_t seed : {0, 1, 2}) {
    cuda_emulator::set_options({.seed = seed});
    const OnDevice<int> out(std::size_t{6 * 35});
    ASSERT_TRUE(launch("indices", write_indices, dim3(2, 3), dim3(7, 5), 0, nullptr, out.data()));
    const std::vector<int> values = out.read();
    for (int b = 0; b < 6; ++b) {
      for (int t = 0; t < 35; ++t) ASSERT_EQ(values[b * 35 + t], 1000 * b + t);
    }
  }
}

template <bool with_barrier>
__global__ void reverse(const int* in, int* out) {
  __shared__ int tile[64];
  tile[threadIdx.x] = in[threadIdx.x];
  if (with_barrier) __syncthreads();
  out[threadIdx.x] = tile[63 - threadIdx.x];
}

TEST_F(CudaEmulator, ABarrierMakesSharedMemoryVisibleAndItsLackShowsInSomeOrder) {
  std::vector<int> in(64);
  std::iota(in.begin(), in.end(), 0);
  const OnDevice<int> from(in);
  const std::vector<int> expected(in.rbegin(), in.rend());
  bool lack_was_seen = false;
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    cuda_emulator::set_options({.seed = seed});
    const OnDevice<int> good(std::size_t{64});
    const OnDevice<int> bad(std::size_t{64});
    ASSERT_EQ(run(reverse<true>, 64, from.data(), good.data()), cudaSuccess);
    EXPECT_EQ(good.read(), expected);
    ASSERT_EQ(run(reverse<false>, 64, from.data(), bad.data()), cudaSuccess);
    lack_was_seen = lack_was_seen || bad.read() != expected;
  }
  EXPECT_TRUE(lack_was_seen);
}

__global__ void wait_for_half_of_the_block() {
  if (threadIdx.x < 16) __syncwarp(0xFFFF);
  if (threadIdx.x < 16) {
    __syncthreads();
    __syncwarp();
  } else {
    __syncwarp();
    __syncthreads();
  }
}

TEST_F(CudaEmulator, ThreadsThatWaitForEachOtherInVainAreAnError) {
  EXPECT_EQ(run(wait_for_half_of_the_block, 32), cudaErrorLaunchFailure);
  EXPECT_NE(cuda_emulator::problem(), "");
  EXPECT_FALSE(launch("next", wait_for_half_of_the_block, dim3(1), dim3(32), 0, nullptr));
}

__global__ void leave_early(int* out) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  out[threadIdx.x] = static_cast<int>(__ballot_sync(kFullWarp, 1));
}

TEST_F(CudaEmulator, ThreadsThatHaveReturnedAreNotWaitedFor) {
  const OnDevice<int> out(std::size_t{40});
  ASSERT_EQ(run(leave_early, 64, out.data()), cudaSuccess);
  EXPECT_EQ(out.read()[0], -1);
  EXPECT_EQ(out.read()[39], 0xFF);
}

__global__ void shuffles(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = __shfl_sync(kFullWarp, lane, 5);
  out[32 + lane] = __shfl_xor_sync(kFullWarp, lane, 3);
  out[64 + lane] = __shfl_down_sync(kFullWarp, lane, 4U, 8);
  out[96 + lane] = __shfl_up_sync(kFullWarp, lane, 1U, 16);
  out[128 + lane] = static_cast<int>(__ballot_sync(kFullWarp, lane % 2));
  out[160 + lane] = __reduce_add_sync(kFullWarp, lane);
  out[192 + lane] = lane < 8 ? __shfl_sync(0xFFU, lane, 20) : __shfl_sync(0xFFFFFF00U, lane, 9);
}

TEST_F(CudaEmulator, ShufflesAndVotesFollowTheToolkitsRules) {
  for (const std::uint64_t seed : {0, 7}) {
    cuda_emulator::set_options({.seed = seed});
    const OnDevice<int> out(std::size_t{7 * 32});
    ASSERT_EQ(run(shuffles, 32, out.data()), cudaSuccess);
    const std::vector<int> v = out.read();
    for (int lane = 0; lane < 32; ++lane) {
      EXPECT_EQ(v[lane], 5);
      EXPECT_EQ(v[32 + lane], lane ^ 3);
      EXPECT_EQ(v[64 + lane], lane % 8 < 4 ? lane + 4 : lane);
      EXPECT_EQ(v[96 + lane], lane % 16 == 0 ? lane : lane - 1);
      EXPECT_EQ(v[128 + lane], static_cast<int>(0xAAAAAAAAU));
      EXPECT_EQ(v[160 + lane], 496);
      EXPECT_EQ(v[192 + lane], lane < 8 ? -1 : 9);  // lane 20 takes no part in the first mask
    }
  }
}

__global__ void different_collectives(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = lane < 16 ? __shfl_sync(kFullWarp, lane, 0) : static_cast<int>(__ballot_sync(kFullWarp, 1));
}

TEST_F(CudaEmulator, LanesOfOneMaskInDifferentCollectivesAreAnError) {
  const OnDevice<int> out(std::size_t{32});
  EXPECT_EQ(run(different_collectives, 32, out.data()), cudaErrorLaunchFailure);
}

__global__ void reductions(const float* in, float* out) {
  out[threadIdx.x] = block_sum<128>(in[threadIdx.x]);
  out[128 + threadIdx.x] = block_max<128>(in[threadIdx.x]);
  out[256 + threadIdx.x] = warp_sum<8>(in[threadIdx.x]);
}

TEST_F(CudaEmulator, ReductionsGiveEveryThreadTheResult) {
  std::vector<float> in(128);
  std::iota(in.begin(), in.end(), -100.0F);
  const OnDevice<float> from(in);
  for (const std::uint64_t seed : {0, 11}) {
    cuda_emulator::set_options({.seed = seed});
    const OnDevice<float> out(std::size_t{3 * 128});
    ASSERT_EQ(run(reductions, 128, from.data(), out.data()), cudaSuccess);
    const std::vector<float> v = out.read();
    for (int t = 0; t < 128; ++t) {
      EXPECT_EQ(v[t], std::accumulate(in.begin(), in.end(), 0.0F));
      EXPECT_EQ(v[128 + t], 27.0F);
      EXPECT_EQ(v[256 + t], std::accumulate(in.begin() + t / 8 * 8, in.begin() + t / 8 * 8 + 8, 0.0F));
    }
  }
}

__global__ void add_to(float* sum, unsigned* count) {
  atomicAdd(sum, 0.5F);
  atomicAdd(count, 1);
}

TEST_F(CudaEmulator, AtomicsAddUp) {
  const OnDevice<float> sum(std::vector<float>{1.0F});
  const OnDevice<unsigned> count(std::vector<unsigned>{0});
  ASSERT_TRUE(launch("add", add_to, dim3(10), dim3(100), 0, nullptr, sum.data(), count.data()));
  EXPECT_EQ(sum.read()[0], 501.0F);
  EXPECT_EQ(count.read()[0], 1000U);
}

__global__ void use_shared(float* out, int floats) {
  PAGODA_DYNAMIC_SHARED(float, memory);
  for (int i = static_cast<int>(threadIdx.x); i < floats; i += static_cast<int>(blockDim.x)) {
    if (!isnan(memory[i])) __trap();  // the memory is filled anew for each block
    memory[i] = static_cast<float>(i);
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = memory[floats - 1];
}

TEST_F(CudaEmulator, DynamicSharedMemoryIsFreshForEachBlockAndMayBeLarge) {
  const OnDevice<float> out(std::size_t{3});
  constexpr int kFloats = 50000;
  ASSERT_TRUE(launch("shared", use_shared, dim3(3), dim3(32), kFloats * sizeof(float), nullptr, out.data(), kFloats));
  EXPECT_EQ(out.read(), std::vector<float>(3, kFloats - 1));
  EXPECT_FALSE(launch("shared", use_shared, dim3(3), dim3(32), std::size_t{240} << 10, nullptr, out.data(), 1));
}

TEST_F(CudaEmulator, AShapeTheDeviceCannotRunIsRefused) {
  EXPECT_FALSE(launch("big", wait_for_half_of_the_block, dim3(1), dim3(1025), 0, nullptr));
  EXPECT_FALSE(launch("tall", wait_for_half_of_the_block, dim3(1, 65536), dim3(32), 0, nullptr));
  EXPECT_TRUE(launch("empty", wait_for_half_of_the_block, dim3(0), dim3(32), 0, nullptr));
}

__global__ void trap_in_one() {
  if (threadIdx.x == 3) __trap();
  __syncthreads();
}

TEST_F(CudaEmulator, ATrapEndsTheKernelWithAnErrorThatNamesTheThread) {
  EXPECT_EQ(run(trap_in_one, 32), cudaErrorLaunchFailure);
  EXPECT_EQ(cuda_emulator::problem(), "a thread executed a trap (block 0,0,0, thread 3,0,0)");
}

}  // namespace
}  // namespace pagoda::kernels::cuda
