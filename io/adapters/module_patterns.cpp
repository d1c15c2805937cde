#include "io/adapters/module_patterns.hpp"

#include <algorithm>
#include <cmath>

#include "io/model_files/file_text.hpp"

namespace pagoda::io {
namespace {

constexpr std::size_t kMaxPatterns = 1'000;

}  // namespace

Result<NamePattern> NamePattern::compile(std::string_view pattern) {
  return text::Regex::compile("\\A(?:" + std::string(pattern) + ")\\z").map([](text::Regex&& regex) {
    return NamePattern(std::move(regex));
  });
}

Result<bool> NamePattern::matches(std::string_view name) const {
  std::vector<text::Span> found;
  if (!regex_.find_all(name, found)) {
    return fail(ErrorCode::bad_config, "a pattern takes too many steps for the name " + quote(name));
  }
  return !found.empty();
}

PatternValues PatternValues::read(ConfigReader& reader, std::string_view text, const char* key,
                                  std::optional<std::int64_t> max) {
  PatternValues result;
  result.key_ = key;
  const auto* values = reader.find(key);
  if (values == nullptr) return result;
  if (!values->is_object()) {
    reader.reject(key, "must be an object");
    return result;
  }
  if (values->size() > kMaxPatterns) {
    reader.reject(key, "has more than " + std::to_string(kMaxPatterns) + " patterns");
    return result;
  }
  // ordered_json looks for each key among all that it has, so it gets this object alone.
  using Json = nlohmann::ordered_json;
  const Json root = Json::parse(text, [key](int depth, Json::parse_event_t event, const Json& parsed) {
    return depth != 1 || event != Json::parse_event_t::key || parsed == key;
  });
  for (const auto& [pattern, value] : root.at(key).items()) {
    const std::string name = "pattern " + quote(pattern) + ": ";
    const double number = value.is_number() ? value.get<double>() : 0.0;
    const bool is_valid = max ? value.is_number_integer() && number >= 1 && number <= static_cast<double>(*max)
                              : std::isfinite(number) && number > 0;
    if (!is_valid) {
      reader.reject(key, name + (max ? "the value must be a whole number from 1 to " + std::to_string(*max)
                                     : std::string("the value must be a number above 0")));
      return result;
    }
    // The expression that peft makes of a pattern.
    auto compiled = NamePattern::compile("(.*\\.)?(" + pattern + ")");
    if (!compiled) {
      reader.reject(key, name + compiled.error().message);
      return result;
    }
    result.values_.emplace_back(std::move(*compiled), number);
  }
  return result;
}

Result<double> PatternValues::value_of(std::string_view module, double otherwise) const {
  for (const auto& [pattern, value] : values_) {
    auto matches = pattern.matches(module);
    if (!matches) return fail(ErrorCode::bad_config, key_ + ": " + matches.error().message, key_);
    if (*matches) return value;
  }
  return otherwise;
}

ModuleChoice ModuleChoice::read(ConfigReader& reader, const char* key) {
  ModuleChoice choice;
  choice.key_ = key;
  const auto* value = reader.find(key);
  if (value == nullptr) return choice;
  if (value->is_string()) {
    auto pattern = NamePattern::compile(value->get_ref<const std::string&>());
    if (!pattern) {
      reader.reject(key, pattern.error().message);
    } else {
      choice.pattern_ = std::move(*pattern);
    }
    return choice;
  }
  if (!value->is_array() || !std::ranges::all_of(*value, [](const auto& name) { return name.is_string(); })) {
    reader.reject(key, "must be a list of strings or a pattern");
  } else if (value->size() > kMaxPatterns) {
    reader.reject(key, "has more than " + std::to_string(kMaxPatterns) + " names");
  } else {
    choice.names_ = value->get<std::vector<std::string>>();
  }
  return choice;
}

bool ModuleChoice::has_full_name(std::string_view module) const {
  return names_ && std::ranges::find(*names_, module) != names_->end();
}

Result<bool> ModuleChoice::contains(std::string_view module) const {
  if (pattern_) {
    auto matches = pattern_->matches(module);
    if (!matches) return fail(ErrorCode::bad_config, key_ + ": " + matches.error().message, key_);
    return *matches;
  }
  return names_ && std::ranges::any_of(*names_, [&](const std::string& name) {
           return module.ends_with(name) &&
                  (module.size() == name.size() || module[module.size() - name.size() - 1] == '.');
         });
}

}  // namespace pagoda::io
