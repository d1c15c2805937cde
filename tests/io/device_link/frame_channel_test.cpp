#include "io/device_link/frame_channel.hpp"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "actors/clock.hpp"

namespace pagoda::device_link {
namespace {

struct Pair {
  Pair() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    left = FrameChannel::create(Descriptor(ends[0])).value();
    raw = Descriptor(ends[1]);
  }
  void connect() { right = FrameChannel::create(std::move(raw)).value(); }

  std::unique_ptr<FrameChannel> left;
  Descriptor raw;  ///< the other end, until connect()
  std::unique_ptr<FrameChannel> right;
};

TEST(FrameChannel, FramesOfEverySizeArriveInTheirOrderAlthoughNobodyReadsAtFirst) {
  Pair pair;
  pair.connect();
  const std::vector<std::size_t> sizes{0, 1, 100, 70'000, 3'000'000, 5, 65'532, 65'536};
  for (const std::size_t size : sizes) pair.left->send(std::string(size, static_cast<char>('a' + size % 7)));
  std::thread writer([&] { pair.left->run([](std::span<const std::byte>) { return true; }); });
  std::vector<std::size_t> received;
  const auto end = pair.right->run([&](std::span<const std::byte> frame) {
    std::string text;
    EXPECT_TRUE(decode(frame, text));
    EXPECT_EQ(text, std::string(text.size(), static_cast<char>('a' + text.size() % 7)));
    received.push_back(text.size());
    return received.size() < sizes.size();
  });
  EXPECT_EQ(end, FrameChannel::End::refused);
  EXPECT_EQ(received, sizes);
  pair.left->close();
  writer.join();
}

TEST(FrameChannel, AFrameThatWasRefusedIsGoneAndTheNextOneIsNot) {
  Pair pair;
  pair.connect();
  for (int i = 0; i < 3; ++i) pair.left->send(i);
  for (int expected = 0; expected < 3; ++expected) {
    int value = -1;
    const auto take = [&](std::span<const std::byte> frame) { return !decode(frame, value); };
    EXPECT_EQ(pair.right->run(take), FrameChannel::End::refused);
    EXPECT_EQ(value, expected);
  }
}

TEST(FrameChannel, TheEndOfTheOtherSideIsNoticedAtOnceAndSendingToItIsHarmless) {
  Pair pair;
  std::thread other([&] { pair.raw.reset(); });
  EXPECT_EQ(pair.left->run([](std::span<const std::byte>) { return true; }), FrameChannel::End::closed);
  other.join();
  pair.left->send(std::string(1'000'000, 'x'));
  pair.left->send(1);
}

TEST(FrameChannel, AFrameThatIsLongerThanFramesMayBeIsDamage) {
  Pair pair;
  const unsigned char header[] = {0xff, 0xff, 0xff, 0xff};
  ASSERT_EQ(::send(pair.raw.get(), header, sizeof header, 0), 4);
  EXPECT_EQ(pair.left->run([](std::span<const std::byte>) { return true; }), FrameChannel::End::damaged);
}

TEST(FrameChannel, AFrameAboveTheLimitOfItsReceiverIsTooLong) {
  Pair pair;
  pair.right = FrameChannel::create(std::move(pair.raw), 1000).value();
  pair.left->send(std::string(2000, 'x'));
  EXPECT_EQ(pair.right->run([](std::span<const std::byte>) { return true; }), FrameChannel::End::too_long);
}

TEST(FrameChannel, APartOfAFrameIsNoFrame) {
  Pair pair;
  const unsigned char part[] = {8, 0, 0, 0, 1, 2, 3};
  ASSERT_EQ(::send(pair.raw.get(), part, sizeof part, 0), 7);
  pair.raw.reset();
  bool called = false;
  EXPECT_EQ(pair.left->run([&](std::span<const std::byte>) { return called = true; }), FrameChannel::End::closed);
  EXPECT_FALSE(called);
}

TEST(FrameChannel, ItWakesAtTheTimeItWasTold) {
  Pair pair;
  const TimeUs begin = actors::now_us();
  int calls = 0;
  const auto before_wait = [&]() -> std::optional<TimeUs> {
    if (++calls == 2) pair.left->close();
    return begin + 30'000;
  };
  EXPECT_EQ(pair.left->run([](std::span<const std::byte>) { return true; }, before_wait), FrameChannel::End::closed);
  EXPECT_GE(actors::now_us() - begin, 30'000);
  EXPECT_EQ(calls, 2);
}

TEST(FrameChannel, ClosingItEndsWhoWaits) {
  Pair pair;
  std::thread closer([&] { pair.left->close(); });
  EXPECT_EQ(pair.left->run([](std::span<const std::byte>) { return true; }), FrameChannel::End::closed);
  closer.join();
}

}  // namespace
}  // namespace pagoda::device_link
