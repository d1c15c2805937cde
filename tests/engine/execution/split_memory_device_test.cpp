#include "tests/support/split_memory_device.hpp"

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/ops.hpp"

namespace pagoda::test {
namespace {

using kernels::MemoryKind;

class SplitMemoryDeviceTest : public testing::Test {
 protected:
  kernels::Buffer allocate(std::size_t bytes, MemoryKind kind) { return device_.allocate(bytes, kind).value(); }

  /// Calls `issue` inside submit, and waits.
  Status run(const std::function<Status()>& issue) {
    Status status;
    stream_->submit([&] { status = issue(); });
    stream_->synchronize();
    return status;
  }

  Status copy(const void* from, void* to, std::size_t bytes) {
    return device_.ops().copy(*stream_, {.from = from, .to = to, .bytes = bytes});
  }

  SplitMemoryDevice device_;
  std::unique_ptr<kernels::Stream> stream_ = device_.create_stream("test").value();
};

class SplitMemoryDeviceDeathTest : public SplitMemoryDeviceTest {
 protected:
  // The streams' threads must live in the child process.
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(SplitMemoryDeviceDeathTest, AHostThatTouchesItsMemoryDies) {
  const auto memory = allocate(64, MemoryKind::device);
  EXPECT_DEATH(static_cast<void>(*memory.as<volatile int>()), "");
  EXPECT_DEATH(*memory.as<volatile int>() = 1, "");
}

TEST_F(SplitMemoryDeviceDeathTest, OpsOutsideSubmitAndInsideCallbacksDie) {
  const auto memory = allocate(64, MemoryKind::host);
  EXPECT_DEATH(static_cast<void>(copy(memory.data(), memory.as<std::byte>() + 32, 8)), "inside submit");
  EXPECT_DEATH(
      {
        stream_->on_complete([&] { stream_->submit([&] { static_cast<void>(copy(memory.data(), nullptr, 8)); }); });
        stream_->synchronize();
      },
      "callbacks issue no ops");
}

TEST_F(SplitMemoryDeviceTest, OpsRefuseHostMemory) {
  const auto tokens = allocate(64, MemoryKind::device);
  const auto slots = allocate(64, MemoryKind::host);
  const Status status = run([&] {
    return device_.ops().gather_tokens(*stream_, {.table = tokens.as<std::int32_t>(),
                                                  .slots = slots.as<std::int64_t>(),
                                                  .count = 1,
                                                  .out = tokens.as<std::int32_t>()});
  });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "gather_tokens: a pointer is not of the device's memory");
}

TEST_F(SplitMemoryDeviceTest, OpsRunAfterTheyWereIssuedAndInTheirOrder) {
  const auto host = allocate(sizeof(int), MemoryKind::host);
  const auto device = allocate(sizeof(int), MemoryKind::device);
  auto other = device_.create_stream("other").value();
  auto held = std::make_shared<std::promise<void>>();
  other->on_complete([held] { held->get_future().wait(); });
  stream_->wait(other->record());

  *host.as<int>() = 1;
  Status issued;
  stream_->submit([&] {
    issued = copy(host.data(), device.data(), sizeof(int));
    if (issued) issued = copy(device.data(), host.data(), sizeof(int));
  });
  ASSERT_TRUE(issued);
  *host.as<int>() = 2;  // too early: the op reads it later
  held->set_value();
  stream_->synchronize();
  EXPECT_EQ(*host.as<int>(), 2);
}

TEST_F(SplitMemoryDeviceTest, AReplayRunsWhatWasRecordedAndDoesNotLookAtTheCallersFunctionAgain) {
  const auto tokens = allocate(64, MemoryKind::device);
  const auto slots = allocate(64, MemoryKind::device);
  const auto out = allocate(64, MemoryKind::device);
  int issued = 0;
  const auto gather = [&] {
    ++issued;
    return device_.ops().gather_tokens(*stream_, {.table = tokens.as<std::int32_t>(),
                                                  .slots = slots.as<std::int64_t>(),
                                                  .count = 1,
                                                  .out = out.as<std::int32_t>()});
  };
  const auto staging = allocate(64, MemoryKind::host);
  for (const std::int32_t token : {7, 8, 9}) {
    *staging.as<std::int32_t>() = token;
    ASSERT_TRUE(run([&] { return copy(staging.data(), tokens.data(), sizeof(token)); }));
    ASSERT_TRUE(run([&] { return stream_->replay(1, gather); }));
    ASSERT_TRUE(run([&] { return copy(out.data(), staging.data(), sizeof(token)); }));
    EXPECT_EQ(*staging.as<std::int32_t>(), token);
  }
  EXPECT_EQ(issued, 1);
  EXPECT_EQ(device_.num_records(), 1);
  EXPECT_EQ(device_.num_replays(), 2);
}

TEST_F(SplitMemoryDeviceTest, WhatReadsTheHostsMemoryCannotBeRecorded) {
  const auto memory = allocate(64, MemoryKind::host);
  const Status status =
      run([&] { return stream_->replay(1, [&] { return copy(memory.data(), memory.as<std::byte>() + 32, 8); }); });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "an op that reads host memory cannot be recorded");
}

TEST_F(SplitMemoryDeviceTest, AnOpThatFailsWhileItRunsFailsAllThatComesLater) {
  const auto memory = allocate(64, MemoryKind::device);
  const auto gather = [&] {
    return device_.ops().gather_tokens(*stream_, {.table = memory.as<std::int32_t>(),
                                                  .slots = memory.as<std::int64_t>(),
                                                  .count = -1,
                                                  .out = memory.as<std::int32_t>()});
  };
  EXPECT_TRUE(run(gather));
  EXPECT_FALSE(stream_->status());
  EXPECT_FALSE(run(gather));
}

TEST_F(SplitMemoryDeviceTest, HasAsMuchMemoryAsItWasTold) {
  SplitMemoryDevice small({.device_bytes = 8192});
  auto all = small.allocate(8192, MemoryKind::device);
  ASSERT_TRUE(all);
  EXPECT_EQ(small.allocate(1, MemoryKind::device).error().code, ErrorCode::out_of_memory);
  *all = {};
  EXPECT_EQ(small.available_bytes(MemoryKind::device), 8192U);
}

}  // namespace
}  // namespace pagoda::test
