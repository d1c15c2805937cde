#include "io/model_files/gguf/sentencepiece_proto.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

namespace pagoda::io {
namespace {

constexpr std::uint32_t kHasValue = 1U << 8;

/// A charsmap whose double array begins with no paths at all, and one text, which is empty.
class Charsmap {
 public:
  static constexpr std::uint32_t kUnits = 512;

  Charsmap& unit(std::size_t index, std::uint32_t value) {
    units_[index] = value;
    return *this;
  }
  /// `byte` leads on to `base`, from a unit at `index`.
  Charsmap& lead(std::uint32_t index, std::uint32_t byte, std::uint32_t base, std::uint32_t more = 0) {
    return unit(index, byte | more | (index ^ base) << 10);
  }
  std::string bytes() const {
    std::string bytes(4 + sizeof(units_) + 1, '\0');
    const std::uint32_t size = sizeof(units_);
    std::memcpy(bytes.data(), &size, sizeof(size));
    std::memcpy(bytes.data() + 4, units_.data(), sizeof(units_));
    return bytes;
  }

 private:
  std::array<std::uint32_t, kUnits> units_{};
};

TEST(SoundCharsmap, MayHaveNoPaths) {
  EXPECT_TRUE(is_sound_charsmap(Charsmap().bytes()));
}

TEST(SoundCharsmap, MayHavePathsThatMeet) {
  Charsmap charsmap;
  charsmap.lead('a', 'a', 256).lead('b', 'b', 256).lead(256 ^ 'c', 'c', 0x1A0, kHasValue);
  EXPECT_TRUE(is_sound_charsmap(charsmap.bytes()));
}

TEST(SoundCharsmap, BeginsWithAUnitThatLeadsSomewhere) {
  EXPECT_FALSE(is_sound_charsmap(Charsmap().unit(0, 0xFFFFFFFFU).bytes()));
}

TEST(SoundCharsmap, LeadsNowhereOutside) {
  EXPECT_FALSE(is_sound_charsmap(Charsmap().lead('a', 'a', 512).bytes()));
}

TEST(SoundCharsmap, HasNoPathThatRunsInACircle) {
  EXPECT_FALSE(is_sound_charsmap(Charsmap().lead('a', 'a', 0, kHasValue).bytes()));
}

TEST(SoundCharsmap, HasNoValueOutsideOfItsTexts) {
  Charsmap charsmap;
  charsmap.lead('a', 'a', 256, kHasValue).unit(256, 1U << 31 | 5);
  EXPECT_FALSE(is_sound_charsmap(charsmap.bytes()));
}

TEST(SoundCharsmap, HasNoMoreThan32ValuesOnAPath) {
  // "a", "aa", ...: each leads on to the base with the next number, and all have the one empty text.
  const auto values = [](std::uint32_t count) {
    Charsmap charsmap;
    std::uint32_t base = 0;
    for (std::uint32_t i = 1; i <= count; ++i) {
      const std::uint32_t next = 256 + i;
      charsmap.lead(base ^ 'a', 'a', next, kHasValue);
      base = next;
    }
    return charsmap.bytes();
  };
  EXPECT_TRUE(is_sound_charsmap(values(31)));
  EXPECT_FALSE(is_sound_charsmap(values(33)));
}

}  // namespace
}  // namespace pagoda::io
