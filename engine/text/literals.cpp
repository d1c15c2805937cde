#include "engine/text/literals.hpp"

#include <algorithm>
#include <string>

namespace pagoda::text {
namespace {

std::string written(ByteRange range) {
  return "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")";
}

/// Returns the first literal that ends after `position`.
auto first_behind(std::size_t position, std::span<const ByteRange> literals) {
  return std::ranges::upper_bound(literals, position, {}, &ByteRange::end);
}

}  // namespace

Status check_literals(std::span<const ByteRange> literals, std::size_t num_bytes, std::string_view param) {
  const auto refuse = [&](ByteRange range, const std::string& reason) {
    return fail(ErrorCode::invalid_request, std::string(param) + " has " + written(range) + ", which " + reason,
                std::string(param));
  };
  std::size_t begin = 0;
  for (const ByteRange& range : literals) {
    if (range.begin > range.end) return refuse(range, "ends before it begins");
    if (range.end > num_bytes) return refuse(range, "goes beyond the " + std::to_string(num_bytes) + " bytes of text");
    if (range.begin < begin) return refuse(range, "begins before the previous range ends");
    begin = range.end;
  }
  return {};
}

bool overlaps_literal(ByteRange range, std::span<const ByteRange> literals) {
  const auto next = first_behind(range.begin, literals);
  return next != literals.end() && next->begin < range.end;
}

std::vector<ByteRange> literals_within(ByteRange range, std::span<const ByteRange> literals) {
  std::vector<ByteRange> within;
  for (auto next = first_behind(range.begin, literals); next != literals.end() && next->begin < range.end; ++next) {
    const std::size_t begin = std::max(next->begin, range.begin);
    const std::size_t end = std::min(next->end, range.end);
    if (begin < end) within.push_back({begin - range.begin, end - range.begin});
  }
  return within;
}

void follow_edits(std::span<const Edit> edits, std::vector<ByteRange>& ranges) {
  std::size_t removed = 0;
  std::size_t added = 0;
  auto next = edits.begin();
  // Returns the place of a position after the edits. Positions must not decrease from call to call.
  const auto moved = [&](std::size_t position, bool is_end) {
    for (; next != edits.end() && next->replaced.end <= position; ++next) {
      removed += next->replaced.end - next->replaced.begin;
      added += next->num_bytes;
    }
    const bool is_inside = next != edits.end() && next->replaced.begin < position;
    if (!is_inside) return position - removed + added;
    return next->replaced.begin - removed + added + (is_end ? next->num_bytes : 0);
  };
  for (ByteRange& range : ranges) range = {moved(range.begin, false), moved(range.end, true)};
}

}  // namespace pagoda::text
