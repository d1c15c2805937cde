#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "engine/types.hpp"
#include "kernels/result.hpp"

/// Literals are the ranges of a text in which text of special tokens stays text: what a client wrote inside of a prompt
/// that a template made.
namespace pagoda::text {

/// Error: invalid_request with `param` for ranges that are not in order, overlap, or go beyond a text of `num_bytes`.
/// Ranges may touch and be empty.
Status check_literals(std::span<const ByteRange> literals, std::size_t num_bytes, std::string_view param);

/// Whether one of `literals`, which are ordered and apart, has a part of `range` or, being empty, is inside of it.
bool overlaps_literal(ByteRange range, std::span<const ByteRange> literals);

/// Those of the part `range` of the text, counted from its begin; empty ones are left out.
std::vector<ByteRange> literals_within(ByteRange range, std::span<const ByteRange> literals);

/// A step of rewriting a text: these bytes of it have become `num_bytes` others.
struct Edit {
  ByteRange replaced;
  std::size_t num_bytes = 0;
};

/// Moves `ranges` of a text to where they are after `edits`, both ordered and apart. A range that has a part of what an
/// edit replaced has all that came of it.
void follow_edits(std::span<const Edit> edits, std::vector<ByteRange>& ranges);

}  // namespace pagoda::text
