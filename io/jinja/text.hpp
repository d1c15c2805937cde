#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/jinja/heap.hpp"
#include "io/jinja/object.hpp"
#include "io/jinja/text_range.hpp"

namespace pagoda::jinja {

struct Text;

/// Bytes (valid UTF-8) that only grow, and the ranges that come from the input. Texts are views of a buffer; bytes
/// after a view do not belong to it.
struct TextBuffer : Object {
  std::string bytes;
  std::vector<TextRange> inserted;  ///< ascending, not adjacent
  std::size_t first_non_ascii = std::string::npos;
  /// Whether the buffer belongs to a template, which several threads may render: nothing may be appended.
  bool frozen = false;

  void append(std::string_view more, bool is_inserted);
  void append(const Text& more);
};

/// A string value with its provenance. Valid as long as the heap that owns its buffer.
struct Text {
  TextBuffer* buffer;  ///< null: empty
  std::uint32_t begin;
  std::uint32_t end;

  std::string_view view() const {
    return buffer == nullptr ? std::string_view() : std::string_view(buffer->bytes).substr(begin, end - begin);
  }
  std::size_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool is_ascii() const { return buffer == nullptr || end <= buffer->first_non_ascii; }

  /// Returns the bytes [from, to) of this text, without a copy.
  Text slice(std::size_t from, std::size_t to) const {
    return {buffer, static_cast<std::uint32_t>(begin + from), static_cast<std::uint32_t>(begin + to)};
  }
  /// Returns the slice for a piece of view().
  Text slice(std::string_view piece) const {
    const auto from = static_cast<std::size_t>(piece.data() - view().data());
    return slice(from, from + piece.size());
  }

  /// Returns whether the byte at `offset` comes from the input.
  bool is_inserted(std::size_t offset) const;
  /// Calls visit(std::string_view, bool inserted) for the longest pieces of one provenance, in order.
  template <class Visit>
  void for_each_run(Visit&& visit) const;
};

inline constexpr Text kEmptyText{nullptr, 0, 0};

/// Builds a text piece by piece.
class TextBuilder {
 public:
  explicit TextBuilder(Heap& heap) : heap_(heap), buffer_(heap.make<TextBuffer>()) {}

  void append(std::string_view bytes, bool is_inserted) {
    count(bytes.size());
    buffer_->append(bytes, is_inserted);
  }
  void append(const Text& text) {
    count(text.size());
    buffer_->append(text);
  }
  void append_character(char32_t character, bool is_inserted);
  std::size_t size() const { return buffer_->bytes.size(); }
  Text finish() const { return {buffer_, 0, static_cast<std::uint32_t>(size())}; }
  const TextBuffer& buffer() const { return *buffer_; }

 private:
  void count(std::size_t bytes);

  Heap& heap_;
  TextBuffer* buffer_;
};

Text make_text(Heap& heap, std::string_view bytes, bool is_inserted = false);
/// Returns left + right. Appends in place where `left` ends its buffer, so that a text that grows piece by piece takes
/// linear time.
Text concatenate(Heap& heap, const Text& left, const Text& right);

template <class Visit>
void Text::for_each_run(Visit&& visit) const {
  if (empty()) return;
  std::size_t at = begin;
  const std::string_view bytes = buffer->bytes;
  const auto& ranges = buffer->inserted;
  // Finds the first range that ends after the text's begin.
  std::size_t low = 0;
  for (std::size_t high = ranges.size(); low < high;) {
    const std::size_t middle = (low + high) / 2;
    if (ranges[middle].end <= begin) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  for (; low < ranges.size() && ranges[low].begin < end; ++low) {
    const std::size_t from = ranges[low].begin < begin ? begin : ranges[low].begin;
    const std::size_t to = ranges[low].end > end ? end : ranges[low].end;
    if (at < from) visit(bytes.substr(at, from - at), false);
    visit(bytes.substr(from, to - from), true);
    at = to;
  }
  if (at < end) visit(bytes.substr(at, end - at), false);
}

}  // namespace pagoda::jinja
