#include "actors/wire.hpp"

#include <vector>

#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/message.hpp>
#include <gtest/gtest.h>

#include "actors/interfaces.hpp"
#include "tests/engine/step/messages.hpp"

namespace pagoda::actors {
namespace {

/// Returns the bytes that CAF sends to another process.
template <class Message>
std::vector<char> bytes_of(caf::actor_system& system, Message& message) {
#ifdef CAF_VERSION_MAJOR
  caf::byte_buffer buffer;
  caf::binary_serializer sink{system, buffer};
  EXPECT_TRUE(sink.apply(message));
  std::vector<char> bytes;
  for (const auto byte : buffer) bytes.push_back(static_cast<char>(byte));
  return bytes;
#else
  std::vector<char> bytes;
  caf::binary_serializer sink{system, bytes};
  EXPECT_FALSE(sink(message));
  return bytes;
#endif
}

template <class Message>
bool read(caf::actor_system& system, const std::vector<char>& bytes, Message& message) {
#ifdef CAF_VERSION_MAJOR
  caf::binary_deserializer source{system, caf::as_bytes(caf::span<const char>{bytes.data(), bytes.size()})};
  return source.apply(message);
#else
  caf::binary_deserializer source{system, bytes};
  return !source(message);
#endif
}

template <class T>
class Wire : public ::testing::Test {
 protected:
  Wire() {
#ifdef CAF_VERSION_MAJOR
    caf::init_global_meta_objects<caf::id_block::pagoda>();
    caf::core::init_global_meta_objects();
#endif
    configure_pool(config_, 1);
    system_ = std::make_unique<caf::actor_system>(config_);
  }

  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
};

using Messages = ::testing::Types<MemoryRequest, MemoryGrant, CachePlan, ExecuteStep, StepMasks, StepResult,
                                  SwapMeasured, StepOutputs, StopHit, AddGroup, AbortGroup, LoadAdapter, AdapterLoaded,
                                  UnloadAdapter, DeviceFailed>;
TYPED_TEST_SUITE(Wire, Messages);

TYPED_TEST(Wire, AMessageIsTheSameOnTheOtherSide) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto message = test::RandomValue(seed).draw<TypeParam>();
    TypeParam other;
    ASSERT_TRUE(read(*this->system_, bytes_of(*this->system_, message), other)) << "seed " << seed;
    EXPECT_EQ(encode(other), encode(message)) << "seed " << seed;
  }
}

TYPED_TEST(Wire, AMessageVisitsAllItsFields) {
  EXPECT_EQ(test::count_visited<TypeParam>(), test::count_fields<TypeParam>());
}

TYPED_TEST(Wire, DamagedBytesAreAnError) {
  auto message = test::RandomValue(5).draw<TypeParam>();
  auto bytes = bytes_of(*this->system_, message);
  bytes.pop_back();
  TypeParam other;
  EXPECT_FALSE(read(*this->system_, bytes, other));
}

}  // namespace
}  // namespace pagoda::actors
