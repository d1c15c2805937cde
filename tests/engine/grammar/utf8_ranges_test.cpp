#include "engine/grammar/utf8_ranges.hpp"

#include <algorithm>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "engine/text/unicode.hpp"

namespace pagoda::grammar {
namespace {

bool is_one_of(const std::string& bytes, const ByteSequence& sequence) {
  if (bytes.size() != sequence.length) return false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<std::uint8_t>(bytes[i]);
    if (byte < sequence.bytes[i].first || byte > sequence.bytes[i].last) return false;
  }
  return true;
}

void check(const CharacterRanges& ranges) {
  const auto sequences = utf8_sequences(ranges);
  for (std::size_t i = 1; i < sequences.size(); ++i) {
    const ByteRange before = sequences[i - 1].bytes[0];
    const ByteRange here = sequences[i].bytes[0];
    EXPECT_TRUE(before.last < here.first || (before == here && here.first == here.last));
  }
  for (char32_t c = 1; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 61) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string bytes;
    text::append_utf8(bytes, c);
    const auto is_of = [&](const ByteSequence& sequence) { return is_one_of(bytes, sequence); };
    const bool is_in = std::ranges::any_of(ranges, [&](const auto& r) { return r.first <= c && c <= r.last; });
    ASSERT_EQ(std::ranges::count_if(sequences, is_of), is_in ? 1 : 0) << static_cast<std::uint32_t>(c);
  }
}

TEST(Utf8Ranges, HoldExactlyTheirCharacters) {
  check(complement({}));
  check(normalized({{'a', 'a'}}));
  check(normalized({{0x7F, 0x80}, {0x7FF, 0x800}, {0xFFFF, 0x10000}, {0x10FFFF, 0x10FFFF}}));
  check(complement({{'"', '"'}, {'\\', '\\'}, {1, 0x1F}}));
  std::mt19937 random(1);
  for (int i = 0; i < 8; ++i) {
    CharacterRanges ranges;
    for (int k = 0; k < 5; ++k) {
      const auto first = static_cast<char32_t>(random() % (random() % 2 == 0 ? 0x3000 : 0x110000));
      ranges.push_back({first, first + static_cast<char32_t>(random() % (random() % 2 == 0 ? 40 : 70'000))});
    }
    check(normalized(ranges));
  }
}

}  // namespace
}  // namespace pagoda::grammar
