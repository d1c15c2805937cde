#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "io/jinja/characters.hpp"
#include "io/jinja/text.hpp"
#include "io/jinja/value.hpp"

/// Functions of Python's str, on texts that keep their provenance.
namespace pagoda::jinja {

inline constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

enum class Side { left, right, both };
/// Removes white space, or the characters of `characters`, at the ends.
Text strip(Heap& heap, const Text& text, Side side, const Text* characters);

Text to_lower(Heap& heap, const Text& text);
Text to_upper(Heap& heap, const Text& text);
Text casefold(Heap& heap, const Text& text);
Text swap_case(Heap& heap, const Text& text);
Text capitalize(Heap& heap, const Text& text);
Text title(Heap& heap, const Text& text);
Text escape_html(Heap& heap, const Text& text);

/// Replaces at most `count` times.
Text replace(Heap& heap, const Text& text, const Text& old, const Text& replacement, std::size_t count);
Text repeat(Heap& heap, const Text& text, std::int64_t times);
Text join(Heap& heap, const Text& separator, const std::vector<Text>& pieces);
/// Pads the text to `width` characters with `fill`.
enum class Align { left, right, center };
Text pad(Heap& heap, const Text& text, std::int64_t width, Align align, const Text& fill);

/// Splits at most `limit` times: at `separator`, or at runs of white space if it is null. `from_right`: the last splits
/// count.
std::vector<Value> split(Heap& heap, const Text& text, const Text* separator, std::size_t limit, bool from_right);
std::vector<Text> split_lines(Heap& heap, const Text& text, bool keep_ends);

/// Returns the characters [start, stop) in steps, as in Python's slices; nothing stands for None.
Text slice_characters(Heap& heap, const Text& text, std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
                      std::int64_t step);
/// Indices of a slice of `size` items: the first one, and their number.
struct SliceIndices {
  std::int64_t first = 0;
  std::size_t count = 0;
};
SliceIndices slice_indices(std::size_t size, std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
                           std::int64_t step);

}  // namespace pagoda::jinja
