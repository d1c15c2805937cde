// Methods of str.

#include <algorithm>

#include "engine/text/unicode.hpp"
#include "io/jinja/formatting.hpp"
#include "io/jinja/interpreter.hpp"
#include "io/jinja/iterate.hpp"
#include "io/jinja/methods.hpp"
#include "io/jinja/text_functions.hpp"

namespace pagoda::jinja {
namespace {

template <Text (*function)(Heap&, const Text&)>
Value change_case(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("a method of str", arguments, {}, 0);
  return function(interpreter.heap(), self.text);
}

template <Side side>
Value strip_side(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("strip", arguments, {"/chars"}, 0);
  return strip(interpreter.heap(), self.text, side, bound.is_none(0) ? nullptr : &bound.text(0));
}

std::size_t to_limit(std::int64_t count) {
  return count < 0 ? kNoLimit : static_cast<std::size_t>(count);
}

template <bool from_right>
Value split_text(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("split", arguments, {"sep", "maxsplit"}, 0);
  const Text* separator = bound.is_none(0) ? nullptr : &bound.text(0);
  Heap& heap = interpreter.heap();
  return make_list(heap, split(heap, self.text, separator, to_limit(bound.integer(1, -1)), from_right));
}

Value split_into_lines(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("splitlines", arguments, {"keepends"}, 0);
  std::vector<Value> lines;
  for (const Text& line : split_lines(interpreter.heap(), self.text, bound.boolean(0, false))) lines.emplace_back(line);
  return make_list(interpreter.heap(), std::move(lines));
}

template <bool from_right>
Value partition(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("partition", arguments, {"/sep"}, 1);
  const Text& text = self.text;
  const Text& separator = bound.text(0);
  if (separator.empty()) throw Failure("empty separator");
  interpreter.heap().look_at(text.size());
  const std::size_t found = from_right ? text.view().rfind(separator.view()) : text.view().find(separator.view());
  std::vector<Value> parts = {text, kEmptyText, kEmptyText};
  if (found != std::string_view::npos) {
    const std::size_t end = found + separator.size();
    parts = {text.slice(0, found), text.slice(found, end), text.slice(end, text.size())};
  } else if (from_right) {
    std::swap(parts[0], parts[2]);
  }
  return make_list(interpreter.heap(), std::move(parts), Kind::tuple);
}

Value replace_text(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"/old", "/new", "/count"}, 2);
  return replace(interpreter.heap(), self.text, bound.text(0), bound.text(1), to_limit(bound.integer(2, -1)));
}

// Returns the part of a text between the arguments `first` (start) and `first` + 1 (end), and sets `begin` to the index
// of its first character. Returns nothing when the start is after the end, where not even an empty text is found.
std::optional<Text> search_part(Heap& heap, const Text& text, const Bound& bound, std::size_t first,
                                std::int64_t& begin) {
  begin = 0;
  if (bound.is_none(first) && bound.is_none(first + 1)) return text;
  const auto size = static_cast<std::int64_t>(count_characters(text));
  const auto clamp = [&](std::size_t index, std::int64_t otherwise) {
    const std::int64_t at = bound.is_none(index) ? otherwise : bound.integer(index, 0);
    return at < 0 ? std::max<std::int64_t>(at + size, 0) : at;
  };
  begin = clamp(first, 0);
  const std::int64_t end = std::min(clamp(first + 1, size), size);
  if (begin > end) return std::nullopt;
  return slice_characters(heap, text, begin, end, 1);
}

template <bool from_right>
std::int64_t find_index(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("find", arguments, {"/sub", "/start", "/end"}, 1);
  Heap& heap = interpreter.heap();
  heap.look_at(self.text.size());
  std::int64_t begin = 0;
  const auto part = search_part(heap, self.text, bound, 1, begin);
  if (!part) return -1;
  const std::string_view sought = bound.text(0).view();
  const std::size_t found = from_right ? part->view().rfind(sought) : part->view().find(sought);
  if (found == std::string_view::npos) return -1;
  return begin + static_cast<std::int64_t>(count_characters(part->slice(0, found)));
}

template <bool from_right>
Value find_text(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return Value::of(find_index<from_right>(interpreter, self, arguments));
}

template <bool from_right>
Value index_of_text(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const std::int64_t index = find_index<from_right>(interpreter, self, arguments);
  if (index < 0) throw Failure("substring not found");
  return Value::of(index);
}

Value count_text(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("count", arguments, {"/sub", "/start", "/end"}, 1);
  Heap& heap = interpreter.heap();
  heap.look_at(self.text.size());
  std::int64_t begin = 0;
  const auto part = search_part(heap, self.text, bound, 1, begin);
  if (!part) return Value::of(std::int64_t{0});
  const std::string_view sought = bound.text(0).view();
  if (sought.empty()) return Value::of(static_cast<std::int64_t>(count_characters(*part)) + 1);
  std::int64_t count = 0;
  for (std::size_t at = part->view().find(sought); at != std::string_view::npos;
       at = part->view().find(sought, at + sought.size())) {
    ++count;
  }
  return Value::of(count);
}

template <bool at_end>
Value has_affix(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound(at_end ? "endswith" : "startswith", arguments, {"/affix", "/start", "/end"}, 1);
  std::int64_t begin = 0;
  const auto part = search_part(interpreter.heap(), self.text, bound, 1, begin);
  const auto fits = [&](const Text& affix) {
    if (!part) return false;
    return at_end ? part->view().ends_with(affix.view()) : part->view().starts_with(affix.view());
  };
  if (!bound[0].is(Kind::tuple)) return Value::of(fits(bound.text(0)));
  for (const Value& affix : bound[0].list().items) {
    if (!affix.is_text()) throw Failure("a tuple for startswith or endswith must only contain str");
    if (fits(affix.text)) return Value::of(true);
  }
  return Value::of(false);
}

template <bool at_end>
Value remove_affix(Interpreter&, const Value& self, const Arguments& arguments) {
  const Bound bound(at_end ? "removesuffix" : "removeprefix", arguments, {"/affix"}, 1);
  const Text& text = self.text;
  const std::size_t size = bound.text(0).size();
  if (at_end) return text.view().ends_with(bound.text(0).view()) ? text.slice(0, text.size() - size) : text;
  return text.view().starts_with(bound.text(0).view()) ? text.slice(size, text.size()) : text;
}

template <Align align>
Value pad_text(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("a method of str", arguments, {"/width", "/fillchar"}, 1);
  const Text fill = bound.find(1) != nullptr ? bound.text(1) : make_text(interpreter.heap(), " ");
  if (count_characters(fill) != 1) throw Failure("The fill character must be exactly one character long");
  return pad(interpreter.heap(), self.text, bound.integer(0, 0), align, fill);
}

Value fill_with_zeros(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("zfill", arguments, {"/width"}, 1);
  Heap& heap = interpreter.heap();
  const Text& text = self.text;
  const bool has_sign = text.view().starts_with('+') || text.view().starts_with('-');
  const Text sign = text.slice(0, has_sign ? 1 : 0);
  const Text rest = text.slice(sign.size(), text.size());
  const std::int64_t width = bound.integer(0, 0);
  if (width <= static_cast<std::int64_t>(count_characters(text))) return text;
  const std::int64_t rest_width = width - (has_sign ? 1 : 0);
  return join(heap, kEmptyText, {sign, pad(heap, rest, rest_width, Align::right, make_text(heap, "0"))});
}

Value join_texts(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Bound bound("join", arguments, {"/iterable"}, 1);
  std::vector<Text> pieces;
  for_each(bound[0], interpreter.heap(), [&](const Value& item) {
    if (!item.is_text()) {
      throw Failure("sequence item " + std::to_string(pieces.size()) + ": expected str instance, " +
                    std::string(type_name(item)) + " found");
    }
    interpreter.heap().take(sizeof(Text));
    pieces.push_back(item.text);
    return true;
  });
  return join(interpreter.heap(), self.text, pieces);
}

Value format_text(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return format_braces(interpreter, self.text, arguments);
}

constexpr std::pair<std::string_view, Method> kMethods[] = {{"capitalize", change_case<capitalize>},
                                                            {"casefold", change_case<casefold>},
                                                            {"center", pad_text<Align::center>},
                                                            {"count", count_text},
                                                            {"endswith", has_affix<true>},
                                                            {"find", find_text<false>},
                                                            {"format", format_text},
                                                            {"index", index_of_text<false>},
                                                            {"join", join_texts},
                                                            {"ljust", pad_text<Align::left>},
                                                            {"lower", change_case<to_lower>},
                                                            {"lstrip", strip_side<Side::left>},
                                                            {"partition", partition<false>},
                                                            {"removeprefix", remove_affix<false>},
                                                            {"removesuffix", remove_affix<true>},
                                                            {"replace", replace_text},
                                                            {"rfind", find_text<true>},
                                                            {"rindex", index_of_text<true>},
                                                            {"rjust", pad_text<Align::right>},
                                                            {"rpartition", partition<true>},
                                                            {"rsplit", split_text<true>},
                                                            {"rstrip", strip_side<Side::right>},
                                                            {"split", split_text<false>},
                                                            {"splitlines", split_into_lines},
                                                            {"startswith", has_affix<false>},
                                                            {"strip", strip_side<Side::both>},
                                                            {"swapcase", change_case<swap_case>},
                                                            {"title", change_case<title>},
                                                            {"upper", change_case<to_upper>},
                                                            {"zfill", fill_with_zeros}};

}  // namespace

Method find_text_method(std::string_view name) {
  const auto* const found = std::lower_bound(std::begin(kMethods), std::end(kMethods), name,
                                             [](const auto& entry, std::string_view key) { return entry.first < key; });
  return found != std::end(kMethods) && found->first == name ? found->second : find_text_predicate(name);
}

}  // namespace pagoda::jinja
