#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "engine/types.hpp"
#include "kernels/result.hpp"

/// Literals are the ranges of a text in which the text of special tokens stays text. They hold the text that a client
/// wrote in a prompt that a template made.
namespace pagoda::text {

/// Checks ranges. Error: invalid_request with `param` for ranges that are not in order, overlap, or go beyond a text of
/// `num_bytes`. Ranges may touch and be empty.
Status check_literals(std::span<const ByteRange> literals, std::size_t num_bytes, std::string_view param);

/// Returns whether one of `literals`, which are ordered and disjoint, overlaps `range`, or is empty and lies inside it.
bool overlaps_literal(ByteRange range, std::span<const ByteRange> literals);

/// Returns the parts of `literals` in `range`, counted from the range's begin. Empty parts are left out.
std::vector<ByteRange> literals_within(ByteRange range, std::span<const ByteRange> literals);

/// A step of rewriting a text: the bytes `replaced` have become `num_bytes` other bytes.
struct Edit {
  ByteRange replaced;
  std::size_t num_bytes = 0;
};

/// Moves `ranges` of a text to their places after `edits`, both ordered and disjoint. A range that overlaps replaced
/// bytes covers all bytes that replace them.
void follow_edits(std::span<const Edit> edits, std::vector<ByteRange>& ranges);

}  // namespace pagoda::text
