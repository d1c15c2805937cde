// Filters that return texts.

#include "engine/text/unicode.hpp"
#include "io/jinja/attribute_path.hpp"
#include "io/jinja/characters.hpp"
#include "io/jinja/filters.hpp"
#include "io/jinja/formatting.hpp"
#include "io/jinja/interpreter.hpp"
#include "io/jinja/iterate.hpp"
#include "io/jinja/json_text.hpp"
#include "io/jinja/print.hpp"
#include "io/jinja/text_functions.hpp"

namespace pagoda::jinja {
namespace {

template <Text (*function)(Heap&, const Text&)>
Value map_text(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("a filter", arguments, {}, 0);
  return Value(function(interpreter.heap(), to_text(input, interpreter.heap()))).marked_as(input);
}

Text as_text(Heap&, const Text& text) {
  return text;
}

// Makes the first letter of each word upper case, the others lower; words start after white space, hyphens and opening
// brackets.
Text title_words(Heap& heap, const Text& text) {
  const auto is_break = [](char32_t c) {
    return is_space(c) || std::u32string_view(U"-({[<").find(c) != std::u32string_view::npos;
  };
  TextBuilder out(heap);
  const std::string_view bytes = text.view();
  for (std::size_t begin = 0; begin < bytes.size();) {
    // A run of breaks, or of other characters.
    std::size_t at = begin;
    std::size_t end = begin;
    const bool breaks = is_break(text::next_character(bytes, at));
    for (end = at; at < bytes.size() && is_break(text::next_character(bytes, at)) == breaks; end = at) continue;
    const Text run = text.slice(begin, end);
    std::size_t first = 0;
    text::next_character(run.view(), first);
    out.append(to_upper(heap, run.slice(0, first)));
    out.append(to_lower(heap, run.slice(first, run.size())));
    begin = end;
  }
  return out.finish();
}

// `safe` and `escape` return marked-up text.
Value mark(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("safe", arguments, {}, 0);
  Value marked = to_text(input, interpreter.heap());
  marked.is_markup = true;
  return marked;
}

// The words of Markup are joined to a plain text in Jinja2.
Value title_filter(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("title", arguments, {}, 0);
  return title_words(interpreter.heap(), to_text(input, interpreter.heap()));
}

Value escape(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("escape", arguments, {}, 0);
  Heap& heap = interpreter.heap();
  Value escaped = input.is_markup ? input.text : escape_html(heap, to_text(input, heap));
  escaped.is_markup = true;
  return escaped;
}

Value trim(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"}, 0);
  const Text text = to_text(input, interpreter.heap());
  return Value(strip(interpreter.heap(), text, Side::both, bound.is_none(0) ? nullptr : &bound.text(0)))
      .marked_as(input);
}

Value replace_filter(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  Heap& heap = interpreter.heap();
  const std::int64_t count = bound.is_none(2) ? -1 : bound.integer(2, -1);
  return replace(heap, to_text(input, heap), to_text(bound[0], heap), to_text(bound[1], heap),
                 count < 0 ? kNoLimit : static_cast<std::size_t>(count));
}

Value center(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("center", arguments, {"width"}, 0);
  Heap& heap = interpreter.heap();
  return Value(pad(heap, to_text(input, heap), bound.integer(0, 80), Align::center, make_text(heap, " ")))
      .marked_as(input);
}

Value format(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  Heap& heap = interpreter.heap();
  const Text text = to_text(input, heap);
  if (arguments.named.empty()) {
    const Value values = make_list(heap, arguments.positional, Kind::tuple);
    return format_percent(heap, text, values).marked_as(input);
  }
  if (!arguments.positional.empty()) {
    throw Failure("can't handle positional and keyword arguments at the same time");
  }
  auto* values = heap.make<Dict>();
  for (const auto& [name, value] : arguments.named) values->set(heap, name, value);
  return format_percent(heap, text, Value(Kind::dict, values)).marked_as(input);
}

const Text& require_text(const Value& value, std::string_view who) {
  if (value.is_undefined()) throw Failure(undefined_message(value));
  if (!value.is_text()) throw Failure(std::string(who) + " needs a str, not " + std::string(type_name(value)));
  return value.text;
}

// Returns the text `width`, or `width` spaces.
Text indentation(Heap& heap, const Value* width) {
  if (width == nullptr) return make_text(heap, "    ");
  return width->is_text() ? width->text : repeat(heap, make_text(heap, " "), to_index(*width, "indent"));
}

Value indent(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"}, 0);
  Heap& heap = interpreter.heap();
  const Text text = require_text(input, "indent");
  const Text indentation_text = indentation(heap, bound.find(0));
  const bool blank = bound.boolean(2, false);
  // With one more line end, the text after the last line end is a line too, even when it is empty.
  const std::vector<Text> lines =
      split_lines(heap, concatenate(heap, concatenate(heap, make_text(heap, ""), text), make_text(heap, "\n")), false);
  TextBuilder out(heap);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n", false);
    const bool is_indented = i == 0 ? bound.boolean(1, false) : (blank || !lines[i].empty());
    if (is_indented) out.append(indentation_text);
    out.append(lines[i]);
  }
  return Value(out.finish()).marked_as(input);
}

Value truncate(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"}, 0);
  Heap& heap = interpreter.heap();
  const std::int64_t length = bound.integer(0, 255);
  const Text end = bound.find(2) != nullptr ? bound.text(2) : make_text(heap, "...");
  const std::int64_t leeway = bound.is_none(3) ? 5 : bound.integer(3, 5);
  const auto end_size = static_cast<std::int64_t>(count_characters(end));
  if (length < end_size) throw Failure("truncate: the length is shorter than what ends the text");
  if (leeway < 0) throw Failure("truncate: expected leeway >= 0");
  if (static_cast<std::int64_t>(require_length(input)) - length <= leeway) return input;
  const Text text = require_text(input, "truncate");
  Text cut = slice_characters(heap, text, 0, length - end_size, 1);
  if (!bound.boolean(1, false)) {
    const std::size_t space = cut.view().rfind(' ');
    if (space != std::string_view::npos) cut = cut.slice(0, space);
  }
  return Value(join(heap, kEmptyText, {cut, end})).marked_as(input);
}

Value count_words(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("wordcount", arguments, {}, 0);
  const Text text = to_text(input, interpreter.heap());
  interpreter.heap().look_at(4 * text.size());
  std::int64_t words = 0;
  bool is_inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = text::next_character(text.view(), at);
    const bool is_word = is_letter(c) || is_numeric(c) || c == '_';
    words += is_word && !is_inside ? 1 : 0;
    is_inside = is_word;
  }
  return Value::of(words);
}

void append_url(TextBuilder& out, const Text& text, bool is_query) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  text.for_each_run([&](std::string_view run, bool is_inserted) {
    std::string quoted;
    for (const char c : run) {
      const auto byte = static_cast<unsigned char>(c);
      const bool is_plain = (byte < 0x80 && std::isalnum(byte) != 0) || c == '_' || c == '.' || c == '-' || c == '~';
      if (is_plain || (c == '/' && !is_query)) {
        quoted += c;
      } else if (c == ' ' && is_query) {
        quoted += '+';
      } else {
        quoted += {'%', kDigits[byte >> 4U], kDigits[byte & 15U]};
      }
    }
    out.append(quoted, is_inserted);
  });
}

Value urlencode(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("urlencode", arguments, {}, 0);
  Heap& heap = interpreter.heap();
  TextBuilder out(heap);
  if (input.is_text() || !(input.is_sequence() || input.is(Kind::dict) || input.is(Kind::view) ||
                           input.is(Kind::iterator) || input.is(Kind::range) || input.is_undefined())) {
    append_url(out, to_text(input, heap), false);
    return out.finish();
  }
  const auto append_pair = [&](const Value& key, const Value& value) {
    if (out.size() > 0) out.append("&", false);
    append_url(out, to_text(key, heap), true);
    out.append("=", false);
    append_url(out, to_text(value, heap), true);
  };
  if (input.is(Kind::dict)) {
    for (const auto& [key, value] : input.dict().entries) append_pair(key, value);
    return out.finish();
  }
  for_each(input, heap, [&](const Value& item) {
    const std::vector<Value> pair = to_vector(item, heap);
    if (pair.size() != 2) throw Failure("urlencode needs pairs");
    append_pair(pair[0], pair[1]);
    return true;
  });
  return out.finish();
}

Value join_filter(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"}, 0);
  Heap& heap = interpreter.heap();
  const AttributePath path(bound.find(1));
  std::vector<Text> pieces;
  for_each(input, heap, [&](const Value& item) {
    heap.take(sizeof(Text));
    pieces.push_back(to_text(path.of(interpreter, item), heap));
    return true;
  });
  return join(heap, bound.find(0) != nullptr ? to_text(bound[0], heap) : kEmptyText, pieces);
}

Value tojson(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  Heap& heap = interpreter.heap();
  JsonStyle style;
  style.ensure_ascii = bound.boolean(0, false);
  style.sort_keys = bound.boolean(3, false);
  style.has_indent = !bound.is_none(1);
  if (style.has_indent) style.indent = indentation(heap, bound.find(1));
  style.item_separator = make_text(heap, style.has_indent ? "," : ", ");
  style.key_separator = make_text(heap, ": ");
  if (!bound.is_none(2)) {
    const std::vector<Value> separators = to_vector(bound[2], heap);
    if (separators.size() != 2) throw Failure("tojson: separators are a pair");
    style.item_separator = require_text(separators[0], "tojson");
    style.key_separator = require_text(separators[1], "tojson");
  }
  return to_json(input, style, heap);
}

}  // namespace

const std::vector<NamedFilter>& text_filters() {
  static const std::vector<NamedFilter> kFilters = {{"capitalize", map_text<capitalize>},
                                                    {"center", center},
                                                    {"e", escape},
                                                    {"escape", escape},
                                                    {"forceescape", escape},
                                                    {"format", format},
                                                    {"indent", indent},
                                                    {"join", join_filter},
                                                    {"lower", map_text<to_lower>},
                                                    {"replace", replace_filter},
                                                    {"safe", mark},
                                                    {"string", map_text<as_text>},
                                                    {"title", title_filter},
                                                    {"tojson", tojson},
                                                    {"trim", trim},
                                                    {"truncate", truncate},
                                                    {"upper", map_text<to_upper>},
                                                    {"urlencode", urlencode},
                                                    {"wordcount", count_words}};
  return kFilters;
}

}  // namespace pagoda::jinja
