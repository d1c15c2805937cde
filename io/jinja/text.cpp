#include "io/jinja/text.hpp"

#include <limits>

#include "engine/text/unicode.hpp"

namespace pagoda::jinja {

void TextBuffer::append(std::string_view more, bool is_inserted) {
  if (more.empty()) return;
  if (first_non_ascii == std::string::npos) {
    for (std::size_t i = 0; i < more.size(); ++i) {
      if (static_cast<unsigned char>(more[i]) >= 0x80) {
        first_non_ascii = bytes.size() + i;
        break;
      }
    }
  }
  const std::size_t from = bytes.size();
  bytes.append(more);
  if (!is_inserted) return;
  if (!inserted.empty() && inserted.back().end == from) {
    inserted.back().end = bytes.size();
  } else {
    inserted.push_back({from, bytes.size()});
  }
}

void TextBuffer::append(const Text& more) {
  if (more.buffer == this) {
    // The buffer's own runs move while it grows.
    TextBuffer copy;
    more.for_each_run([&](std::string_view run, bool is_inserted) { copy.append(run, is_inserted); });
    append(Text{&copy, 0, static_cast<std::uint32_t>(copy.bytes.size())});
    return;
  }
  more.for_each_run([&](std::string_view run, bool is_inserted) { append(run, is_inserted); });
}

bool Text::is_inserted(std::size_t offset) const {
  bool found = false;
  slice(offset, offset + 1).for_each_run([&](std::string_view, bool is_inserted) { found = is_inserted; });
  return found;
}

void TextBuilder::count(std::size_t bytes) {
  heap_.take(bytes);
  if (size() + bytes > std::numeric_limits<std::uint32_t>::max()) throw Failure("a text of more than 4 GiB");
}

void TextBuilder::append_character(char32_t character, bool is_inserted) {
  std::string bytes;
  text::append_utf8(bytes, character);
  append(bytes, is_inserted);
}

Text make_text(Heap& heap, std::string_view bytes, bool is_inserted) {
  if (bytes.empty()) return kEmptyText;
  TextBuilder builder(heap);
  builder.append(bytes, is_inserted);
  return builder.finish();
}

Text concatenate(Heap& heap, const Text& left, const Text& right) {
  if (left.empty()) return right;
  if (right.empty()) return left;
  const bool ends_its_buffer = left.end == left.buffer->bytes.size();
  if (ends_its_buffer && !left.buffer->frozen) {
    heap.take(right.size());
    heap.look_at(right.size());
    if (left.end + right.size() > std::numeric_limits<std::uint32_t>::max()) throw Failure("a text of more than 4 GiB");
    left.buffer->append(right);
    return {left.buffer, left.begin, static_cast<std::uint32_t>(left.buffer->bytes.size())};
  }
  heap.look_at(left.size() + right.size());
  TextBuilder builder(heap);
  builder.append(left);
  builder.append(right);
  return builder.finish();
}

}  // namespace pagoda::jinja
