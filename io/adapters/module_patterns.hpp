#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/text/regex.hpp"
#include "io/model_files/config_reader.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// A regular expression of a PEFT config that a whole name must match. Python's syntax, as far as text::Regex reads it.
class NamePattern {
 public:
  /// Errors: those of text::Regex::compile.
  static Result<NamePattern> compile(std::string_view pattern);

  /// Error: the match takes too many steps.
  Result<bool> matches(std::string_view name) const;

 private:
  explicit NamePattern(text::Regex regex) : regex_(std::move(regex)) {}

  text::Regex regex_;
};

/// Values for the modules whose names match: rank_pattern and alpha_pattern. The first pattern that matches counts.
class PatternValues {
 public:
  /// Reads the object `key` in its order in `text`, which is the whole config and valid JSON. Each value must be a
  /// number above 0, and a whole number up to `max` where `max` is given. Errors go to `reader`.
  static PatternValues read(ConfigReader& reader, std::string_view text, const char* key,
                            std::optional<std::int64_t> max = std::nullopt);

  /// Returns the value for a module, or `otherwise` where no pattern matches. Error: a match takes too many steps.
  Result<double> value_of(std::string_view module, double otherwise) const;

 private:
  std::string key_;
  std::vector<std::pair<NamePattern, double>> values_;
};

/// A list of module names, or a pattern. A name in the list stands for the modules that have it, or that have it as
/// their last parts.
class ModuleChoice {
 public:
  /// Reads the value of `key`: absent, a list of strings, or a pattern. Errors go to `reader`.
  static ModuleChoice read(ConfigReader& reader, const char* key);

  bool is_pattern() const { return pattern_.has_value(); }
  /// Returns whether the list has the whole name of `module`.
  bool has_full_name(std::string_view module) const;
  /// Returns whether the list or the pattern names `module`. Error: the match takes too many steps.
  Result<bool> contains(std::string_view module) const;

 private:
  std::string key_;
  std::optional<NamePattern> pattern_;
  std::optional<std::vector<std::string>> names_;
};

}  // namespace pagoda::io
