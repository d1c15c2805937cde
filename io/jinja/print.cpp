#include "io/jinja/print.hpp"

#include <array>
#include <cstdio>

#include "engine/text/unicode.hpp"
#include "io/jinja/callable.hpp"
#include "io/jinja/characters.hpp"
#include "io/jinja/numbers.hpp"

namespace pagoda::jinja {
namespace {

void append_escaped(std::string& out, char32_t character, char quote) {
  if (character == static_cast<unsigned char>(quote) || character == '\\') {
    out += '\\';
    out += static_cast<char>(character);
    return;
  }
  if (character == '\n' || character == '\r' || character == '\t') {
    out += '\\';
    out += character == '\n' ? 'n' : (character == '\r' ? 'r' : 't');
    return;
  }
  if (is_printable(character)) {
    text::append_utf8(out, character);
    return;
  }
  std::array<char, 16> escape{};
  const char* format = character < 0x100 ? "\\x%02x" : (character < 0x10000 ? "\\u%04x" : "\\U%08x");
  std::snprintf(escape.data(), escape.size(), format, static_cast<unsigned>(character));
  out += escape.data();
}

void append_text_repr(TextBuilder& out, const Text& text, Heap& heap) {
  heap.look_at(4 * text.size());
  const bool has_single = text.view().find('\'') != std::string_view::npos;
  const char quote = has_single && text.view().find('"') == std::string_view::npos ? '"' : '\'';
  const std::string_view quote_text(&quote, 1);
  // A quote has the provenance of the text beside it, so that inserted text stays in one piece.
  const bool is_inserted = !text.empty() && text.is_inserted(0);
  out.append(quote_text, is_inserted);
  std::string escaped;
  text.for_each_run([&](std::string_view run, bool run_is_inserted) {
    escaped.clear();
    for (std::size_t at = 0; at < run.size();) append_escaped(escaped, text::next_character(run, at), quote);
    out.append(escaped, run_is_inserted);
  });
  out.append(quote_text, is_inserted);
}

void append_items(TextBuilder& out, const std::vector<Value>& items, bool is_inserted, Heap& heap) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(", ", is_inserted);
    append_repr(out, items[i], heap);
  }
}

void append_dict(TextBuilder& out, const Dict& dict, Heap& heap) {
  out.append("{", dict.from_input);
  bool is_first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!is_first) out.append(", ", dict.from_input);
    is_first = false;
    append_repr(out, key, heap);
    out.append(": ", dict.from_input);
    append_repr(out, value, heap);
  }
  out.append("}", dict.from_input);
}

void append_view(TextBuilder& out, const DictView& view, Heap& heap) {
  static constexpr std::array<std::string_view, 3> kNames = {"dict_keys([", "dict_values([", "dict_items(["};
  out.append(kNames[static_cast<std::size_t>(view.part)], false);
  for (std::size_t i = 0; i < view.dict->entries.size(); ++i) {
    if (i > 0) out.append(", ", false);
    append_repr(out, view.at(i, heap), heap);
  }
  out.append("])", false);
}

std::string range_text(const Range& range) {
  std::string text = "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
  if (range.step != 1) text += ", " + std::to_string(range.step);
  return text + ")";
}

}  // namespace

Text to_text(const Value& value, Heap& heap) {
  if (value.is_text()) return value.text;
  if (value.is_undefined()) return kEmptyText;
  TextBuilder out(heap);
  append_repr(out, value, heap);
  return out.finish();
}

void append_text(TextBuilder& out, const Value& value, Heap& heap) {
  if (value.is_text()) {
    out.append(value.text);
  } else if (!value.is_undefined()) {
    append_repr(out, value, heap);
  }
}

void append_repr(TextBuilder& out, const Value& value, Heap& heap) {
  heap.step();
  switch (value.kind) {
    case Kind::undefined:
      out.append("Undefined", false);
      break;
    case Kind::none:
      out.append("None", false);
      break;
    case Kind::boolean:
      out.append(value.boolean ? "True" : "False", false);
      break;
    case Kind::integer:
      out.append(std::to_string(value.integer), false);
      break;
    case Kind::big_integer:
      out.append(value.text.view(), false);
      break;
    case Kind::real:
      out.append(real_text(value.real), false);
      break;
    case Kind::text:
      append_text_repr(out, value.text, heap);
      break;
    case Kind::list:
      out.append("[", value.list().from_input);
      append_items(out, value.list().items, value.list().from_input, heap);
      out.append("]", value.list().from_input);
      break;
    case Kind::tuple:
      out.append("(", false);
      append_items(out, value.list().items, false, heap);
      out.append(value.list().items.size() == 1 ? ",)" : ")", false);
      break;
    case Kind::dict:
      append_dict(out, value.dict(), heap);
      break;
    case Kind::range:
      out.append(range_text(value.range()), false);
      break;
    case Kind::view:
      append_view(out, value.view(), heap);
      break;
    case Kind::iterator:
      out.append("<generator object>", false);
      break;
    case Kind::callable:
      out.append(value.callable().describe(), false);
      break;
    case Kind::special_object:
      out.append(value.special().describe(), false);
      break;
  }
}

}  // namespace pagoda::jinja
