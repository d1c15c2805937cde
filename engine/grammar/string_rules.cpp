#include "engine/grammar/string_rules.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/grammar/limits.hpp"
#include "engine/grammar/string_formats.hpp"

namespace pagoda::grammar {
namespace {

constexpr const char* kTooLarge = "together with what else is said of the string it is too large";

/// A regex that a string is to match.
struct Wanted {
  std::string_view regex;
  std::string path;
  bool is_pattern = false;  ///< else it is a format, which is about the whole string
};

/// Reads the keywords of one string.
class StringReader {
 public:
  StringReader(const SchemaAt& s, SchemaRules& converter) : s_(s), converter_(converter) {}

  bool read() {
    min_ = converter_.count(s_, "minLength").value_or(0);
    max_ = converter_.count(s_, "maxLength");
    for (const char* keyword : {"format", kMoreFormats}) read_each(keyword, &StringReader::read_format);
    for (const char* keyword : {"pattern", kMorePatterns}) read_each(keyword, &StringReader::read_pattern);
    if (s_.schema.contains(kExcludedValues)) {
      for (const Schema& value : s_.schema[kExcludedValues]) {
        if (value.is_string()) excluded_.push_back(value.get<std::string>());
      }
    }
    if (max_ && *max_ < min_) contradicts("maxLength", "it is less than minLength");
    return !is_refused_;
  }

  Expr expression() {
    if (!read()) return nothing();
    const bool has_length = min_ > 0 || max_;
    const bool excludes = !excluded_.empty() || s_.schema.contains(kExcludedPatterns);
    if (!excludes && wanted_.empty()) {
      if (!has_length) return converter_.json().string();
      return converter_.json().string(static_cast<std::int32_t>(min_),
                                      max_ ? static_cast<std::int32_t>(*max_) : kUnbounded);
    }
    if (!excludes && !has_length && wanted_.size() == 1) {
      auto inside = regex_expression(wanted_.front().regex, RegexPlace::json_string);
      if (!inside) return converter_.refuse(wanted_.front().path, inside.error().message);
      return sequence({literal("\""), std::move(*inside), literal("\"")});
    }
    const auto all = language();
    return all ? string_in(*all, converter_) : nothing();
  }

  /// After read.
  std::optional<TextLanguage> language() {
    auto whole = joined(RegexPlace::string);
    // A pattern without ^ and $ is about the whole string unless other keywords say that there is more in it.
    if (whole && whole->is_empty()) whole = joined(RegexPlace::any_part);
    return whole;
  }

 private:
  using Reader = void (StringReader::*)(const Schema& value, const std::string& path);

  void refuse(const std::string& path, const std::string& problem) {
    is_refused_ = true;
    converter_.refuse(path, problem);
  }
  void contradicts(const char* keyword, const std::string& problem) {
    is_refused_ = true;
    converter_.contradiction(s_, keyword, problem);
  }

  void read_each(const char* keyword, Reader reader) {
    if (!s_.schema.contains(keyword)) return;
    const Schema& value = s_.schema[keyword];
    const bool is_list = keyword == std::string_view(kMoreFormats) || keyword == std::string_view(kMorePatterns);
    const std::string path =
        at(s_.path, is_list ? (reader == &StringReader::read_format ? "format" : "pattern") : keyword);
    if (!is_list) return (this->*reader)(value, path);
    for (const Schema& one : value) (this->*reader)(one, path);
  }

  void read_format(const Schema& format, const std::string& path) {
    const auto known = format.is_string() ? string_format(format.get_ref<const std::string&>()) : std::nullopt;
    if (!known) return refuse(path, "the format " + format.dump().substr(0, 100) + " is not supported");
    wanted_.push_back({*known, path, false});
  }

  void read_pattern(const Schema& pattern, const std::string& path) {
    if (!pattern.is_string()) return refuse(path, "it is no text");
    wanted_.push_back({pattern.get_ref<const std::string&>(), path, true});
  }

  std::optional<TextLanguage> joined(RegexPlace place) {
    LanguageBudget& budget = converter_.languages();
    std::optional<TextLanguage> all = TextLanguage::of_length(min_, max_, budget);
    std::string path = at(s_.path, max_ ? "maxLength" : "minLength");
    for (const Wanted& wanted : wanted_) {
      if (!all) break;
      path = wanted.path;
      const auto one =
          regex_language(wanted.regex, wanted.is_pattern ? place : RegexPlace::string, wanted.path, converter_);
      if (!one) return std::nullopt;
      all = all->and_in(*one, budget);
    }
    if (all && s_.schema.contains(kExcludedPatterns)) {
      path = at(s_.path, "not");
      for (const Schema& pattern : s_.schema[kExcludedPatterns]) {
        if (!pattern.is_string()) return refuse(path, "a pattern in it is no text"), std::nullopt;
        const auto one =
            regex_language(pattern.get_ref<const std::string&>(), RegexPlace::possible_part, path, converter_);
        if (!one) return std::nullopt;
        if (all) all = all->but_not(*one, budget);
      }
    }
    if (all && !excluded_.empty()) {
      path = at(s_.path, "not");
      const auto texts = TextLanguage::of_texts(excluded_, budget);
      all = texts ? all->but_not(*texts, budget) : std::nullopt;
    }
    if (!all) refuse(path, kTooLarge);
    return all;
  }

  const SchemaAt& s_;
  SchemaRules& converter_;
  std::int64_t min_ = 0;
  std::optional<std::int64_t> max_;
  std::vector<Wanted> wanted_;
  std::vector<std::string> excluded_;
  bool is_refused_ = false;
};

}  // namespace

Expr string_expression(const SchemaAt& schema, SchemaRules& converter) {
  return StringReader(schema, converter).expression();
}

std::optional<TextLanguage> string_language(const SchemaAt& schema, SchemaRules& converter) {
  StringReader reader(schema, converter);
  return reader.read() ? reader.language() : std::nullopt;
}

std::optional<TextLanguage> regex_language(std::string_view regex, RegexPlace place, const std::string& path,
                                           SchemaRules& converter) {
  const auto parsed = regex_expression(regex, place);
  if (!parsed) return converter.refuse(path, parsed.error().message), std::nullopt;
  auto language = TextLanguage::of(*parsed, converter.languages());
  if (!language) converter.refuse(path, kTooLarge);
  return language;
}

Expr string_in(const TextLanguage& language, SchemaRules& converter) {
  return sequence({literal("\""), language.expression(converter.rules(), true, literal("\""))});
}

}  // namespace pagoda::grammar
