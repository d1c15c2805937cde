#include "io/jinja/text_functions.hpp"

#include <algorithm>

#include "engine/text/unicode.hpp"
#include "io/jinja/iterate.hpp"

namespace pagoda::jinja {
namespace {

// Calls append(std::string& out, char32_t, std::size_t offset) for each character; the appended bytes have the
// character's provenance.
template <class Append>
Text map_characters(Heap& heap, const Text& text, Append append) {
  heap.look_at(8 * text.size());
  TextBuilder builder(heap);
  std::size_t offset = 0;
  std::string mapped;
  text.for_each_run([&](std::string_view run, bool is_inserted) {
    mapped.clear();
    for (std::size_t at = 0; at < run.size();) {
      const std::size_t begin = at;
      append(mapped, text::next_character(run, at), offset + begin);
    }
    offset += run.size();
    builder.append(mapped, is_inserted);
  });
  return builder.finish();
}

void append_lower(std::string& out, char32_t character, std::string_view text, std::size_t offset) {
  if (is_final_sigma(text, offset)) {
    text::append_utf8(out, 0x3C2);
  } else {
    append_case(out, character, LetterCase::lower);
  }
}

void add(Heap& heap, std::vector<Value>& pieces, const Text& piece) {
  heap.step();
  heap.take(sizeof(Value));
  pieces.emplace_back(piece);
}

std::vector<Value> split_at_space(Heap& heap, const Text& text, std::size_t limit) {
  const std::string_view bytes = text.view();
  std::vector<Value> words;
  std::size_t at = 0;
  while (true) {
    std::size_t begin = at;
    while (at < bytes.size() && is_space(text::next_character(bytes, at))) begin = at;
    if (begin == bytes.size()) return words;
    if (words.size() == limit) {
      add(heap, words, text.slice(begin, bytes.size()));
      return words;
    }
    at = begin;
    std::size_t end = at;
    while (at < bytes.size() && !is_space(text::next_character(bytes, at))) end = at;
    add(heap, words, text.slice(begin, end));
    at = end;
  }
}

std::vector<Value> split_at_space_from_right(Heap& heap, const Text& text, std::size_t limit) {
  const std::string_view bytes = text.view();
  std::vector<Value> words;
  // Moves `end` back over characters that are space, or that are not.
  const auto skip_back = [&](std::size_t end, bool space) {
    while (end > 0) {
      const std::size_t offset = text::last_character_offset(bytes.substr(0, end));
      std::size_t next = offset;
      if (is_space(text::next_character(bytes, next)) != space) break;
      end = offset;
    }
    return end;
  };
  for (std::size_t end = skip_back(bytes.size(), true); end > 0;) {
    if (words.size() == limit) {
      add(heap, words, text.slice(0, end));
      break;
    }
    const std::size_t begin = skip_back(end, false);
    add(heap, words, text.slice(begin, end));
    end = skip_back(begin, true);
  }
  std::reverse(words.begin(), words.end());
  return words;
}

std::vector<Value> split_at(Heap& heap, const Text& text, std::string_view separator, std::size_t limit) {
  std::vector<Value> pieces;
  std::size_t begin = 0;
  while (pieces.size() < limit) {
    const std::size_t found = text.view().find(separator, begin);
    if (found == std::string_view::npos) break;
    add(heap, pieces, text.slice(begin, found));
    begin = found + separator.size();
  }
  add(heap, pieces, text.slice(begin, text.size()));
  return pieces;
}

std::vector<Value> split_at_from_right(Heap& heap, const Text& text, std::string_view separator, std::size_t limit) {
  std::vector<Value> pieces;
  std::size_t end = text.size();
  while (pieces.size() < limit) {
    const std::size_t found = text.view().substr(0, end).rfind(separator);
    if (found == std::string_view::npos) break;
    add(heap, pieces, text.slice(found + separator.size(), end));
    end = found;
  }
  add(heap, pieces, text.slice(0, end));
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

}  // namespace

Text strip(Heap& heap, const Text& text, Side side, const Text* characters) {
  const std::string_view bytes = text.view();
  std::u32string wanted;
  if (characters != nullptr) {
    for (std::size_t at = 0; at < characters->size();) wanted += text::next_character(characters->view(), at);
  }
  const auto is_stripped = [&](char32_t character) {
    return characters == nullptr ? is_space(character) : wanted.find(character) != std::u32string::npos;
  };
  std::size_t begin = 0;
  std::size_t end = bytes.size();
  for (std::size_t at = 0; side != Side::right && at < end && is_stripped(text::next_character(bytes, at));) begin = at;
  while (side != Side::left && end > begin) {
    const std::size_t offset = text::last_character_offset(bytes.substr(0, end));
    std::size_t next = offset;
    if (!is_stripped(text::next_character(bytes, next))) break;
    end = offset;
  }
  heap.look_at((bytes.size() - (end - begin)) * (1 + wanted.size()));
  return text.slice(begin, end);
}

Text to_lower(Heap& heap, const Text& text) {
  return map_characters(heap, text, [&](std::string& out, char32_t character, std::size_t offset) {
    append_lower(out, character, text.view(), offset);
  });
}

Text to_upper(Heap& heap, const Text& text) {
  return map_characters(heap, text, [](std::string& out, char32_t character, std::size_t) {
    append_case(out, character, LetterCase::upper);
  });
}

Text casefold(Heap& heap, const Text& text) {
  return map_characters(heap, text, [](std::string& out, char32_t character, std::size_t) {
    append_case(out, character, LetterCase::folded);
  });
}

Text swap_case(Heap& heap, const Text& text) {
  return map_characters(heap, text, [&](std::string& out, char32_t character, std::size_t offset) {
    if (is_upper(character)) {
      append_lower(out, character, text.view(), offset);
    } else if (is_lower(character)) {
      append_case(out, character, LetterCase::upper);
    } else {
      text::append_utf8(out, character);
    }
  });
}

Text capitalize(Heap& heap, const Text& text) {
  return map_characters(heap, text, [&](std::string& out, char32_t character, std::size_t offset) {
    if (offset == 0) {
      append_case(out, character, LetterCase::title);
    } else {
      append_lower(out, character, text.view(), offset);
    }
  });
}

Text title(Heap& heap, const Text& text) {
  bool is_inside_word = false;
  return map_characters(heap, text, [&](std::string& out, char32_t character, std::size_t offset) {
    if (is_inside_word) {
      append_lower(out, character, text.view(), offset);
    } else {
      append_case(out, character, LetterCase::title);
    }
    is_inside_word = is_lower(character) || is_upper(character) || is_title(character);
  });
}

Text escape_html(Heap& heap, const Text& text) {
  heap.look_at(4 * text.size());
  TextBuilder out(heap);
  text.for_each_run([&](std::string_view run, bool is_inserted) {
    std::string escaped;
    for (const char c : run) {
      switch (c) {
        case '&':
          escaped += "&amp;";
          break;
        case '<':
          escaped += "&lt;";
          break;
        case '>':
          escaped += "&gt;";
          break;
        case '\'':
          escaped += "&#39;";
          break;
        case '"':
          escaped += "&#34;";
          break;
        default:
          escaped += c;
      }
    }
    out.append(escaped, is_inserted);
  });
  return out.finish();
}

Text replace(Heap& heap, const Text& text, const Text& old, const Text& replacement, std::size_t count) {
  heap.look_at(text.size());
  const std::string_view bytes = text.view();
  TextBuilder builder(heap);
  if (old.empty()) {  // insert before each character, and at the end
    std::size_t at = 0;
    for (; count > 0; --count) {
      heap.step();
      builder.append(replacement);
      if (at == bytes.size()) return builder.finish();
      const std::size_t begin = at;
      text::next_character(bytes, at);
      builder.append(text.slice(begin, at));
    }
    builder.append(text.slice(at, bytes.size()));
    return builder.finish();
  }
  std::size_t begin = 0;
  for (; count > 0; --count) {
    const std::size_t found = bytes.find(old.view(), begin);
    if (found == std::string_view::npos) break;
    heap.step();
    builder.append(text.slice(begin, found));
    builder.append(replacement);
    begin = found + old.size();
  }
  if (begin == 0) return text;
  builder.append(text.slice(begin, bytes.size()));
  return builder.finish();
}

Text repeat(Heap& heap, const Text& text, std::int64_t times) {
  if (times <= 0 || text.empty()) return kEmptyText;
  if (times == 1) return text;
  // Checked before anything is built, because the result may be far too large.
  if (static_cast<std::uint64_t>(times) > heap.limits().max_bytes_made / text.size()) {
    throw Failure("the values of the template exceed the memory limit");
  }
  TextBuilder builder(heap);
  for (; times > 0; --times) {
    heap.step();
    builder.append(text);
  }
  return builder.finish();
}

Text join(Heap& heap, const Text& separator, const std::vector<Text>& pieces) {
  if (pieces.size() == 1) return pieces.front();
  TextBuilder builder(heap);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    heap.step();
    if (i > 0) builder.append(separator);
    builder.append(pieces[i]);
  }
  return builder.finish();
}

Text pad(Heap& heap, const Text& text, std::int64_t width, Align align, const Text& fill) {
  const auto size = static_cast<std::int64_t>(count_characters(text));
  if (width <= size) return text;
  const std::int64_t missing = width - size;
  std::int64_t left = align == Align::left ? 0 : missing;
  if (align == Align::center) left = missing / 2 + (missing & width & 1);  // rounds as CPython does
  return join(heap, kEmptyText, {repeat(heap, fill, left), text, repeat(heap, fill, missing - left)});
}

std::vector<Value> split(Heap& heap, const Text& text, const Text* separator, std::size_t limit, bool from_right) {
  if (separator != nullptr && separator->empty()) throw Failure("empty separator");
  heap.look_at(4 * text.size());
  std::vector<Value> pieces;
  if (separator == nullptr) {
    pieces = from_right ? split_at_space_from_right(heap, text, limit) : split_at_space(heap, text, limit);
  } else {
    pieces = from_right ? split_at_from_right(heap, text, separator->view(), limit)
                        : split_at(heap, text, separator->view(), limit);
  }
  return pieces;
}

std::vector<Text> split_lines(Heap& heap, const Text& text, bool keep_ends) {
  heap.look_at(4 * text.size());
  const std::string_view bytes = text.view();
  std::vector<Text> lines;
  for (std::size_t begin = 0; begin < bytes.size();) {
    std::size_t end = begin;
    std::size_t next = begin;
    while (next < bytes.size()) {
      const char32_t character = text::next_character(bytes, next);
      if (is_line_break(character)) {
        if (character == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
        break;
      }
      end = next;
    }
    heap.step();
    heap.take(sizeof(Value));
    lines.push_back(text.slice(begin, keep_ends ? next : end));
    begin = next;
  }
  return lines;
}

SliceIndices slice_indices(std::size_t size, std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
                           std::int64_t step) {
  if (step == 0) throw Failure("slice step cannot be zero");
  const auto count = static_cast<std::int64_t>(size);
  const std::int64_t low = step > 0 ? 0 : -1;
  const std::int64_t high = step > 0 ? count : count - 1;
  const auto clamp = [&](std::int64_t index) {
    if (index < 0) index += count;
    return std::clamp(index, low, high);
  };
  const std::int64_t first = start ? clamp(*start) : (step > 0 ? low : high);
  const std::int64_t last = stop ? clamp(*stop) : (step > 0 ? high : low);
  const std::int64_t distance = step > 0 ? last - first : first - last;
  if (distance <= 0) return {first, 0};
  const std::uint64_t stride = step > 0 ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
  return {first, static_cast<std::size_t>((static_cast<std::uint64_t>(distance) - 1) / stride + 1)};
}

Text slice_characters(Heap& heap, const Text& text, std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
                      std::int64_t step) {
  heap.look_at(text.is_ascii() ? 0 : 2 * text.size());
  const SliceIndices indices = slice_indices(count_characters(text), start, stop, step);
  if (indices.count == 0) return kEmptyText;
  if (step == 1) {
    const std::size_t begin = character_offset(text, static_cast<std::size_t>(indices.first));
    const Text rest = text.slice(begin, text.size());
    return rest.slice(0, character_offset(rest, indices.count));
  }
  std::vector<std::uint32_t> offsets;  // offsets of the characters, and of the end
  heap.take((text.size() + 1) * sizeof(std::uint32_t));
  heap.look_at(8 * text.size());
  for (std::size_t at = 0; at < text.size(); text::next_character(text.view(), at)) {
    offsets.push_back(static_cast<std::uint32_t>(at));
  }
  offsets.push_back(static_cast<std::uint32_t>(text.size()));
  TextBuilder builder(heap);
  heap.step(indices.count / 8);
  for (std::size_t i = 0; i < indices.count; ++i) {
    const auto index = static_cast<std::size_t>(indices.first + static_cast<std::int64_t>(i) * step);
    builder.append(text.slice(offsets[index], offsets[index + 1]));
  }
  return builder.finish();
}

}  // namespace pagoda::jinja
