#include <cmath>

#include "engine/text/unicode.hpp"
#include "io/jinja/characters.hpp"
#include "io/jinja/formatting.hpp"
#include "io/jinja/interpreter.hpp"
#include "io/jinja/iterate.hpp"
#include "io/jinja/lookup.hpp"
#include "io/jinja/numbers.hpp"
#include "io/jinja/print.hpp"
#include "io/jinja/text_functions.hpp"

namespace pagoda::jinja {
namespace {

// Form: [[fill]align][sign][#][0][width][,][.precision][type]
struct FormatSpec {
  std::string fill = " ";
  char align = 0;
  bool is_zero_padded = false;
  int width = -1;
  char type = 0;
  NumberFormat number;
};

bool is_align(char c) {
  return c == '<' || c == '>' || c == '=' || c == '^';
}

FormatSpec parse_spec(std::string_view text) {
  FormatSpec spec;
  std::size_t at = 0;
  const auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
  if (!text.empty()) {
    std::size_t next = 0;
    text::next_character(text, next);
    if (next < text.size() && is_align(text[next])) {
      spec.fill = text.substr(0, next);
      spec.align = text[next];
      at = next + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      at = 1;
    }
  }
  if (peek() == '+' || peek() == '-' || peek() == ' ') spec.number.sign = text[at++];
  if (peek() == '#') {
    spec.number.is_alternate = true;
    ++at;
  }
  if (peek() == '0') {
    spec.is_zero_padded = true;
    ++at;
  }
  spec.width = read_size(text, at);
  if (peek() == ',' || peek() == '_') spec.number.grouping = text[at++];
  if (peek() == '.') {
    ++at;
    spec.number.precision = read_size(text, at);
    if (spec.number.precision < 0) throw Failure("Format specifier missing precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) throw Failure("Invalid format specifier");
  return spec;
}

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, const Arguments& arguments)
      : interpreter_(interpreter), heap_(interpreter.heap()), arguments_(arguments) {}

  Text run(const Text& format, int depth) {
    if (depth > 2) throw Failure("Max string recursion exceeded");
    const std::string_view bytes = format.view();
    heap_.look_at(bytes.size());
    TextBuilder out(heap_);
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
      out.append(format.slice(at, brace));
      if (brace == bytes.size()) break;
      at = brace + 1;
      if (at < bytes.size() && bytes[at] == bytes[brace]) {
        out.append(format.slice(brace, at));
        ++at;
      } else if (bytes[brace] == '}') {
        throw Failure("Single '}' encountered in format string");
      } else {
        const std::size_t end = field_end(bytes, at);
        out.append(format_field(format.slice(at, end), depth));
        at = end + 1;
      }
    }
    return out.finish();
  }

 private:
  static std::size_t field_end(std::string_view bytes, std::size_t at) {
    for (int open = 1; at < bytes.size(); ++at) {
      open += bytes[at] == '{' ? 1 : (bytes[at] == '}' ? -1 : 0);
      if (open == 0) return at;
    }
    throw Failure("expected '}' before end of string");
  }

  // Form of a field: name!conversion:spec
  Text format_field(const Text& field, int depth) {
    heap_.step();
    const std::string_view bytes = field.view();
    std::size_t name_end = 0;
    bool is_in_key = false;
    for (; name_end < bytes.size(); ++name_end) {
      const char c = bytes[name_end];
      if (c == '[') is_in_key = true;
      if (c == ']') is_in_key = false;
      if (!is_in_key && (c == '!' || c == ':')) break;
    }
    Value value = find_value(field.slice(0, name_end));
    std::size_t at = name_end;
    if (at < bytes.size() && bytes[at] == '!') {
      const char conversion = at + 1 < bytes.size() ? bytes[at + 1] : '\0';
      if (at + 2 < bytes.size() && bytes[at + 2] != ':') throw Failure("expected ':' after conversion specifier");
      value = convert(value, conversion);
      at += 2;
    }
    const Text spec = at < bytes.size() ? run(field.slice(at + 1, bytes.size()), depth + 1) : kEmptyText;
    return format_value(value, spec.view());
  }

  Value convert(const Value& value, char conversion) {
    if (conversion == 's') return to_text(value, heap_);
    if (conversion != 'r') throw Failure("Unknown conversion specifier");
    TextBuilder representation(heap_);
    append_repr(representation, value, heap_);
    return representation.finish();
  }

  Value find_value(const Text& name) {
    const std::string_view bytes = name.view();
    std::size_t at = std::min(bytes.find_first_of(".["), bytes.size());
    Value value = find_argument(bytes.substr(0, at));
    while (at < bytes.size()) {
      const bool is_attribute = bytes[at] == '.';
      if (!is_attribute && bytes[at] != '[') throw Failure("Only '.' or '[' may follow ']' in format field specifier");
      const std::size_t begin = at + 1;
      at = std::min(is_attribute ? bytes.find_first_of(".[", begin) : bytes.find(']', begin), bytes.size());
      const Text key = name.slice(begin, at);
      if (key.empty()) throw Failure("Empty attribute in format string");
      if (is_attribute) {
        value = get_attribute(interpreter_, value, key);
        continue;
      }
      if (at == bytes.size()) throw Failure("Missing ']' in format string");
      ++at;
      const bool is_number = key.view().find_first_not_of("0123456789") == std::string_view::npos;
      const auto number = is_number ? parse_integer(key.view()) : std::nullopt;
      value = get_item(interpreter_, value, number ? Value::of(*number) : Value(key));
    }
    return value;
  }

  Value find_argument(std::string_view name) {
    const bool is_number = name.find_first_not_of("0123456789") == std::string_view::npos;
    if (!is_number) {
      const Value* value = arguments_.find(name);
      if (value == nullptr) throw Failure("format() has no argument '" + std::string(name) + "'");
      return *value;
    }
    const Numbering wanted = name.empty() ? Numbering::automatic : Numbering::by_hand;
    if (numbering_ != Numbering::unknown && numbering_ != wanted) {
      throw Failure("cannot switch between manual field specification and automatic field numbering");
    }
    numbering_ = wanted;
    const auto index = name.empty() ? next_++ : static_cast<std::size_t>(parse_integer(name).value_or(0));
    if (index >= arguments_.positional.size())
      throw Failure("Replacement index out of range for positional args tuple");
    return arguments_.positional[index];
  }

  Text format_value(const Value& value, std::string_view spec_text) {
    if (spec_text.empty()) return to_text(value, heap_);
    const FormatSpec spec = parse_spec(spec_text);
    if (value.is_text()) return format_text(value.text, spec);
    if (value.is_number()) return format_number(value, spec);
    if (value.is(Kind::big_integer)) fail_overflow();
    throw Failure("unsupported format string passed to " + std::string(type_name(value)) + ".__format__");
  }

  Text aligned(const Text& text, const FormatSpec& spec, char align) {
    const Text fill = make_text(heap_, spec.is_zero_padded && spec.align == 0 ? "0" : spec.fill);
    if (align != '^') return pad(heap_, text, spec.width, align == '<' ? Align::left : Align::right, fill);
    // The odd fill character goes to the right; in str.center it may go to the left.
    const auto missing = spec.width - static_cast<std::int64_t>(count_characters(text));
    if (missing <= 0) return text;
    return join(heap_, kEmptyText,
                {repeat(heap_, fill, missing / 2), text, repeat(heap_, fill, missing - missing / 2)});
  }

  Text format_text(const Text& text, const FormatSpec& spec) {
    if (spec.type != 0 && spec.type != 's') throw Failure("Unknown format code for object of type 'str'");
    if (spec.align == '=' || spec.number.sign != '-' || spec.number.is_alternate || spec.number.grouping != 0) {
      throw Failure("a format specifier that is not allowed for a string");
    }
    const int precision = spec.number.precision;
    const Text cut = precision >= 0 ? slice_characters(heap_, text, 0, precision, 1) : text;
    return aligned(cut, spec, spec.align == 0 ? '<' : spec.align);
  }

  Text format_number(const Value& value, const FormatSpec& spec) {
    NumberFormat number = spec.number;
    std::string sign;
    std::string digits;
    if (spec.type == 0 && value.is(Kind::real)) {
      digits = real_text(std::fabs(value.real));
      if (number.precision >= 0) throw Failure("a precision without a type is not supported");
      if (number.grouping != 0) group_thousands(digits, number.grouping);
      if (std::signbit(value.real)) sign = "-";
      if (sign.empty() && number.sign != '-') sign = std::string(1, number.sign);
    } else if (spec.type == '%') {
      number.type = 'f';
      digits = number_digits(Value::of(to_real(value) * 100), number, sign) + "%";
    } else {
      number.type = spec.type == 0 ? 'd' : spec.type;
      const bool is_integral = std::string_view("dxXob").find(number.type) != std::string_view::npos;
      const bool is_known = is_integral || std::string_view("eEfFgG").find(number.type) != std::string_view::npos;
      if (!is_known || (is_integral && value.is(Kind::real))) throw Failure("Unknown format code for a number");
      if (is_integral && number.precision >= 0) throw Failure("Precision not allowed in integer format specifier");
      digits = number_digits(value, number, sign);
    }
    const bool fills_after_sign = spec.align == '=' || (spec.align == 0 && spec.is_zero_padded);
    if (!fills_after_sign) return aligned(make_text(heap_, sign + digits), spec, spec.align == 0 ? '>' : spec.align);
    const std::string fill = spec.align == 0 ? "0" : spec.fill;
    for (auto size = static_cast<int>(sign.size() + digits.size()); size < spec.width; ++size) sign += fill;
    return make_text(heap_, sign + digits);
  }

  enum class Numbering { unknown, automatic, by_hand };

  Interpreter& interpreter_;
  Heap& heap_;
  const Arguments& arguments_;
  Numbering numbering_ = Numbering::unknown;
  std::size_t next_ = 0;
};

}  // namespace

Value format_braces(Interpreter& interpreter, const Text& format, const Arguments& arguments) {
  return BraceFormatter(interpreter, arguments).run(format, 1);
}

}  // namespace pagoda::jinja
