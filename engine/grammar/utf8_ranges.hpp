#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/grammar/rules.hpp"

namespace pagoda::grammar {

/// Bytes first to last, both included.
struct ByteRange {
  std::uint8_t first = 0;
  std::uint8_t last = 0;

  bool operator==(const ByteRange&) const = default;
  auto operator<=>(const ByteRange&) const = default;
};

/// UTF-8 of some characters: a byte of each range, in order.
struct ByteSequence {
  std::array<ByteRange, 4> bytes = {};
  std::uint8_t length = 0;
};

/// The UTF-8 of all characters of `ranges`, which are normalized: in order, and apart. Sequences whose first ranges
/// overlap have the same one byte there.
std::vector<ByteSequence> utf8_sequences(const CharacterRanges& ranges);

}  // namespace pagoda::grammar
