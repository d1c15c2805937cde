#include "io/jinja/json_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "engine/text/unicode.hpp"
#include "io/jinja/compare.hpp"
#include "io/jinja/numbers.hpp"

namespace pagoda::jinja {
namespace {

void append_unicode_escape(std::string& out, unsigned unit) {
  std::array<char, 16> escape{};
  std::snprintf(escape.data(), escape.size(), "\\u%04x", unit);
  out += escape.data();
}

void append_escaped(std::string& out, char32_t character, bool ensure_ascii) {
  switch (character) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\b':
      out += "\\b";
      return;
    default:
      break;
  }
  if (character < 0x20) {
    append_unicode_escape(out, character);
  } else if (character < 0x7F || !ensure_ascii) {
    text::append_utf8(out, character);
  } else if (character < 0x10000) {
    append_unicode_escape(out, character);
  } else {
    append_unicode_escape(out, 0xD800 + ((character - 0x10000) >> 10U));
    append_unicode_escape(out, 0xDC00 + ((character - 0x10000) & 0x3FFU));
  }
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Heap& heap) : style_(style), heap_(heap), out_(heap) {}

  void write(const Value& value, bool is_inserted) {
    heap_.step();
    switch (value.kind) {
      case Kind::none:
      case Kind::boolean:
      case Kind::integer:
      case Kind::big_integer:
      case Kind::real:
        out_.append(scalar(value), is_inserted);
        break;
      case Kind::text:
        write_text(value.text);
        break;
      case Kind::list:
      case Kind::tuple:
        write_list(value.list());
        break;
      case Kind::dict:
        write_dict(value.dict());
        break;
      default:
        throw Failure("Object of type " + std::string(type_name(value)) + " is not JSON serializable");
    }
  }

  Text finish() const { return out_.finish(); }

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is(Kind::boolean)) return value.boolean ? "true" : "false";
    if (value.is(Kind::integer)) return std::to_string(value.integer);
    if (value.is(Kind::big_integer)) return std::string(value.text.view());
    if (std::isnan(value.real)) return "NaN";
    if (std::isinf(value.real)) return value.real > 0 ? "Infinity" : "-Infinity";
    return real_text(value.real);
  }

  void write_text(const Text& text) {
    heap_.look_at(4 * text.size());
    const bool is_inserted = !text.empty() && text.is_inserted(0);
    out_.append("\"", is_inserted);
    text.for_each_run([&](std::string_view run, bool run_is_inserted) {
      escaped_.clear();
      for (std::size_t at = 0; at < run.size();) {
        append_escaped(escaped_, text::next_character(run, at), style_.ensure_ascii);
      }
      out_.append(escaped_, run_is_inserted);
    });
    out_.append("\"", is_inserted);
  }

  // The punctuation of a container of the input counts as input too.
  void write_style(const Text& text, bool is_inserted) {
    if (is_inserted) {
      out_.append(text.view(), true);
    } else {
      out_.append(text);
    }
  }

  void start_line(bool is_inserted) {
    if (!style_.has_indent) return;
    out_.append("\n", is_inserted);
    for (int i = 0; i < depth_; ++i) write_style(style_.indent, is_inserted);
  }

  // Calls write_item(i) for all i below size, between brackets.
  template <class WriteItem>
  void write_items(std::string_view brackets, std::size_t size, bool is_inserted, WriteItem write_item) {
    if (size == 0) {
      out_.append(brackets, is_inserted);
      return;
    }
    out_.append(brackets.substr(0, 1), is_inserted);
    ++depth_;
    for (std::size_t i = 0; i < size; ++i) {
      if (i > 0) write_style(style_.item_separator, is_inserted);
      start_line(is_inserted);
      write_item(i);
    }
    --depth_;
    start_line(is_inserted);
    out_.append(brackets.substr(1), is_inserted);
  }

  void write_list(const List& list) {
    write_items("[]", list.items.size(), list.from_input,
                [&](std::size_t i) { write(list.items[i], list.from_input); });
  }

  void write_dict(const Dict& dict) {
    std::vector<const std::pair<Value, Value>*> entries;
    heap_.take(dict.entries.size() * sizeof(void*));
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const auto* a, const auto* b) { return less(a->first, b->first, heap_); });
    }
    write_items("{}", entries.size(), dict.from_input, [&](std::size_t i) {
      write_key(entries[i]->first, dict.from_input);
      write_style(style_.key_separator, dict.from_input);
      write(entries[i]->second, dict.from_input);
    });
  }

  void write_key(const Value& key, bool is_inserted) {
    if (key.is_text()) {
      write_text(key.text);
    } else if (key.is_number() || key.is(Kind::big_integer) || key.is_none()) {
      out_.append("\"" + scalar(key) + "\"", is_inserted);
    } else {
      throw Failure("keys must be str, int, float, bool or None, not " + std::string(type_name(key)));
    }
  }

  const JsonStyle& style_;
  Heap& heap_;
  TextBuilder out_;
  std::string escaped_;
  int depth_ = 0;
};

}  // namespace

Text to_json(const Value& value, const JsonStyle& style, Heap& heap) {
  JsonWriter writer(style, heap);
  writer.write(value, false);
  return writer.finish();
}

}  // namespace pagoda::jinja
