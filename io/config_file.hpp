#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/config.hpp"
#include "io/config_fields.hpp"
#include "io/wire/json_reader.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// A config file: one flat JSON object from keys to values. All errors are bad_config with the key as `param`; if the
/// file cannot be read, `param` is "config".
class ConfigFile {
 public:
  static Result<ConfigFile> load(const std::filesystem::path& path);
  /// `name` names the file in messages.
  static Result<ConfigFile> parse(std::string_view text, std::string name);

  std::vector<std::string> keys() const;

  /// Sets `field` if the file has `key`. Error if the value has another type or does not fit.
  Status read(const std::string& key, std::string& field) const;
  Status read(const std::string& key, bool& field) const;
  Status read(const std::string& key, double& field) const;
  /// Sets `field` to the text of an object, or to a string.
  Status read(const std::string& key, JsonText& field) const;

  template <class T>
  requires std::is_integral_v<T> Status read(const std::string& key, T& field)
  const {
    const auto* value = find(key);
    if (value == nullptr) return {};
    constexpr auto kLeast = std::numeric_limits<T>::min();
    constexpr auto kMost = std::numeric_limits<T>::max();
    if (value->is_number_unsigned() && std::in_range<T>(value->get<std::uint64_t>())) {
      field = static_cast<T>(value->get<std::uint64_t>());
    } else if (value->is_number_integer() && !value->is_number_unsigned() &&
               std::in_range<T>(value->get<std::int64_t>())) {
      field = static_cast<T>(value->get<std::int64_t>());
    } else {
      return refuse(key, "an integer from " + std::to_string(kLeast) + " to " + std::to_string(kMost));
    }
    return {};
  }

  template <class E>
  requires std::is_enum_v<E> Status read(const std::string& key, E& field)
  const {
    const auto* value = find(key);
    if (value == nullptr) return {};
    std::string words;
    for (const auto& [name, choice] : EnumWords<E>::kWords) {
      if (*value == name) {
        field = choice;
        return {};
      }
      words += (words.empty() ? "" : ", ") + std::string(name);
    }
    return refuse(key, "one of " + words);
  }

  /// Returns the error for a key that is not in `known`. The message suggests the nearest known key.
  Error unknown_key(const std::string& key, std::span<const std::string_view> known) const;

 private:
  ConfigFile(wire::Json object, std::string name) : object_(std::move(object)), name_(std::move(name)) {}
  const wire::Json* find(const std::string& key) const;
  tl::unexpected<Error> refuse(const std::string& key, const std::string& expected) const;

  wire::Json object_;
  std::string name_;
};

/// Returns all keys that a config file may have, for all subcommands.
std::vector<std::string_view> known_config_keys();

/// Reads an engine's configuration from a file, for programs that embed an engine. Keys of the server are allowed and
/// ignored, so that one file can serve both. EngineConfig::validate checks the values, not this function.
Result<EngineConfig> load_engine_config(const std::filesystem::path& path);
/// Like load_engine_config, for a text; `name` names the text in messages.
Result<EngineConfig> parse_engine_config(std::string_view text, std::string name);
/// Returns a text that parse_engine_config turns into this configuration.
std::string to_text(EngineConfig config);

}  // namespace pagoda::io
