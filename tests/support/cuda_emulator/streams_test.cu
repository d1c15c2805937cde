#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/ptx.cuh"
#include "tests/kernels/cuda/on_device.hpp"
#include "tests/support/cuda_emulator/cuda_emulator.hpp"

namespace pagoda::kernels::cuda {
namespace {

class CudaEmulatorStreams : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaStreamCreateWithFlags(&a_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&b_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaHostAlloc(&pinned_, sizeof(int) * 4, cudaHostAllocDefault), cudaSuccess);
  }
  void TearDown() override {
    cudaStreamDestroy(a_);
    cudaStreamDestroy(b_);
    cudaFreeHost(pinned_);
    cuda_emulator::reset();
    cuda_emulator::set_options({});
  }

  cudaStream_t a_ = nullptr;
  cudaStream_t b_ = nullptr;
  int* pinned_ = nullptr;
};

__global__ void add(int* value, int summand) {
  *value += summand;
}

[[maybe_unused]] __global__ void write_at(int* values, int index) {
  values[index] = 1;
}

TEST_F(CudaEmulatorStreams, WorkOfAStreamIsDoneInOrderAndLaterThanItsCall) {
  cuda_emulator::set_options({.delay_us = 2000});
  const OnDevice<int> value(std::vector<int>{0});
  pinned_[0] = 5;
  ASSERT_EQ(cudaMemcpyAsync(value.data(), pinned_, sizeof(int), cudaMemcpyDefault, a_), cudaSuccess);
  pinned_[0] = 7;  // races with the copy; the host writes first
  ASSERT_TRUE(launch("add", add, dim3(1), dim3(1), 0, a_, value.data(), 1));
  ASSERT_EQ(cudaMemcpyAsync(pinned_ + 1, value.data(), sizeof(int), cudaMemcpyDefault, a_), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(a_), cudaErrorNotReady);
  ASSERT_EQ(cudaStreamSynchronize(a_), cudaSuccess);
  EXPECT_EQ(pinned_[1], 8);
}

TEST_F(CudaEmulatorStreams, AStreamWaitsForTheEventOfAnother) {
  cuda_emulator::set_options({.delay_us = 2000});
  const OnDevice<int> value(std::vector<int>{0});
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  ASSERT_TRUE(launch("add", add, dim3(1), dim3(1), 0, a_, value.data(), 3));
  ASSERT_EQ(cudaEventRecord(event, a_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  ASSERT_EQ(cudaStreamWaitEvent(b_, event), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(pinned_, value.data(), sizeof(int), cudaMemcpyDefault, b_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(b_), cudaSuccess);
  EXPECT_EQ(pinned_[0], 3);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  cudaEventDestroy(event);
}

TEST_F(CudaEmulatorStreams, HostFunctionsRunInStreamOrder) {
  std::atomic<int> seen = 0;
  const OnDevice<int> value(std::vector<int>{0});
  ASSERT_TRUE(launch("add", add, dim3(1), dim3(1), 0, a_, value.data(), 3));
  struct Args {
    int* value;
    std::atomic<int>* seen;
  } args{value.data(), &seen};
  ASSERT_EQ(cudaLaunchHostFunc(
                a_,
                [](void* data) {
                  const auto* from = static_cast<Args*>(data);
                  *from->seen = *from->value;
                },
                &args),
            cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(a_), cudaSuccess);
  EXPECT_EQ(seen, 3);
}

TEST_F(CudaEmulatorStreams, ACapturedGraphRunsOnlyWhenItIsLaunchedAndAsOftenAsItIs) {
  const OnDevice<int> value(std::vector<int>{0});
  ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_TRUE(launch("add", add, dim3(1), dim3(1), 0, a_, value.data(), 1));
  ASSERT_TRUE(launch("add", add, dim3(1), dim3(1), 0, a_, value.data(), 10));
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(a_, &graph), cudaSuccess);
  EXPECT_EQ(value.read()[0], 0);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  cudaGraphDestroy(graph);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(cudaGraphLaunch(exec, a_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(a_), cudaSuccess);
  EXPECT_EQ(value.read()[0], 33);
  cudaGraphExecDestroy(exec);
}

TEST_F(CudaEmulatorStreams, WaitingOrAllocatingBreaksACapture) {
  for (const bool allocate : {false, true}) {
    ASSERT_EQ(cudaStreamBeginCapture(a_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    void* data = nullptr;
    EXPECT_EQ(allocate ? cudaMalloc(&data, 16) : cudaStreamSynchronize(a_), cudaErrorStreamCaptureUnsupported);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(a_, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
  }
}

TEST_F(CudaEmulatorStreams, CopiesOutsideOfAllocationsAndFromPageableMemoryAreRefused) {
  const OnDevice<int> values(std::vector<int>{1, 2});
  int pageable = 0;
  EXPECT_EQ(cudaMemcpyAsync(values.data(), pinned_, 3 * sizeof(int), cudaMemcpyDefault, a_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(&pageable, values.data(), sizeof(int), cudaMemcpyDefault, a_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(values.data() + 1, 0, 2 * sizeof(int), a_), cudaErrorInvalidValue);
}

TEST_F(CudaEmulatorStreams, FreshDeviceMemoryHoldsNaN) {
  const OnDevice<float> floats(std::size_t{8});
  for (const float value : floats.read()) EXPECT_TRUE(std::isnan(value));
  const OnDevice<int> integers(std::size_t{8});
  for (const int value : integers.read()) EXPECT_EQ(value, -1);
}

#if !defined(__SANITIZE_ADDRESS__)
TEST_F(CudaEmulatorStreams, AWriteOutsideOfAnAllocationIsFoundWhenTheHostWaits) {
  const OnDevice<int> values(std::size_t{4});
  for (const int index : {4, -1}) {
    ASSERT_TRUE(launch("write", write_at, dim3(1), dim3(1), 0, a_, values.data(), index));
    EXPECT_EQ(cudaStreamSynchronize(a_), cudaErrorIllegalAddress);
    EXPECT_NE(cuda_emulator::problem(), "");
    std::memset(values.data() + index, 0xDB, sizeof(int));  // the contents of a guard zone
    cuda_emulator::reset();
  }
}
#endif

template <bool with_wait>
__global__ void copy_and_read(const float* from, float* out) {
  __shared__ __align__(16) float tile[4];
  tile[0] = -1.0F;
  copy_async_16(tile, from);
  copy_async_commit();
  if constexpr (with_wait) copy_async_wait<0>();
  *out = tile[0];
}

TEST_F(CudaEmulatorStreams, AnAsynchronousCopyThatIsNotWaitedForHasNotArrived) {
  const OnDevice<float> from(std::vector<float>{5, 6, 7, 8});
  const OnDevice<float> out(std::size_t{1});
  ASSERT_TRUE(launch("copy", copy_and_read<true>, dim3(1), dim3(1), 0, nullptr, from.data(), out.data()));
  EXPECT_EQ(out.read()[0], 5.0F);
  ASSERT_TRUE(launch("copy", copy_and_read<false>, dim3(1), dim3(1), 0, nullptr, from.data(), out.data()));
  EXPECT_EQ(out.read()[0], -1.0F);
}

}  // namespace
}  // namespace pagoda::kernels::cuda
