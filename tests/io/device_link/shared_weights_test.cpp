#include "io/device_link/shared_weights.hpp"

#include <cerrno>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/weights/loaded_weights.hpp"
#include "tests/engine/weights/wave_weights.hpp"

namespace pagoda::device_link {
namespace {

const auto weights_cpu = kernels::create_cpu_device({2, "", "none"}).value();

std::shared_ptr<MappedWeights> map(const SharedWeights& kept, bool touch = false) {
  return MappedWeights::map(*weights_cpu, kept.file(), kept.bytes(), touch).value();
}

/// Without ending the process where it is not.
bool is_writable(void* memory) {
  const Descriptor zeros(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  return ::read(zeros.get(), memory, 1) == 1;
}

TEST(SharedWeights, CopiesOfASealedProcessAreThereForTheNextOneAndCannotBeWritten) {
  const auto kept = SharedWeights::create(3'000'000).value();
  for (const bool touch : {true, false}) {
    const auto first = map(*kept, touch);
    auto a = first->find("a", 2'000'001, weights::CopyKind::plain);
    auto b = first->find("b", 100, weights::CopyKind::plain);
    ASSERT_TRUE(a && b);
    EXPECT_FALSE(a->is_filled || b->is_filled);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b->memory.data()) % 64, 0U);
    std::memset(a->memory.data(), 1, a->memory.bytes());
    std::memset(b->memory.data(), 2, b->memory.bytes());
    // Not sealed the first time: nothing of it counts.
    if (!touch) first->mark_complete();
    EXPECT_EQ(is_writable(a->memory.data()), touch);
  }
  auto next = map(*kept);
  const auto b = next->find("b", 100, weights::CopyKind::plain);
  const auto a = next->find("a", 2'000'001, weights::CopyKind::plain);
  ASSERT_TRUE(a && b);
  EXPECT_TRUE(a->is_filled && b->is_filled);
  EXPECT_FALSE(next->find("c", 100, weights::CopyKind::plain)) << "nobody has made it";
  EXPECT_FALSE(next->find("b", 101, weights::CopyKind::plain)) << "it is another's";
  next = nullptr;  // the copies live on
  for (std::size_t i = 0; i < a->memory.bytes(); ++i) ASSERT_EQ(a->memory.as<char>()[i], 1);
  EXPECT_EQ(b->memory.as<char>()[99], 2);
  EXPECT_FALSE(is_writable(b->memory.data()));
}

TEST(SharedWeights, TheirMemoryIsTakenWithTheFirstCopy) {
  const auto kept = SharedWeights::create(10'000'000).value();
  const auto taken_bytes = [&] {
    struct stat facts {};
    EXPECT_EQ(::fstat(kept->file(), &facts), 0);
    return facts.st_blocks * 512;
  };
  const auto weights = map(*kept, true);
  EXPECT_LT(taken_bytes(), 1'000'000);
  EXPECT_TRUE(weights->find("a", 100, weights::CopyKind::plain));
  EXPECT_GE(taken_bytes(), 10'000'000);
}

TEST(SharedWeights, WhatDoesNotFitIsNotKept) {
  const auto kept = SharedWeights::create(1'000).value();
  const auto weights = map(*kept);
  EXPECT_TRUE(weights->find("a", 1'000, weights::CopyKind::plain));
  EXPECT_FALSE(weights->find("b", static_cast<std::size_t>(kept->bytes()), weights::CopyKind::plain));
}

/// Weights of every kind of copy, and what they hold.
std::vector<std::string> contents(const weights::LoadedWeights& loaded, bool quantizes) {
  std::vector<std::string> all;
  const auto add = [&](const void* data, std::int64_t bytes) {
    all.emplace_back(static_cast<const char*>(data), static_cast<std::size_t>(bytes));
  };
  const auto linear = loaded.linear("m", 40, 128).value();
  if (quantizes) {
    add(linear.quantized->matrix.data, linear.quantized->matrix.data_bytes());
    add(linear.quantized->matrix.scales, linear.quantized->matrix.scale_bytes());
  } else {
    add(linear.plain.data, 40 * 128 * static_cast<std::int64_t>(size_of(linear.plain.dtype)));
  }
  const auto tensor = loaded.tensor("w", {7, 9}).value();
  add(tensor.data, 7 * 9 * static_cast<std::int64_t>(size_of(tensor.dtype)));
  return all;
}

TEST(SharedWeights, LoadedWeightsThatFindTheirCopiesAreThoseThatWereMade) {
  for (const auto& [dtype, quantize, copies] : {std::tuple{"bfloat16", "none", false},
                                                {"auto", "none", true},
                                                {"auto", "int8", false},
                                                {"float16", "int4", false}}) {
    weights::WeightPolicy policy = weights::weight_policy(dtype, quantize);
    policy.copy_linear = copies;
    const test::WaveWeights stored;
    const bool quantizes = policy.quantize.has_value();
    const auto expected = contents(weights::LoadedWeights(stored, policy, weights_cpu), quantizes);
    const auto kept = SharedWeights::create(1'000'000).value();
    {
      const auto mapped = map(*kept);
      EXPECT_EQ(contents(weights::LoadedWeights(stored, policy, weights_cpu, mapped), quantizes), expected);
      mapped->mark_complete();
    }
    test::WaveWeights others;  // what it would make anew
    others.values("m.weight").assign(40 * 128, 1.0F);
    EXPECT_EQ(contents(weights::LoadedWeights(others, policy, weights_cpu, map(*kept)), quantizes)[0], expected[0]);
  }
}

}  // namespace
}  // namespace pagoda::device_link
