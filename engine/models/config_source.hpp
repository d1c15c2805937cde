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

// Far above any model there is; products of a few of them still fit 63 bits.
inline constexpr std::int64_t kMaxVocab = 1LL << 26;
inline constexpr std::int64_t kMaxWidth = 1LL << 22;
inline constexpr std::int64_t kMaxLayers = 4096;
inline constexpr std::int64_t kMaxHeads = 1LL << 14;
inline constexpr std::int64_t kMaxPositions = 1LL << 28;

/// The keys of a model's config as a family of models reads them. Implemented in io/ over config.json. The first thing
/// that is wrong is kept in status(), as an error that names file and key; after it every read gives a default, so that
/// a family reads all it needs and its caller checks once. A key that is null counts as absent.
class ConfigSource {
 public:
  virtual ~ConfigSource() = default;

  virtual bool has(const char* key) const = 0;
  /// Whether the key is written there, be it as null: for keys whose default is not what null means.
  virtual bool mentions(const char* key) const = 0;

  /// A whole number within [min, max]. Without a default the key must be there.
  virtual std::int64_t integer(const char* key, std::int64_t min, std::int64_t max,
                               std::optional<std::int64_t> default_value = std::nullopt) = 0;
  /// A finite number above `above`.
  virtual double number(const char* key, double above, std::optional<double> default_value = std::nullopt) = 0;
  virtual bool boolean(const char* key, bool default_value) = 0;
  virtual std::string string(const char* key, std::optional<std::string> default_value = std::nullopt) = 0;
  /// `count` strings, each one of `allowed` (others are unsupported); nothing when the key is absent.
  virtual std::optional<std::vector<std::string>> strings(const char* key, std::int64_t count,
                                                          std::initializer_list<std::string_view> allowed) = 0;
  /// `count` finite numbers above `above`. The key must be there.
  virtual std::vector<double> numbers(const char* key, std::int64_t count, double above) = 0;
  /// Has `read` read the object under `key`; what is wrong in there is an error of `key`.
  virtual void object(const char* key, const std::function<void(ConfigSource&)>& read) = 0;

  /// The value of `key` as it is written, shortened, for a message.
  virtual std::string shown(const char* key) const = 0;
  /// Records `reason` about `key` unless something was wrong before. bad_config: what it says cannot be; unsupported:
  /// its meaning is right but not built.
  virtual void reject(std::string_view key, std::string_view reason, ErrorCode code = ErrorCode::bad_config) = 0;
  virtual const Status& status() const = 0;
};

}  // namespace pagoda::models
