#include "engine/grammar/utf8_ranges.hpp"

#include <cstddef>

namespace pagoda::grammar {
namespace {

constexpr int kBitsOfByte = 6;  ///< bits that each byte after the first carries
constexpr std::array<char32_t, 3> kLastOfLength{0x7F, 0x7FF, 0xFFFF};

std::uint8_t length_of(char32_t character) {
  std::uint8_t length = 1;
  for (const char32_t last : kLastOfLength) length = static_cast<std::uint8_t>(length + (character > last ? 1 : 0));
  return length;
}

std::uint8_t byte_of(char32_t character, std::uint8_t length, std::size_t index) {
  constexpr std::array<std::uint8_t, 4> kLeads{0x00, 0xC0, 0xE0, 0xF0};
  const auto bits = static_cast<std::uint8_t>((character >> (kBitsOfByte * (length - 1 - static_cast<int>(index)))) &
                                              (index == 0 ? 0x7FU : 0x3FU));
  return static_cast<std::uint8_t>(bits | (index == 0 ? kLeads[length - 1U] : 0x80U));
}

void split(char32_t first, char32_t last, std::vector<ByteSequence>& out) {
  for (const char32_t end : kLastOfLength) {
    if (first <= end && end < last) {
      split(first, end, out);
      split(end + 1, last, out);
      return;
    }
  }
  const std::uint8_t length = length_of(first);
  // If first and last differ in a byte, the bytes after it must be free.
  for (int behind = 1; behind < length; ++behind) {
    const char32_t mask = (char32_t{1} << (kBitsOfByte * behind)) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      split(first, first | mask, out);
      split((first | mask) + 1, last, out);
      return;
    }
    if ((last & mask) != mask) {
      split(first, (last & ~mask) - 1, out);
      split(last & ~mask, last, out);
      return;
    }
  }
  ByteSequence& sequence = out.emplace_back();
  sequence.length = length;
  for (std::size_t i = 0; i < length; ++i) {
    sequence.bytes[i] = {byte_of(first, length, i), byte_of(last, length, i)};
  }
}

}  // namespace

std::vector<ByteSequence> utf8_sequences(const CharacterRanges& ranges) {
  std::vector<ByteSequence> out;
  for (const CharacterRange& range : ranges) split(range.first, range.last, out);
  return out;
}

}  // namespace pagoda::grammar
