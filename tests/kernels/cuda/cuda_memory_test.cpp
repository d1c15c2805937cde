#include <gtest/gtest.h>

#ifdef PAGODA_HAS_CUDA

#include <atomic>
#include <cstring>
#include <vector>

#include "kernels/cuda/cuda_memory.hpp"

namespace pagoda::kernels::cuda {
namespace {

class CudaMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  }
};

TEST_F(CudaMemory, BlocksComeBackFromTheDeviceAsTheyWent) {
  constexpr std::int64_t kBlock = 4096;
  constexpr std::int32_t kBlocks = 8;
  auto host = allocate(kBlock * kBlocks, MemoryKind::host);
  auto back = allocate(kBlock * kBlocks, MemoryKind::host);
  auto device = allocate(kBlock * kBlocks, MemoryKind::device);
  ASSERT_TRUE(host && back && device);
  for (std::int32_t b = 0; b < kBlocks; ++b) std::memset(host->as<char>() + b * kBlock, b + 1, kBlock);
  auto out = create_stream();
  auto in = create_stream();
  ASSERT_TRUE(out && in);
  const std::vector<std::int32_t> from = {0, 1, 2, 5, 7};
  const std::vector<std::int32_t> to = {3, 4, 5, 0, 1};
  ASSERT_TRUE(move_blocks(**in, {host->as<std::byte>(), device->as<std::byte>(), kBlock, from, to}));
  (*out)->wait((*in)->record());  // the other stream sees the blocks only after the event
  ASSERT_TRUE(move_blocks(**out, {device->as<std::byte>(), back->as<std::byte>(), kBlock, to, from}));
  std::atomic<bool> told = false;
  (*out)->on_complete([&] { told = true; });
  (*out)->synchronize();
  EXPECT_TRUE(told);
  for (const std::int32_t b : from) {
    EXPECT_EQ(std::memcmp(host->as<char>() + b * kBlock, back->as<char>() + b * kBlock, kBlock), 0) << "block " << b;
  }
}

TEST_F(CudaMemory, AskingForTooMuchSaysHowMuch) {
  const auto buffer = allocate(std::size_t{1} << 50, MemoryKind::device);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(buffer.error().message.find("1125899906842624 bytes"), std::string::npos);
}

}  // namespace
}  // namespace pagoda::kernels::cuda

#else

TEST(CudaMemory, IsLeftOutOfThisBuild) {
  GTEST_SKIP() << "built without the CUDA toolkit";
}

#endif
