#include "io/adapters/module_patterns.hpp"

#include <algorithm>
#include <cmath>

#include "io/model_files/file_text.hpp"

namespace pagoda::io {
namespace {

constexpr std::size_t kMaxPatterns = 10'000;

}  // namespace

Result<NamePattern> NamePattern::compile(std::string_view pattern) {
  return text::Regex::compile("\\A(?:" + std::string(pattern) + ")\\z").map([](text::Regex&& regex) {
    return NamePattern(std::move(regex));
  });
}

Result<bool> NamePattern::matches(std::string_view name) const {
  std::vector<text::Span> found;
  if (auto status = regex_.find_all(name, found); !status) return fail(std::move(status.error()));
  return !found.empty();
}

PatternValues PatternValues::read(ConfigReader& reader, const nlohmann::ordered_json& root, const char* key,
                                  std::optional<std::int64_t> max) {
  PatternValues result;
  result.key_ = key;
  const auto found = root.find(key);
  if (found == root.end() || found->is_null()) return result;
  if (!found->is_object()) {
    reader.reject(key, "must be an object");
    return result;
  }
  if (found->size() > kMaxPatterns) {
    reader.reject(key, "has more than " + std::to_string(kMaxPatterns) + " patterns");
    return result;
  }
  for (const auto& [pattern, value] : found->items()) {
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
