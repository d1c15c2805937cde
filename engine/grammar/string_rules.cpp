#include "engine/grammar/string_rules.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/grammar/limits.hpp"
#include "engine/grammar/string_formats.hpp"

namespace pagoda::grammar {
namespace {

constexpr const char* kTooLarge = "it is too large together with the other keywords of the string";

/// A regex that a string must match.
struct Wanted {
  std::string_view regex;
  std::string path;
  bool is_pattern = false;  ///< true: a pattern; false: a format, which applies to the whole string
};

/// Returns the texts in which the regex matches something. A regex that only repeats characters, with a large bound,
/// becomes a language with bounds of the length.
std::optional<TextLanguage> language_of_pattern(const Expr& regex, LanguageBudget& budget) {
  constexpr std::int32_t kFew = 64;
  const auto alternatives = without_anchors(regex);
  if (alternatives && alternatives->size() == 1) {
    const auto& [expression, begins, ends] = alternatives->front();
    const bool is_counted = begins && ends && expression->kind == Expression::Kind::repeat &&
                            expression->parts.front()->kind == Expression::Kind::characters &&
                            std::max(expression->min, expression->max) > kFew;
    if (is_counted) {
      const auto any =
          TextLanguage::from_expression(repeat(expression->parts.front(), 0, kUnbounded), Matching::whole, budget);
      return any ? any->of_length(expression->min, expression->max, budget) : std::nullopt;
    }
  }
  return TextLanguage::from_expression(regex, Matching::anywhere, budget);
}

/// Reads the keywords of one string.
class StringReader {
 public:
  StringReader(const SchemaAt& s, SchemaRules& converter) : s_(s), converter_(converter) {}

  bool read() {
    min_ = converter_.min_of(s_, "minLength");
    max_ = converter_.max_of(s_, "maxLength");
    for (const char* keyword : {"format", kMoreFormats}) read_each(keyword, &StringReader::read_format);
    for (const char* keyword : {"pattern", kMorePatterns}) read_each(keyword, &StringReader::read_pattern);
    if (s_.schema.contains(kExcludedValues)) {
      for (const Schema& value : s_.schema[kExcludedValues]) {
        if (value.is_string()) excluded_.push_back(value.get<std::string>());
      }
    }
    if (max_ != kUnbounded && max_ < min_) contradicts("maxLength", "it is less than minLength");
    return !is_refused_;
  }

  Expr expression() {
    if (!read()) return nothing();
    const bool has_length = min_ > 0 || max_ != kUnbounded;
    const bool excludes = !excluded_.empty() || s_.schema.contains(kExcludedPatterns);
    if (!excludes && wanted_.empty()) {
      return has_length ? converter_.json().string(min_, max_) : converter_.json().string();
    }
    if (!excludes && !has_length && wanted_.size() == 1) {
      const Wanted& only = wanted_.front();
      if (only.is_pattern) return string_with_pattern(only.regex, only.path, converter_);
      auto inside = regex_expression(only.regex);
      if (!inside) return converter_.refuse(only.path, inside.error().message);
      return sequence({literal("\""), std::move(*inside), literal("\"")});
    }
    const auto all = language();
    return all ? string_in(*all, converter_) : nothing();
  }

  /// Call after read().
  std::optional<TextLanguage> language() {
    LanguageBudget& budget = converter_.languages();
    std::optional<TextLanguage> all = TextLanguage::of_any_text();
    std::string path = s_.path;
    for (const Wanted& wanted : wanted_) {
      if (!all) break;
      path = wanted.path;
      const auto one = wanted.is_pattern
                           ? pattern_language(wanted.regex, CharacterClasses::certain, wanted.path, converter_)
                           : format_language(wanted);
      if (!one) return std::nullopt;
      all = all->intersection(*one, budget);
    }
    if (all && s_.schema.contains(kExcludedPatterns)) {
      path = at(s_.path, "not");
      for (const Schema& pattern : s_.schema[kExcludedPatterns]) {
        if (!pattern.is_string()) return refuse(path, "a pattern in it is not a string"), std::nullopt;
        const auto one =
            pattern_language(pattern.get_ref<const std::string&>(), CharacterClasses::possible, path, converter_);
        if (!one) return std::nullopt;
        if (all) all = all->difference(*one, budget);
      }
    }
    if (all && !excluded_.empty()) {
      path = at(s_.path, "not");
      const auto texts = TextLanguage::of_texts(excluded_, budget);
      all = texts ? all->difference(*texts, budget) : std::nullopt;
    }
    if (all && (min_ > 0 || max_ != kUnbounded)) {
      path = at(s_.path, max_ != kUnbounded ? "maxLength" : "minLength");
      all = all->of_length(min_, max_, budget);
    }
    if (!all) refuse(path, kTooLarge);
    return all;
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
    if (known) wanted_.push_back({*known, path, false});  // another format is an annotation
  }

  void read_pattern(const Schema& pattern, const std::string& path) {
    if (!pattern.is_string()) return refuse(path, "it is not a string");
    wanted_.push_back({pattern.get_ref<const std::string&>(), path, true});
  }

  std::optional<TextLanguage> format_language(const Wanted& wanted) {
    const auto parsed = regex_expression(wanted.regex);
    if (!parsed) return refuse(wanted.path, parsed.error().message), std::nullopt;
    auto language = TextLanguage::from_expression(*parsed, Matching::whole, converter_.languages());
    if (!language) refuse(wanted.path, kTooLarge);
    return language;
  }

  const SchemaAt& s_;
  SchemaRules& converter_;
  std::int32_t min_ = 0;
  std::int32_t max_ = kUnbounded;
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

std::optional<TextLanguage> pattern_language(std::string_view regex, CharacterClasses classes, const std::string& path,
                                             SchemaRules& converter) {
  const auto parsed = parse_regex(regex, classes);
  if (!parsed) return converter.refuse(path, parsed.error().message), std::nullopt;
  auto language = language_of_pattern(*parsed, converter.languages());
  if (!language) converter.refuse(path, kTooLarge);
  return language;
}

Expr string_with_pattern(std::string_view regex, const std::string& path, SchemaRules& converter) {
  const auto parsed = parse_regex(regex, CharacterClasses::certain);
  if (!parsed) return converter.refuse(path, parsed.error().message);
  if (const auto language = language_of_pattern(*parsed, converter.languages())) {
    if (language->is_empty()) return converter.refuse(path, "no text matches it");
    return string_in(*language, converter);
  }
  // An automaton for the pattern is too large: the pattern is written as it is.
  const auto alternatives = without_anchors(*parsed);
  if (!alternatives) return converter.refuse(path, "it is too large together with its look-ahead");
  const Expr anything = repeat(characters(complement({})), 0, kUnbounded);
  std::vector<Expr> all;
  for (const Unanchored& one : *alternatives) {
    std::vector<Expr> parts;
    if (!one.begins) parts.push_back(anything);
    parts.push_back(one.expression);
    if (!one.ends) parts.push_back(anything);
    all.push_back(sequence(std::move(parts)));
  }
  return sequence({literal("\""), in_json_string(choice(std::move(all))), literal("\"")});
}

Expr string_in(const TextLanguage& language, SchemaRules& converter) {
  return sequence({literal("\""), language.expression(&converter.json()), literal("\"")});
}

}  // namespace pagoda::grammar
