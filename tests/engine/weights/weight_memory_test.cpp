#include "engine/weights/weight_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/counting_device.hpp"

namespace pagoda::weights {
namespace {

constexpr std::size_t kMib = std::size_t{1} << 20;

TEST(WeightMemory, BuffersShareAPieceAndDoNotOverlap) {
  const auto device = std::make_shared<test::CountingDevice>();
  WeightMemory memory(device);
  std::vector<kernels::Buffer> buffers;
  for (int i = 0; i < 100; ++i) {
    auto buffer = memory.allocate(static_cast<std::size_t>(1 + 777 * i));
    ASSERT_TRUE(buffer);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0U);
    const auto* bytes = buffer->as<char>();
    EXPECT_TRUE(std::all_of(bytes, bytes + buffer->bytes(), [](char byte) { return byte == 0; }));
    std::memset(buffer->data(), i + 1, buffer->bytes());
    buffers.push_back(std::move(*buffer));
  }
  EXPECT_EQ(device->allocations(), 1);
  for (int i = 0; i < 100; ++i) {
    const auto& buffer = buffers[static_cast<std::size_t>(i)];
    EXPECT_EQ(buffer.bytes(), static_cast<std::size_t>(1 + 777 * i));
    const auto* bytes = buffer.as<char>();
    EXPECT_TRUE(std::all_of(bytes, bytes + buffer.bytes(), [=](char byte) { return byte == i + 1; })) << i;
  }
}

TEST(WeightMemory, APieceGoesWithItsLastBuffer) {
  const auto device = std::make_shared<test::CountingDevice>();
  WeightMemory memory(device);
  auto first = memory.allocate(kMib);
  auto second = memory.allocate(kMib);
  ASSERT_TRUE(first && second);
  *first = {};
  EXPECT_GT(device->bytes(), 0U);
  *second = {};
  EXPECT_EQ(device->bytes(), 0U);
  EXPECT_TRUE(memory.allocate(kMib));
}

TEST(WeightMemory, LargeBuffersArePiecesOfTheirOwn) {
  const auto device = std::make_shared<test::CountingDevice>();
  WeightMemory memory(device);
  const auto buffer = memory.allocate(100 * kMib);
  ASSERT_TRUE(buffer);
  EXPECT_EQ(device->bytes(), 100 * kMib);
}

}  // namespace
}  // namespace pagoda::weights
