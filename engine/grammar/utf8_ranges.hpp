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

/// The UTF-8 of some characters: one byte of each range, in order.
struct ByteSequence {
  std::array<ByteRange, 4> bytes = {};
  std::uint8_t length = 0;
};

/// Returns the UTF-8 of all characters of `ranges`, which must be normalized. The sequences are in order and disjoint.
/// Sequences whose first ranges overlap have one and the same byte there.
std::vector<ByteSequence> utf8_sequences(const CharacterRanges& ranges);

}  // namespace pagoda::grammar
