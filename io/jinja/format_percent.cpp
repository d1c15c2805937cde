#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "io/jinja/characters.hpp"
#include "io/jinja/formatting.hpp"
#include "io/jinja/iterate.hpp"
#include "io/jinja/numbers.hpp"
#include "io/jinja/print.hpp"
#include "io/jinja/text_functions.hpp"

namespace pagoda::jinja {
namespace {

constexpr int kMaxFieldSize = 100'000;
constexpr int kMaxPrecision = 300;

std::string integer_digits(std::int64_t value, const NumberFormat& format, std::string& prefix) {
  const auto magnitude = value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  const int base = format.type == 'd' ? 10 : (format.type == 'o' ? 8 : (format.type == 'b' ? 2 : 16));
  std::array<char, 72> buffer{};
  const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude, base);
  std::string digits(buffer.data(), written.ptr);
  if (format.type == 'X') {
    for (char& digit : digits) digit = static_cast<char>(std::toupper(static_cast<unsigned char>(digit)));
  }
  if (format.is_alternate && base != 10) prefix = std::string("0") + format.type;
  if (static_cast<int>(digits.size()) < format.precision) {
    digits.insert(0, static_cast<std::size_t>(format.precision) - digits.size(), '0');
  }
  return digits;
}

std::string real_digits(double value, const NumberFormat& format) {
  const double magnitude = std::fabs(value);
  const std::string pattern = std::string(format.is_alternate ? "%#" : "%") + ".*" + format.type;
  std::vector<char> buffer(800);
  const int precision = format.precision < 0 ? 6 : format.precision;
  const int size = std::snprintf(buffer.data(), buffer.size(), pattern.c_str(), precision, magnitude);
  return {buffer.data(), static_cast<std::size_t>(size)};
}

// A conversion of a % format.
struct Conversion {
  bool is_left = false;
  bool is_zero_padded = false;
  int width = -1;
  NumberFormat number;
};

class PercentFormatter {
 public:
  PercentFormatter(Heap& heap, const Text& format, const Value& values)
      : heap_(heap), format_(format), values_(values), out_(heap) {}

  Value run() {
    const std::string_view bytes = format_.view();
    heap_.look_at(bytes.size());
    while (at_ < bytes.size()) {
      const std::size_t percent = std::min(bytes.find('%', at_), bytes.size());
      out_.append(format_.slice(at_, percent));
      at_ = percent + 1;
      if (percent < bytes.size()) convert();
    }
    const bool is_mapping =
        values_.is(Kind::dict) || values_.is(Kind::list) || values_.is(Kind::range) || values_.is_undefined();
    const std::size_t count = values_.is(Kind::tuple) ? values_.list().items.size() : 1;
    if (used_ < count && !is_mapping) throw Failure("not all arguments converted during string formatting");
    return out_.finish();
  }

 private:
  char peek() const {
    if (at_ >= format_.size()) throw Failure("incomplete format");
    return format_.view()[at_];
  }

  Value next_value() {
    if (has_key_) return keyed_;
    if (!values_.is(Kind::tuple)) {
      if (used_++ > 0) throw Failure("not enough arguments for format string");
      return values_;
    }
    if (used_ >= values_.list().items.size()) throw Failure("not enough arguments for format string");
    return values_.list().items[used_++];
  }

  void read_key() {
    has_key_ = false;
    if (peek() != '(') return;
    const std::size_t begin = ++at_;
    for (int open = 1; open > 0; ++at_) open += peek() == '(' ? 1 : (peek() == ')' ? -1 : 0);
    if (!values_.is(Kind::dict)) throw Failure("format requires a mapping");
    const Value* value = values_.dict().find(format_.view().substr(begin, at_ - 1 - begin));
    if (value == nullptr)
      throw Failure("there is no '" + std::string(format_.view().substr(begin, at_ - 1 - begin)) + "'");
    keyed_ = *value;
    has_key_ = true;
  }

  int read_star_or_size() {
    if (peek() != '*') return read_size(format_.view(), at_);
    ++at_;
    const std::int64_t size = to_index(next_value(), "* in a format");
    if (std::abs(size) > kMaxFieldSize) throw Failure("a format with too large a size");
    return static_cast<int>(size);
  }

  void convert() {
    heap_.step();
    read_key();
    Conversion conversion;
    for (; std::string_view("-+ #0").find(peek()) != std::string_view::npos; ++at_) {
      conversion.is_left = conversion.is_left || peek() == '-';
      conversion.is_zero_padded = conversion.is_zero_padded || peek() == '0';
      conversion.number.is_alternate = conversion.number.is_alternate || peek() == '#';
      if (peek() == '+' || (peek() == ' ' && conversion.number.sign != '+')) conversion.number.sign = peek();
    }
    conversion.width = read_star_or_size();
    if (conversion.width < -1) {
      conversion.is_left = true;
      conversion.width = -conversion.width;
    }
    if (peek() == '.') {
      ++at_;
      conversion.number.precision = std::max(0, read_star_or_size());
    }
    while (std::string_view("hlL").find(peek()) != std::string_view::npos) ++at_;
    const char type = peek();
    ++at_;
    if (type == '%') {
      out_.append("%", false);
      return;
    }
    write(conversion, type, next_value());
  }

  void write(Conversion conversion, char type, const Value& value) {
    switch (type) {
      case 's':
      case 'r':
      case 'a':
        return write_text(conversion, type, value);
      case 'c':
        return write_text(conversion, type, character(value));
      case 'i':
      case 'u':
        type = 'd';
        break;
      default:
        break;
    }
    if (std::string_view("dxXoeEfFgG").find(type) == std::string_view::npos) {
      throw Failure(std::string("unsupported format character '") + type + "'");
    }
    if (value.is(Kind::big_integer) && type == 'd') return pad_and_write(conversion, value.text);
    if (!value.is_number()) {
      if (value.is(Kind::big_integer)) fail_overflow();
      if (value.is_undefined()) throw Failure(undefined_message(value));
      throw Failure(std::string("%") + type + " format: a number is required, not " + std::string(type_name(value)));
    }
    conversion.number.type = type;
    std::string sign;
    std::string digits = number_digits(value, conversion.number, sign);
    const auto width = static_cast<std::size_t>(std::max(0, conversion.width));
    const std::size_t size = sign.size() + digits.size();
    const bool is_zero_padded = conversion.is_zero_padded && !conversion.is_left;
    if (size < width && is_zero_padded) digits.insert(0, width - size, '0');
    pad_and_write(conversion, make_text(heap_, sign + digits));
  }

  Value character(const Value& value) {
    if (value.is_text() && count_characters(value.text) == 1) return value;
    if (!value.is(Kind::integer) && !value.is(Kind::boolean)) throw Failure("%c requires int or char");
    const std::int64_t code = to_integer(value);
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      throw Failure("%c arg not in range(0x110000)");
    }
    TextBuilder one(heap_);
    one.append_character(static_cast<char32_t>(code), false);
    return one.finish();
  }

  void write_text(const Conversion& conversion, char type, const Value& value) {
    Text text = kEmptyText;
    if (type == 'r' || type == 'a') {
      TextBuilder representation(heap_);
      append_repr(representation, value, heap_);
      text = representation.finish();
    } else {
      text = to_text(value, heap_);
    }
    const int precision = conversion.number.precision;
    if (precision >= 0 && type != 'c') text = slice_characters(heap_, text, 0, precision, 1);
    pad_and_write(conversion, text);
  }

  void pad_and_write(const Conversion& conversion, const Text& text) {
    const Align align = conversion.is_left ? Align::left : Align::right;
    out_.append(pad(heap_, text, conversion.width, align, make_text(heap_, " ")));
  }

  Heap& heap_;
  const Text& format_;
  const Value& values_;
  TextBuilder out_;
  std::size_t at_ = 0;
  std::size_t used_ = 0;
  bool has_key_ = false;
  Value keyed_;
};

}  // namespace

void group_thousands(std::string& digits, char separator) {
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (std::size_t at = whole; at > 3; at -= 3) digits.insert(at - 3, 1, separator);
}

std::string number_digits(const Value& number, const NumberFormat& format, std::string& sign_and_prefix) {
  const bool is_integral = std::string_view("dxXob").find(format.type) != std::string_view::npos;
  if (format.precision > kMaxPrecision) throw Failure("a format with too large a precision");
  std::string digits;
  std::string prefix;
  bool is_negative = false;
  if (is_integral) {
    if (number.is(Kind::real) && format.type != 'd') throw Failure("an integer is required, not float");
    const std::int64_t value = number.is(Kind::real) ? truncate_real(number.real) : to_integer(number);
    is_negative = value < 0;
    digits = integer_digits(value, format, prefix);
  } else {
    const double value = to_real(number);
    is_negative = std::signbit(value) && !std::isnan(value);
    digits = real_digits(value, format);
  }
  if (format.grouping != 0) group_thousands(digits, format.grouping);
  sign_and_prefix = (is_negative ? "-" : (format.sign == '-' ? "" : std::string(1, format.sign))) + prefix;
  return digits;
}

int read_size(std::string_view format, std::size_t& at) {
  int size = -1;
  for (; at < format.size() && format[at] >= '0' && format[at] <= '9'; ++at) {
    size = std::max(size, 0) * 10 + (format[at] - '0');
    if (size > kMaxFieldSize) throw Failure("a format with too large a size");
  }
  return size;
}

Value format_percent(Heap& heap, const Text& format, const Value& values) {
  return PercentFormatter(heap, format, values).run();
}

}  // namespace pagoda::jinja
