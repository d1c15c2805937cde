#include "engine/text/regex_syntax.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <array>
#include <cctype>
#include <utility>

#include <pcre2.h>

namespace pagoda::text {
namespace {

// Members of a character class, without its brackets.
constexpr std::string_view kSpaceMembers =
    "\\x{9}-\\x{D}\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
constexpr std::string_view kWordMembers = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
// A \w that stands alone also matches Latin-1's superscript digits and fractions.
constexpr std::string_view kLoneWordMembers = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
constexpr std::string_view kHexMembers = "0-9A-Fa-f";

constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kPropertyNames{{{"Letter", "L"},
                                                                                        {"Mark", "M"},
                                                                                        {"Number", "N"},
                                                                                        {"Punctuation", "P"},
                                                                                        {"Punct", "P"},
                                                                                        {"Symbol", "S"},
                                                                                        {"Separator", "Z"},
                                                                                        {"Alpha", "Alphabetic"},
                                                                                        {"Space", "White_Space"},
                                                                                        {"Digit", "Nd"},
                                                                                        {"Upper", "Uppercase"},
                                                                                        {"Lower", "Lowercase"}}};

bool compiles(const std::string& pattern) {
  int code = 0;
  PCRE2_SIZE offset = 0;
  // PCRE2_SPTR is a pointer to unsigned char.
  const auto* text = reinterpret_cast<PCRE2_SPTR>(pattern.data());
  pcre2_code* compiled = pcre2_compile(text, pattern.size(), PCRE2_UTF | PCRE2_UCP, &code, &offset, nullptr);
  pcre2_code_free(compiled);
  return compiled != nullptr;
}

// A bare script name means the script itself in Oniguruma, but the script's extensions in PCRE2.
std::string property_name(std::string_view name) {
  for (const auto& [from, to] : kPropertyNames) {
    if (name == from) return std::string(to);
  }
  std::string script = "\\p{sc:";
  script += name;
  script += '}';
  return name.size() > 2 && compiles(script) ? script.substr(3, script.size() - 4) : std::string(name);
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (at_ < in_.size()) {
      Status status;
      if (in_[at_] == '\\') {
        status = escape();
      } else if (in_class_) {
        status = class_member();
      } else {
        status = ordinary();
      }
      if (!status) return fail(status.error());
    }
    return std::move(out_);
  }

 private:
  bool next_is(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  void copy(std::size_t size) {
    out_ += in_.substr(at_, size);
    at_ += size;
  }
  void replace(std::size_t size, std::string_view with) {
    out_ += with;
    at_ += size;
  }
  tl::unexpected<Error> refuse(std::string_view what) const {
    return fail(ErrorCode::bad_config, "the regex uses " + std::string(what) + ", which is not supported");
  }

  Status escape() {
    if (at_ + 1 == in_.size()) return refuse("a \\ at its end");
    const char kind = in_[at_ + 1];
    switch (kind) {
      case 's':
        return members(kSpaceMembers);
      case 'w':
        return members(in_class_ ? kWordMembers : kLoneWordMembers);
      case 'h':
        return members(kHexMembers);
      case 'S':
        return complement(kSpaceMembers, "\\P{White_Space}");
      case 'W':
        return complement(kLoneWordMembers, "");
      case 'H':
        return complement(kHexMembers, "");
      case 'v':
        replace(2, "\\x{B}");
        return {};
      case 'p':
      case 'P':
        return property();
      case 'u':
        return code_point();
      default:
        copy(2);
        return {};
    }
  }

  Status members(std::string_view list) {
    if (!in_class_) out_ += '[';
    out_ += list;
    if (!in_class_) out_ += ']';
    at_ += 2;
    return {};
  }

  Status complement(std::string_view list, std::string_view as_member) {
    if (!in_class_) {
      out_ += "[^";
      out_ += list;
      out_ += ']';
      at_ += 2;
    } else if (!as_member.empty()) {
      replace(2, as_member);
    } else {
      return refuse(std::string("\\") + in_[at_ + 1] + " in a character class");
    }
    return {};
  }

  Status property() {
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{') return refuse("\\p without {");
    const std::size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) return refuse("\\p{ without }");
    std::string_view name = in_.substr(at_ + 3, end - at_ - 3);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    out_ += '\\';
    out_ += in_[at_ + 1];
    out_ += negated ? "{^" : "{";
    out_ += property_name(name);
    out_ += '}';
    at_ = end + 1;
    return {};
  }

  Status code_point() {
    const std::string_view digits = in_.substr(at_ + 2, 4);
    for (const char digit : digits) {
      if (std::isxdigit(static_cast<unsigned char>(digit)) == 0) return refuse("\\u without four hexadecimal digits");
    }
    if (digits.size() != 4) return refuse("\\u without four hexadecimal digits");
    out_ += "\\x{";
    out_ += digits;
    out_ += '}';
    at_ += 6;
    return {};
  }

  Status class_member() {
    if (next_is("[:")) {
      const std::size_t end = in_.find(":]", at_);
      if (end == std::string_view::npos) return refuse("[: without :]");
      copy(end + 2 - at_);
    } else if (next_is("[")) {
      return refuse("a character class within a character class");
    } else if (next_is("&&")) {
      return refuse("&& in a character class");
    } else {
      if (next_is("]")) in_class_ = false;
      copy(1);
    }
    return {};
  }

  Status ordinary() {
    if (next_is("[")) {
      in_class_ = true;
      copy(1);
      if (next_is("^")) copy(1);
      if (next_is("]")) return refuse("] as the first member of a character class");
    } else if (next_is("(?#")) {
      const std::size_t end = in_.find(')', at_);
      if (end == std::string_view::npos) return refuse("(?# without )");
      at_ = end + 1;
    } else if (next_is("(?")) {
      copy(2);
      return group_options();
    } else if (next_is("{")) {
      return interval();
    } else {
      copy(1);
    }
    return {};
  }

  // (?m) is Ruby's name for PCRE2's (?s).
  Status group_options() {
    std::size_t end = at_;
    while (end < in_.size() && (std::islower(static_cast<unsigned char>(in_[end])) != 0 || in_[end] == '-')) ++end;
    if (end == in_.size() || (in_[end] != ':' && in_[end] != ')')) return {};
    for (; at_ < end; ++at_) {
      const char option = in_[at_];
      if (option != 'm' && option != 'i' && option != 'x' && option != '-') {
        return refuse(std::string("the group option ") + option);
      }
      if (option == 'x') return refuse("the group option x");
      out_ += option == 'm' ? 's' : option;
    }
    return {};
  }

  Status interval() {
    const std::size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) {
      replace(1, "\\{");
      return {};
    }
    const std::string_view body = in_.substr(at_ + 1, end - at_ - 1);
    if (body.empty() || body.find_first_not_of("0123456789,") != std::string_view::npos) {
      replace(1, "\\{");
      return {};
    }
    if (end + 1 < in_.size() && in_[end + 1] == '+') return refuse("+ after {n,m}");
    out_ += body.starts_with(',') ? "{0" : "{";
    ++at_;
    copy(end + 1 - at_);
    return {};
  }

  std::string_view in_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

Result<std::string> oniguruma_to_pcre2(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace pagoda::text
