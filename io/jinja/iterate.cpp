#include "io/jinja/iterate.hpp"

#include "engine/text/unicode.hpp"
#include "io/jinja/callable.hpp"

namespace pagoda::jinja {
namespace {

// Iterates over get(i) for all i below size.
template <class Get>
Iterator& iterate_indices(Heap& heap, std::size_t size, Get get) {
  return make_iterator(heap,
                       [i = std::size_t{0}, size, get](Value& item) mutable {
                         if (i == size) return false;
                         item = get(i++);
                         return true;
                       })
      .iterator();
}

Iterator& iterate_characters(const Text& text, Heap& heap) {
  return make_iterator(heap,
                       [text, at = std::size_t{0}](Value& item) mutable {
                         if (at == text.size()) return false;
                         const std::size_t begin = at;
                         text::next_character(text.view(), at);
                         item = text.slice(begin, at);
                         return true;
                       })
      .iterator();
}

}  // namespace

Iterator& iterate(const Value& value, Heap& heap) {
  switch (value.kind) {
    case Kind::undefined:
      return iterate_indices(heap, 0, [](std::size_t) { return Value(); });
    case Kind::text:
      return iterate_characters(value.text, heap);
    case Kind::list:
    case Kind::tuple:
      return iterate_indices(heap, value.list().items.size(),
                             [list = &value.list()](std::size_t i) { return list->items[i]; });
    case Kind::dict:
      return iterate_indices(heap, value.dict().entries.size(),
                             [dict = &value.dict()](std::size_t i) { return dict->entries[i].first; });
    case Kind::range:
      return iterate_indices(heap, value.range().size(),
                             [range = &value.range()](std::size_t i) { return Value::of(range->at(i)); });
    case Kind::view:
      return iterate_indices(heap, value.view().dict->entries.size(),
                             [view = &value.view(), &heap](std::size_t i) { return view->at(i, heap); });
    case Kind::iterator:
      return value.iterator();
    case Kind::special_object:
      if (Iterator* iterator = value.special().as_iterator()) return *iterator;
      break;
    default:
      break;
  }
  throw Failure("'" + std::string(type_name(value)) + "' object is not iterable");
}

std::optional<std::size_t> length(const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
      return 0;
    case Kind::text:
      return count_characters(value.text);
    case Kind::list:
    case Kind::tuple:
      return value.list().items.size();
    case Kind::dict:
      return value.dict().entries.size();
    case Kind::range:
      return value.range().size();
    case Kind::view:
      return value.view().dict->entries.size();
    default:
      return std::nullopt;
  }
}

std::size_t require_length(const Value& value) {
  if (const auto size = length(value)) return *size;
  throw Failure("object of type '" + std::string(type_name(value)) + "' has no len()");
}

std::size_t count_characters(const Text& text) {
  if (text.is_ascii()) return text.size();
  std::size_t count = 0;
  for (const char byte : text.view()) count += (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U ? 1 : 0;
  return count;
}

std::size_t character_offset(const Text& text, std::size_t index) {
  if (text.is_ascii()) return index <= text.size() ? index : std::string_view::npos;
  const std::string_view bytes = text.view();
  std::size_t at = 0;
  for (; index > 0 && at < bytes.size(); --index) text::next_character(bytes, at);
  return index == 0 ? at : std::string_view::npos;
}

std::vector<Value> to_vector(const Value& value, Heap& heap) {
  std::vector<Value> items;
  for_each(value, heap, [&](const Value& item) {
    heap.take(sizeof(Value));
    items.push_back(item);
    return true;
  });
  return items;
}

}  // namespace pagoda::jinja
