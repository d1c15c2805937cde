#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/cuda_device.hpp"
#include "kernels/cuda/cuda_stream.hpp"
#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/move_blocks.hpp"
#include "kernels/ops.hpp"
#ifdef PAGODA_CUDA_EMULATED
#include "tests/support/cuda_emulator/cuda_emulator.hpp"
#endif

namespace pagoda::kernels::cuda {
namespace {

using ::testing::HasSubstr;

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device on this machine";
    device_ = create_cuda_device(0).value();
    stream_ = device_->create_stream("test").value();
  }
  void TearDown() override {
    stream_.reset();
#ifdef PAGODA_CUDA_EMULATED
    cuda_emulator::reset();
    cuda_emulator::set_options({});
#endif
  }

  CudaStream& cuda() {
    return cuda_stream(*stream_);
  }
  Buffer memory(std::size_t bytes, MemoryKind kind) {
    return device_->allocate(bytes, kind).value();
  }
  int read(const Buffer& value) {
    const Buffer host = memory(sizeof(int), MemoryKind::host);
    EXPECT_TRUE(device_->ops().copy(*stream_, {value.data(), host.data(), sizeof(int)}));
    stream_->synchronize();
    return *host.as<int>();
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

__global__ void add(int* value, int summand) {
  atomicAdd(value, summand);
}

TEST_F(CudaDeviceTest, SaysWhatItIs) {
  EXPECT_EQ(device_->kind(), DeviceKind::cuda);
  EXPECT_THAT(device_->description(), ::testing::MatchesRegex("cuda 0: .*, [0-9]+ GiB, sm_[0-9]+"));
  EXPECT_GT(device_->available_bytes(MemoryKind::device), 0U);
  EXPECT_GT(device_->available_bytes(MemoryKind::host), 0U);
}

TEST_F(CudaDeviceTest, AnUnknownDeviceIsUnsupported) {
  const auto device = create_cuda_device(99);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::unsupported);
  EXPECT_THAT(device.error().message, HasSubstr("CUDA device 99"));
}

TEST_F(CudaDeviceTest, MemoryIsZeroed) {
  const Buffer value = memory(sizeof(int), MemoryKind::device);
  EXPECT_EQ(read(value), 0);
  const Buffer host = memory(100, MemoryKind::host);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(host.as<char>()[i], 0);
  EXPECT_EQ(memory(0, MemoryKind::device).data(), nullptr);
}

TEST_F(CudaDeviceTest, AskingForTooMuchSaysHowMuchAndWhatToLower) {
  const auto buffer = device_->allocate(std::size_t{1} << 50, MemoryKind::device);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(buffer.error().message, HasSubstr("1125899906842624 bytes"));
  EXPECT_THAT(buffer.error().message, HasSubstr("--gpu-memory-utilization"));
  EXPECT_TRUE(stream_->status()) << "running out of memory is no error of the stream";
}

TEST_F(CudaDeviceTest, CallbacksRunInOrderBehindTheWork) {
  const Buffer value = memory(sizeof(int), MemoryKind::device);
  std::vector<int> calls;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(launch("add", add, dim3(1), dim3(1), 0, cuda().get(), value.as<int>(), 1));
    stream_->on_complete([&calls, i] { calls.push_back(i); });
  }
  stream_->synchronize();
  EXPECT_EQ(calls, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(read(value), 5);
}

TEST_F(CudaDeviceTest, EventsOrderStreams) {
  const auto other = device_->create_stream("other").value();
  const Buffer value = memory(sizeof(int), MemoryKind::device);
  const Buffer host = memory(sizeof(int), MemoryKind::host);
  ASSERT_TRUE(launch("add", add, dim3(100), dim3(32), 0, cuda().get(), value.as<int>(), 1));
  const auto event = stream_->record();
  other->wait(event);
  ASSERT_TRUE(device_->ops().copy(*other, {value.data(), host.data(), sizeof(int)}));
  other->synchronize();
  EXPECT_TRUE(event->finished());
  EXPECT_EQ(*host.as<int>(), 3200);
}

TEST_F(CudaDeviceTest, ReplayIssuesDirectlyThenRecordsThenReplays) {
  const Buffer value = memory(sizeof(int), MemoryKind::device);
  int issued = 0;
  const auto issue = [&]() -> Status {
    ++issued;
    Status status = launch("add", add, dim3(1), dim3(1), 0, cuda().get(), value.as<int>(), 1);
    if (status) status = launch("add", add, dim3(1), dim3(1), 0, cuda().get(), value.as<int>(), 10);
    return status;
  };
  for (int i = 1; i <= 5; ++i) {
    ASSERT_TRUE(stream_->replay(7, issue));
    EXPECT_EQ(read(value), 11 * i);
  }
  EXPECT_EQ(issued, 2);
}

TEST_F(CudaDeviceTest, AFailureWhileRecordingIsReturnedAndTheNextCallRecordsAgain) {
  const Buffer value = memory(sizeof(int), MemoryKind::device);
  bool fails = false;
  const auto issue = [&]() -> Status {
    Status status = launch("add", add, dim3(1), dim3(1), 0, cuda().get(), value.as<int>(), 1);
    if (fails) return fail(ErrorCode::internal, "a wrong shape");
    return status;
  };
  ASSERT_TRUE(stream_->replay(1, issue));
  fails = true;
  const Status failed = stream_->replay(1, issue);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "a wrong shape");
  EXPECT_EQ(read(value), 1);
  fails = false;
  for (int i = 2; i <= 4; ++i) {
    ASSERT_TRUE(stream_->replay(1, issue));
    EXPECT_EQ(read(value), i);
  }
}

TEST_F(CudaDeviceTest, WhatCannotBeRecordedIsAnErrorAndLeavesTheStreamUsable) {
  const auto stages = [&]() -> Status {
    const auto staged = cuda().stage(64);
    return staged ? Status() : fail(staged.error());
  };
  ASSERT_TRUE(stream_->replay(1, stages));
  EXPECT_FALSE(stream_->replay(1, stages));
  std::size_t bytes = 1000;
  const auto grows = [&]() -> Status {
    const auto scratch = cuda().scratch(bytes *= 100);
    return scratch ? Status() : fail(scratch.error());
  };
  ASSERT_TRUE(stream_->replay(2, grows));
  EXPECT_FALSE(stream_->replay(2, grows));
  EXPECT_TRUE(stream_->status());
  const Buffer value = memory(sizeof(int), MemoryKind::device);
  EXPECT_EQ(read(value), 0);
}

TEST_F(CudaDeviceTest, StagedMemoryIsNotReusedWhileItsWorkIsUnderWay) {
#ifdef PAGODA_CUDA_EMULATED
  cuda_emulator::set_options({.delay_us = 100});
#endif
  const Buffer sum = memory(sizeof(int), MemoryKind::device);
  constexpr int kRounds = 64;
  constexpr std::size_t kInts = 50000;
  for (int round = 0; round < kRounds; ++round) {
    const auto staged = cuda().stage(kInts * sizeof(int));
    ASSERT_TRUE(staged);
    for (std::size_t i = 0; i < kInts; ++i) reinterpret_cast<int*>(staged->host)[i] = round;
    ASSERT_TRUE(cuda().upload(*staged));
    const Buffer out = memory(sizeof(int), MemoryKind::host);
    ASSERT_TRUE(device_->ops().copy(*stream_, {staged->device + (kInts - 1) * sizeof(int), sum.data(), sizeof(int)}));
    stream_->on_complete([] {});
    if (round % 16 == 15) {
      EXPECT_EQ(read(sum), round);
    }
  }
}

TEST_F(CudaDeviceTest, ScratchMemoryGrowsAndOldPlacesStayValidUntilTheWorkIsDone) {
  const auto small = cuda().scratch(100);
  ASSERT_TRUE(small);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(*small) % 256, 0U);
  EXPECT_EQ(cuda().scratch(50).value(), *small);
  const auto large = cuda().scratch(std::size_t{1} << 20);
  ASSERT_TRUE(large);
  EXPECT_NE(*large, *small);
  EXPECT_TRUE(launch("add", add, dim3(1), dim3(1), 0, cuda().get(), reinterpret_cast<int*>(*small), 1));
  stream_->synchronize();
  EXPECT_TRUE(stream_->status());
}

using Mover = Status (*)(CudaStream&, const MoveBlocksParams&);

class CudaMoveBlocks : public CudaDeviceTest, public ::testing::WithParamInterface<Mover> {};

TEST_P(CudaMoveBlocks, BlocksComeBackFromTheDeviceAsTheyWent) {
  for (const std::int64_t block_bytes : {100, 4096, 65536}) {
    constexpr std::int32_t kBlocks = 8;
    const auto bytes = static_cast<std::size_t>(kBlocks * block_bytes);
    const Buffer host = memory(bytes, MemoryKind::host);
    const Buffer back = memory(bytes, MemoryKind::host);
    const Buffer device = memory(bytes, MemoryKind::device);
    for (std::int32_t b = 0; b < kBlocks; ++b) std::memset(host.as<char>() + b * block_bytes, b + 1, block_bytes);
    const std::vector<std::int32_t> from = {0, 1, 2, 5, 7};
    const std::vector<std::int32_t> to = {3, 4, 5, 0, 1};
    const auto out = device_->create_stream("out").value();
    ASSERT_TRUE(GetParam()(cuda(), {host.as<std::byte>(), device.as<std::byte>(), block_bytes, from, to}));
    out->wait(stream_->record());
    ASSERT_TRUE(GetParam()(cuda_stream(*out), {device.as<std::byte>(), back.as<std::byte>(), block_bytes, to, from}));
    out->synchronize();
    ASSERT_TRUE(out->status());
    for (const std::int32_t b : from) {
      EXPECT_EQ(std::memcmp(host.as<char>() + b * block_bytes, back.as<char>() + b * block_bytes, block_bytes), 0);
    }
    EXPECT_EQ(back.as<char>()[3 * block_bytes], 0) << "a block that was not moved";
  }
}

TEST_P(CudaMoveBlocks, MovesWithinAPoolKeepTheOrderOfTheLists) {
  constexpr std::int64_t kBlockBytes = 512;
  const Buffer host = memory(6 * kBlockBytes, MemoryKind::host);
  const Buffer device = memory(6 * kBlockBytes, MemoryKind::device);
  for (int b = 0; b < 6; ++b) std::memset(host.as<char>() + b * kBlockBytes, b, kBlockBytes);
  ASSERT_TRUE(device_->ops().copy(*stream_, {host.data(), device.data(), 6 * kBlockBytes}));
  const std::vector<std::int32_t> from = {0, 1, 3, 5, 4};
  const std::vector<std::int32_t> to = {3, 0, 2, 4, 1};
  auto* base = device.as<std::byte>();
  ASSERT_TRUE(GetParam()(cuda(), {base, base, kBlockBytes, from, to}));
  ASSERT_TRUE(device_->ops().copy(*stream_, {device.data(), host.data(), 6 * kBlockBytes}));
  stream_->synchronize();
  const std::vector<int> expected = {1, 5, 0, 0, 5, 5};
  for (int b = 0; b < 6; ++b) EXPECT_EQ(host.as<char>()[b * kBlockBytes + 17], expected[b]) << b;
}

std::string way_name(const ::testing::TestParamInfo<Mover>& way) {
  return way.index == 0 ? "Chosen" : way.index == 1 ? "ByCopies" : "ByKernel";
}

INSTANTIATE_TEST_SUITE_P(Ways, CudaMoveBlocks,
                         ::testing::Values(cuda_move_blocks, move_blocks_by_copies, move_blocks_by_kernel), way_name);

// The test runs on the emulator only: on a GPU a fault would make every later test of the process fail.
#ifdef PAGODA_CUDA_EMULATED
__global__ void fault() {
  __trap();
}

TEST_F(CudaDeviceTest, AFaultIsReturnedByEveryLaterOpAndNobodyWaitsForEver) {
  ASSERT_TRUE(launch("fault", fault, dim3(1), dim3(1), 0, cuda().get()));
  std::atomic<bool> failure_was_known = false;
  stream_->on_complete([&] { failure_was_known = !stream_->status(); });
  const auto event = stream_->record();
  event->synchronize();
  stream_->synchronize();
  EXPECT_TRUE(failure_was_known);
  EXPECT_TRUE(event->finished());
  const Status next = device_->ops().copy(*stream_, {});
  ASSERT_FALSE(next);
  EXPECT_FALSE(stream_->replay(1, [] { return Status(); }));
  EXPECT_TRUE(stream_->record()->finished());
}

TEST(CudaDevice, AMachineWithoutADeviceIsUnsupported) {
  cuda_emulator::set_options({.num_devices = 0});
  EXPECT_EQ(cuda_device_count(), 0);
  const auto device = create_cuda_device(0);
  cuda_emulator::set_options({});
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::unsupported);
  EXPECT_EQ(device.error().param, "device");
}
#endif

}  // namespace
}  // namespace pagoda::kernels::cuda
