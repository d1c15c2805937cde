#include "io/device_link/shared_kv_memory.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>

namespace pagoda::device_link {
namespace {

const auto memory_cpu = kernels::create_cpu_device({1, "", "none"}).value();
constexpr SharedKvMemory::Size kSize{.device_bytes = 5'000'000, .host_bytes = 3'000'000};

std::int64_t taken_bytes(const SharedKvMemory& memory) {
  struct stat facts {};
  EXPECT_EQ(::fstat(memory.file(), &facts), 0);
  return facts.st_blocks * 512;
}

TEST(SharedKvMemory, WhatIsWrittenIsThereForWhoMapsItNext) {
  const auto memory = SharedKvMemory::create(kSize).value();
  {
    const auto pools = SharedKvMemory::map(*memory_cpu, memory->file(), kSize).value();
    EXPECT_EQ(pools.device.bytes(), 5'000'000U);
    EXPECT_EQ(pools.host.bytes(), 3'000'000U);
    std::memset(pools.device.data(), 1, pools.device.bytes());
    std::memset(pools.host.data(), 2, pools.host.bytes());
    pools.progress.as<execution::PlanProgress>()->set_done(4, execution::PlanProgress::Part::copies);
  }
  EXPECT_EQ(memory->last_plan(), 4U);
  const auto pools = SharedKvMemory::map(*memory_cpu, memory->file(), kSize).value();
  const auto all_are = [](const kernels::Buffer& buffer, char value) {
    const auto* bytes = buffer.as<char>();
    return std::all_of(bytes, bytes + buffer.bytes(), [&](char byte) { return byte == value; });
  };
  EXPECT_TRUE(all_are(pools.device, 1));
  EXPECT_TRUE(all_are(pools.host, 2));
}

TEST(SharedKvMemory, ItIsTakenAsItIsWrittenAndGivenBackWhenItIsCleared) {
  const auto memory = SharedKvMemory::create(kSize).value();
  EXPECT_LT(taken_bytes(*memory), 100'000);
  auto pools = SharedKvMemory::map(*memory_cpu, memory->file(), kSize).value();
  ASSERT_TRUE(memory_cpu->touch(pools.device, nullptr));
  EXPECT_GE(taken_bytes(*memory), kSize.device_bytes);
  std::memset(pools.device.data(), 1, pools.device.bytes());
  pools.progress.as<execution::PlanProgress>()->set_done(4, execution::PlanProgress::Part::copies);
  pools = {};
  ASSERT_TRUE(memory->clear());
  EXPECT_LT(taken_bytes(*memory), 100'000);
  EXPECT_EQ(memory->last_plan(), 0U);
  const auto again = SharedKvMemory::map(*memory_cpu, memory->file(), kSize).value();
  EXPECT_EQ(*again.device.as<char>(), 0);
}

TEST(SharedKvMemory, WhatTheMachineDoesNotHaveIsAnErrorThatNamesTheFlag) {
  const auto memory = SharedKvMemory::create({.device_bytes = std::int64_t{1} << 50, .host_bytes = 0});
  ASSERT_FALSE(memory);
  EXPECT_EQ(memory.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(memory.error().message.find("num_device_blocks"), std::string::npos) << memory.error().message;
}

TEST(SharedKvMemory, WithoutAHostPoolThereIsNone) {
  const SharedKvMemory::Size size{.device_bytes = 100, .host_bytes = 0};
  const auto memory = SharedKvMemory::create(size).value();
  const auto pools = SharedKvMemory::map(*memory_cpu, memory->file(), size).value();
  EXPECT_EQ(pools.host.data(), nullptr);
  EXPECT_FALSE(pools.touch_host);
}

}  // namespace
}  // namespace pagoda::device_link
