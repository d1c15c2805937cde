#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::models {

// Limits far above any existing model. Products of a few of them still fit in 63 bits.
inline constexpr std::int64_t kMaxVocab = 1LL << 26;
inline constexpr std::int64_t kMaxWidth = 1LL << 22;
inline constexpr std::int64_t kMaxLayers = 4096;
inline constexpr std::int64_t kMaxHeads = 1LL << 14;
inline constexpr std::int64_t kMaxPositions = 1LL << 28;

/// The keys of a model's config as a family of models reads them. io/ implements it over config.json. status() keeps
/// the first error, which names file and key; every later read returns a default. So a family reads all it needs and
/// its caller checks once. A key whose value is null counts as absent.
class ConfigSource {
 public:
  virtual ~ConfigSource() = default;

  virtual bool has(const char* key) const = 0;
  /// Returns whether the key is in the config, even with the value null. For keys whose default differs from the
  /// meaning of null.
  virtual bool mentions(const char* key) const = 0;
  /// Returns whether the value is an empty array.
  virtual bool is_empty_list(const char* key) const = 0;

  /// Returns a whole number within [min, max]. Without a default the key must be present.
  virtual std::int64_t integer(const char* key, std::int64_t min, std::int64_t max,
                               std::optional<std::int64_t> default_value = std::nullopt) = 0;
  /// Returns a finite number above `above`.
  virtual double number(const char* key, double above, std::optional<double> default_value = std::nullopt) = 0;
  virtual bool boolean(const char* key, bool default_value) = 0;
  virtual std::string string(const char* key, std::optional<std::string> default_value = std::nullopt) = 0;
  /// Returns `count` strings, each one of `allowed` (other strings are unsupported); nothing when the key is absent.
  virtual std::optional<std::vector<std::string>> strings(const char* key, std::int64_t count,
                                                          std::initializer_list<std::string_view> allowed) = 0;
  /// Returns `count` finite numbers above `above`. The key must be present. `may_be_longer`: whether further numbers
  /// are ignored; otherwise they are an error.
  virtual std::vector<double> numbers(const char* key, std::int64_t count, double above,
                                      bool may_be_longer = false) = 0;
  /// Calls `read` with the object under `key`. An error in the object is an error of `key`.
  virtual void object(const char* key, const std::function<void(ConfigSource&)>& read) = 0;

  /// Returns the value of `key` as it is written, shortened for a message.
  virtual std::string shown(const char* key) const = 0;
  /// Keeps `reason` as the error of `key` unless there already is an error. bad_config: the value is wrong;
  /// unsupported: the value is right but not implemented.
  virtual void reject(std::string_view key, std::string_view reason, ErrorCode code = ErrorCode::bad_config) = 0;
  virtual const Status& status() const = 0;
};

}  // namespace pagoda::models
