#include "engine/grammar/schema_values.hpp"

#include <algorithm>
#include <cmath>

#include "engine/grammar/regex_rules.hpp"
#include "engine/grammar/string_formats.hpp"
#include "engine/text/unicode.hpp"

namespace pagoda::grammar {
namespace {

using Verdict = std::optional<bool>;

Verdict opposite(Verdict verdict) {
  return verdict ? Verdict(!*verdict) : std::nullopt;
}

/// Combines verdicts: false if one is false, otherwise nothing if one is nothing, otherwise true.
class All {
 public:
  /// Returns false when the result is decided.
  bool add(Verdict verdict) {
    if (!verdict) {
      is_open_ = true;
    } else if (!*verdict) {
      is_refused_ = true;
    }
    return !is_refused_;
  }
  Verdict result() const {
    if (is_refused_) return false;
    if (is_open_) return std::nullopt;
    return true;
  }

 private:
  bool is_open_ = false;     ///< whether a part has no verdict
  bool is_refused_ = false;  ///< whether a part is refused
};

bool are_equal(const Schema& a, const Schema& b) {
  return nlohmann::json(a) == nlohmann::json(b);
}

std::size_t num_characters(const std::string& text) {
  std::size_t num = 0;
  for (std::size_t i = 0; i < text.size(); ++num) static_cast<void>(text::next_character(text, i));
  return num;
}

/// Compares a count with the limit of a keyword.
Verdict count(std::size_t actual, const Schema& of, bool at_least) {
  if (!of.is_number()) return std::nullopt;
  const auto number = static_cast<double>(actual);
  return at_least ? number >= of.get<double>() : number <= of.get<double>();
}

Verdict of_number(const std::string& name, const Schema& of, const Schema& number) {
  if (!of.is_number()) return std::nullopt;
  if (name != "multipleOf" && of.type() == number.type()) {  // compares integers of 64 bits exactly
    return name == "minimum"            ? !(number < of)
           : name == "maximum"          ? !(of < number)
           : name == "exclusiveMinimum" ? of < number
                                        : number < of;
  }
  const double value = number.get<double>();
  const double other = of.get<double>();
  if (name == "minimum") return value >= other;
  if (name == "maximum") return value <= other;
  if (name == "exclusiveMinimum") return value > other;
  if (name == "exclusiveMaximum") return value < other;
  constexpr double kMaxParts = 1e9;
  const double parts = value / other;
  if (!(other > 0) || !(std::abs(parts) < kMaxParts)) return std::nullopt;
  const double away = std::abs(parts - std::round(parts));
  constexpr double kRounded = 1e-6;  // nearer than this, readers of doubles may decide either way
  if (away == 0) return true;
  return away > kRounded ? Verdict(false) : std::nullopt;
}

bool is_for(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

Verdict ValueChecker::accepts(const Schema& schema, const Schema& value, int depth) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (!schema.is_object() || depth > kMaxDepth || !budget_.take_schema()) return std::nullopt;
  All all;
  for (const auto& [name, of] : schema.items()) {
    if (is_annotation(name) || name == kRewritten) continue;
    if (!all.add(keyword(name, of, schema, value, depth + 1))) break;
  }
  return all.result();
}

Verdict ValueChecker::keyword(const std::string& name, const Schema& of, const Schema& schema, const Schema& value,
                              int depth) {
  if (name == "$ref") {
    const auto target = document_.resolve(of, {});
    return target ? accepts(target->schema, value, depth) : std::nullopt;
  }
  if (name == "type") {
    const auto types = types_of({Schema{{"type", of}}, {}});
    return types ? Verdict(has_type(value, **types)) : std::nullopt;
  }
  if (name == "const") return are_equal(of, value);
  if (name == "enum" || name == kExcludedValues) {
    if (!of.is_array() || !budget_.take_comparisons(of.size())) return std::nullopt;
    return std::ranges::any_of(of, [&](const Schema& one) { return are_equal(one, value); }) == (name == "enum");
  }
  if (name == "anyOf") return any_of(of, value, depth);
  if (name == "allOf") return all_of(of, value, depth);
  if (name == "oneOf") return one_of(of, value, depth);
  if (name == "not") return opposite(accepts(of, value, depth));
  if (name == "if") {
    const Verdict holds = accepts(of, value, depth);
    if (!holds) return std::nullopt;
    const char* const branch = *holds ? "then" : "else";
    return schema.contains(branch) ? accepts(schema[branch], value, depth) : true;
  }
  if (is_for(name, {"then", "else", "minContains", "maxContains"})) return true;  // `if` and `contains` check them
  if (is_for(name, {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})) {
    return value.is_number() ? of_number(name, of, value) : true;
  }
  if (name == kFraction) return value.is_number() ? Verdict(!has_type(value, {JsonType::integer})) : true;
  if (name == kMoreMultiples) {
    All all;
    for (const Schema& one : of) all.add(value.is_number() ? of_number("multipleOf", one, value) : true);
    return all.result();
  }
  if (is_for(name, {"minLength", "maxLength", "pattern", "format", kMorePatterns, kMoreFormats, kExcludedPatterns})) {
    return value.is_string() ? of_string(name, of, value.get_ref<const std::string&>()) : true;
  }
  if (is_for(name, {"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"})) {
    return value.is_array() ? of_array(name, of, schema, value, depth) : true;
  }
  if (is_for(name, {"properties", "patternProperties", "additionalProperties", "propertyNames", "required",
                    "minProperties", "maxProperties", "dependentRequired", "dependentSchemas"})) {
    return value.is_object() ? of_object(name, of, schema, value, depth) : true;
  }
  return std::nullopt;
}

Verdict ValueChecker::any_of(const Schema& schemas, const Schema& value, int depth) {
  if (!schemas.is_array()) return std::nullopt;
  All none;
  for (const Schema& schema : schemas) {
    if (!none.add(opposite(accepts(schema, value, depth)))) break;
  }
  return opposite(none.result());
}

Verdict ValueChecker::all_of(const Schema& schemas, const Schema& value, int depth) {
  if (!schemas.is_array()) return std::nullopt;
  All all;
  for (const Schema& schema : schemas) {
    if (!all.add(accepts(schema, value, depth))) break;
  }
  return all.result();
}

Verdict ValueChecker::one_of(const Schema& schemas, const Schema& value, int depth) {
  if (!schemas.is_array()) return std::nullopt;
  int num = 0;
  for (const Schema& schema : schemas) {
    const Verdict verdict = accepts(schema, value, depth);
    if (!verdict) return std::nullopt;
    num += *verdict ? 1 : 0;
  }
  return num == 1;
}

Verdict ValueChecker::matches(const Schema& regex, const std::string& text) {
  if (!regex.is_string()) return std::nullopt;
  const auto& pattern = regex.get_ref<const std::string&>();
  const auto [known, is_new] = matches_.try_emplace(pattern);
  if (is_new) {
    const auto language = [&](CharacterClasses classes) -> std::optional<TextLanguage> {
      const auto parsed = parse_regex(pattern, classes);
      return parsed ? TextLanguage::from_expression(*parsed, Matching::anywhere, languages_) : std::nullopt;
    };
    known->second = {language(CharacterClasses::certain), language(CharacterClasses::possible)};
  }
  const auto& [certain, possible] = known->second;
  if (!certain || !possible || !languages_.take(2 * text.size())) return std::nullopt;
  const bool matches = certain->contains(text);
  return matches == possible->contains(text) ? Verdict(matches) : std::nullopt;
}

Verdict ValueChecker::of_string(const std::string& name, const Schema& of, const std::string& text) {
  if (name == "minLength") return count(num_characters(text), of, true);
  if (name == "maxLength") return count(num_characters(text), of, false);
  if (name == "pattern") return matches(of, text);
  if (name == "format") {
    // A text that does not match our regex of the format may still have the format for other readers.
    const auto regex = of.is_string() ? string_format(of.get_ref<const std::string&>()) : std::nullopt;
    if (!regex) return true;  // the keyword is an annotation
    const auto certain = matches("^(" + std::string(*regex) + ")$", text);
    return certain == true ? certain : std::nullopt;
  }
  if (!of.is_array()) return std::nullopt;
  All all;
  for (const Schema& one : of) {
    const Verdict verdict = name == kMoreFormats ? of_string("format", one, text) : matches(one, text);
    all.add(name == kExcludedPatterns ? opposite(verdict) : verdict);
  }
  return all.result();
}

Verdict ValueChecker::of_array(const std::string& name, const Schema& of, const Schema& schema, const Schema& value,
                               int depth) {
  if (name == "minItems") return count(value.size(), of, true);
  if (name == "maxItems") return count(value.size(), of, false);
  if (name == "uniqueItems") {
    if (of == false) return true;
    if (!budget_.take_comparisons(value.size() * value.size())) return std::nullopt;
    for (std::size_t i = 0; i < value.size(); ++i) {
      for (std::size_t k = 0; k < i; ++k) {
        if (are_equal(value[i], value[k])) return false;
      }
    }
    return true;
  }
  if (name == "contains") {
    std::size_t num = 0;
    for (const Schema& item : value) {
      const Verdict verdict = accepts(of, item, depth);
      if (!verdict) return std::nullopt;
      num += *verdict ? 1U : 0U;
    }
    All all;
    all.add(count(num, schema.value("minContains", Schema(1)), true));
    if (schema.contains("maxContains")) all.add(count(num, schema["maxContains"], false));
    return all.result();
  }
  const bool is_prefix = name == "prefixItems";
  const Schema none = Schema::array();
  const auto found = schema.find("prefixItems");
  const Schema& prefix = found == schema.end() ? none : *found;
  if (!prefix.is_array() || of.is_array() != is_prefix) return std::nullopt;
  All all;
  for (std::size_t i = is_prefix ? 0 : prefix.size();
       i < (is_prefix ? std::min(of.size(), value.size()) : value.size()); ++i) {
    if (!all.add(accepts(is_prefix ? of[i] : of, value[i], depth))) break;
  }
  return all.result();
}

Verdict ValueChecker::of_object(const std::string& name, const Schema& of, const Schema& schema, const Schema& value,
                                int depth) {
  if (name == "minProperties") return count(value.size(), of, true);
  if (name == "maxProperties") return count(value.size(), of, false);
  const auto has_all = [&](const Schema& names) -> Verdict {
    if (!names.is_array()) return std::nullopt;
    return std::ranges::all_of(
        names, [&](const Schema& one) { return one.is_string() && value.contains(one.get<std::string>()); });
  };
  if (name == "required") return has_all(of);
  if (!of.is_object() && name != "additionalProperties" && name != "propertyNames") return std::nullopt;
  All all;
  if (name == "dependentRequired" || name == "dependentSchemas") {
    for (const auto& [key, wanted] : of.items()) {
      if (value.contains(key)) all.add(name == "dependentRequired" ? has_all(wanted) : accepts(wanted, value, depth));
    }
    return all.result();
  }
  for (const auto& [key, member] : value.items()) {
    if (name == "properties") {
      if (of.contains(key)) all.add(accepts(of[key], member, depth));
    } else if (name == "propertyNames") {
      all.add(accepts(of, Schema(key), depth));
    } else if (name == "patternProperties") {
      for (const auto& [pattern, wanted] : of.items()) {
        const Verdict is_named = matches(pattern, key);
        if (is_named != false) {
          const Verdict verdict = accepts(wanted, member, depth);
          all.add(is_named || verdict == true ? verdict : std::nullopt);
        }
      }
    } else {
      All is_other;
      const auto declared = schema.find("properties");
      is_other.add(declared == schema.end() || !declared->contains(key));
      const auto patterns = schema.find("patternProperties");
      if (patterns != schema.end() && patterns->is_object()) {
        for (const auto& [pattern, unused] : patterns->items()) is_other.add(opposite(matches(pattern, key)));
      }
      const Verdict other = is_other.result();
      if (other != false) {
        const Verdict verdict = accepts(of, member, depth);
        all.add(other || verdict == true ? verdict : std::nullopt);
      }
    }
  }
  return all.result();
}

}  // namespace pagoda::grammar
